//! Resource costs of children, and their release. Other tests in the same process would be counted, too, so each count
//! runs in a separate process.

use std::{fs, process::Command};

use stayput_process::Grace;
use tokio::runtime::{Handle, Runtime};

use crate::kit::{Kit, Way, until};

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
    lists.map(|list| list.unwrap_or_default().split_ascii_whitespace().count()).sum()
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Process that counts. Does nothing when the harness runs it.
#[test]
fn the_counter() {
    let way = match std::env::var("COUNTER").as_deref() {
        Ok("Local") => Way::Local,
        Ok(_) => Way::Wardened,
        Err(_) => return,
    };
    Runtime::new().unwrap().block_on(async {
        let kit = Kit::new(way);
        // The first child also starts the warden or the watchdog. One task reads from the warden, one writes to it.
        kit.start("exit 0").await.end(Grace::NONE).await;
        let helpers = if way == Way::Wardened { 2 } else { 0 };
        until("calm", || tasks() == helpers).await;
        let idle = (descriptors(), children(), tasks());
        for _ in 0..100 {
            let child = kit.start("(setsid sleep TOKEN &); exit 0").await;
            child.end(Grace::NONE).await;
        }
        until("the count of before", || (descriptors(), children(), tasks()) == idle).await;

        let mut held = Vec::new();
        for _ in 0..10 {
            held.push(kit.ready("echo ready; exec cat").await);
        }
        // Each child costs only its pipes and no task. One task supervises all local children.
        let with_them = match way {
            Way::Wardened => (idle.0 + 30, idle.1, idle.2),
            Way::Local => (idle.0 + 30, idle.1 + 10, idle.2 + 1),
        };
        until("the cost of ten", || (descriptors(), children(), tasks()) == with_them).await;
        drop(held);
        kit.finish().await;
        assert_eq!((children(), kit.alive().len()), (0, 0));
    });
}

fn count(way: Way) {
    let me = std::env::current_exe().unwrap();
    let mut counter = Command::new(me);
    counter.args(["--exact", "leaks::the_counter", "--nocapture", "--test-threads=1"]);
    let output = counter.env("COUNTER", format!("{way:?}")).output().unwrap();
    let (text, why) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}{why}");
}

#[test]
fn hundred_local_children_leave_no_trace() {
    count(Way::Local);
}

#[test]
fn hundred_wardened_children_leave_no_trace() {
    count(Way::Wardened);
}
