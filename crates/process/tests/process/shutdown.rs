//! End of children.

use std::{thread, time::Duration};

use stayput_process::{Child, EndedBy, ExitStatus, Grace};
use tokio::time::Instant;

use crate::kit::{SOON, Way, alive, exists, pid, poll_times, sh, token, until};

/// Long enough that only the child itself ends each step.
const PATIENT: Grace = Grace { quit: SOON, term: SOON };

/// Does not wait for a child that ignores the end of its input.
const TERM: Grace = Grace { quit: Duration::ZERO, term: SOON };

/// Hardly waits for any child.
const KILL: Grace = Grace { quit: Duration::ZERO, term: Duration::from_millis(50) };

const STUBBORN: &str = "trap '' TERM HUP INT; echo ready; while :; do sleep TOKEN; done";

both_ways! {
    async fn exit_is_noticed_and_reaped(kit) {
        let child = kit.start("exit 3").await;
        assert_eq!(child.wait().await, ExitStatus::Code(3));
        // No zombie stays, even while the handle is kept.
        until("the reap", || !exists(pid(&child)) && kit.processes.live() == 0).await;
        let ended = child.end(PATIENT).await;
        assert_eq!((ended.exited, ended.how, ended.leftovers), (ExitStatus::Code(3), EndedBy::ByItself, 0));
        let child = kit.start("kill -9 $$").await;
        assert_eq!(child.wait().await.to_string(), "was killed by signal 9 (KILL)");
    }

    /// An exit is noticed without a waiting caller. Processes that still hold its pipes end with it.
    async fn exit_without_a_waiter_is_noticed(kit) {
        let (child, _pipes) =
            kit.ready("(trap '' TERM; exec sleep TOKEN) & echo ready; exit 4").await;
        until("the reap", || !exists(pid(&child)) && kit.processes.live() == 0).await;
        assert_eq!(kit.alive(), [0_i32; 0]);
        assert_eq!(child.exited(), Some(ExitStatus::Code(4)));
    }

    /// The answer is current, whichever task noticed the exit.
    async fn dead_child_is_not_reported_as_alive(kit) {
        let (child, _pipes) = kit.ready("echo ready; exec sleep TOKEN").await;
        assert_eq!(child.exited(), None);
        let leader = rustix::process::Pid::from_raw(pid(&child)).unwrap();
        rustix::process::kill_process(leader, rustix::process::Signal::KILL).unwrap();
        until("the death", || child.exited() == Some(ExitStatus::Signal(9))).await;
    }

    async fn child_that_reads_eof_exits_by_itself(kit) {
        let (child, pipes) = kit.ready("echo ready; exec cat").await;
        drop(pipes);
        let ended = child.end(PATIENT).await;
        assert_eq!((ended.exited, ended.how), (ExitStatus::Code(0), EndedBy::ByItself));
    }

    /// E25: one child's stdin is not held open by the next child.
    async fn second_child_does_not_hold_the_stdin_of_the_first(kit) {
        let (first, pipes) = kit.ready("echo ready; exec cat").await;
        let (_second, _pipes) = kit.ready("echo ready; exec cat").await;
        drop(pipes);
        assert_eq!(first.wait().await, ExitStatus::Code(0));
    }

    /// E25: TERM comes before KILL.
    async fn child_that_ignores_eof_is_terminated(kit) {
        let (child, pipes) = kit.ready("trap 'exit 7' TERM; echo ready; sleep TOKEN & wait").await;
        drop(pipes);
        let ended = child.end(TERM).await;
        assert_eq!((ended.exited, ended.how), (ExitStatus::Code(7), EndedBy::Terminated));
        assert_eq!(kit.alive(), [0_i32; 0]);
    }

    /// E25: KILL comes after TERM.
    async fn child_that_ignores_term_is_killed(kit) {
        let (child, _pipes) = kit.ready(STUBBORN).await;
        let ended = child.end(KILL).await;
        assert_eq!((ended.exited, ended.how), (ExitStatus::Signal(9), EndedBy::Killed));
        assert_eq!((kit.alive().len(), ended.leftovers), (0, 0));
    }

    /// E25: grandchildren end, too.
    async fn grandchild_in_the_group_is_ended(kit) {
        let bystander = kit.bystander().await;
        let (child, pipes) =
            kit.ready("(trap '' TERM; sleep TOKEN) & sleep TOKEN & echo ready; exec cat").await;
        kit.count(3).await;
        drop(pipes);
        let ended = child.end(PATIENT).await;
        assert_eq!((ended.how, ended.leftovers), (EndedBy::ByItself, 0));
        assert_eq!(kit.alive(), [0_i32; 0]);
        bystander.is_well();
    }

    /// E25: a grandchild that left the group ends, too.
    async fn grandchild_in_its_own_session_is_ended(kit) {
        let bystander = kit.bystander().await;
        let (child, pipes) = kit.ready("setsid sleep TOKEN & echo ready; exec cat").await;
        kit.count(2).await;
        drop(pipes);
        let ended = child.end(PATIENT).await;
        // Killed before it has its own session, it ends with the group.
        assert!(ended.how == EndedBy::ByItself && ended.leftovers <= 1, "{ended:?}");
        assert_eq!(kit.alive(), [0_i32; 0]);
        bystander.is_well();
    }

    /// E25: a grandchild without a living parent ends, too.
    async fn daemon_is_ended(kit) {
        let bystander = kit.bystander().await;
        let daemon = "(setsid sh -c 'trap \"\" TERM HUP; sleep TOKEN & sleep TOKEN' &)";
        let (child, pipes) = kit.ready(&format!("{daemon}; echo ready; exec cat")).await;
        kit.count(4).await;
        drop(pipes);
        let ended = child.end(PATIENT).await;
        // The shell may exit by itself when the process is killed that it waits for. All may end with the group before
        // they have their own session.
        assert!(ended.how == EndedBy::ByItself && ended.leftovers <= 3, "{ended:?}");
        assert_eq!(kit.alive(), [0_i32; 0]);
        bystander.is_well();
    }

    /// A daemon ends as soon as its leader has exited, without a request to end it.
    async fn daemon_is_ended_when_its_leader_exits(kit) {
        let child = kit.start("(setsid sleep TOKEN &); exit 0").await;
        child.wait().await;
        kit.count(0).await;
        assert_eq!(child.end(PATIENT).await.how, EndedBy::ByItself);
    }

    /// An orphan without a mark is still in the group.
    async fn orphan_without_environment_in_the_group_is_ended(kit) {
        let bystander = kit.bystander().await;
        let (child, pipes) = kit.ready("(env -i /bin/sleep TOKEN &); echo ready; exec cat").await;
        until("the orphan", || kit.alive().iter().any(|pid| environ(*pid).is_empty())).await;
        until("two", || kit.alive().len() == 2).await;
        drop(pipes);
        let ended = child.end(PATIENT).await;
        assert_eq!((ended.how, ended.leftovers), (EndedBy::ByItself, 0));
        kit.count(0).await;
        bystander.is_well();
    }

    /// A process without a mark that left the group is known by its parent at the beginning of the end.
    async fn grandchild_without_environment_is_ended(kit) {
        let bystander = kit.bystander().await;
        let script = "setsid env -i /bin/sleep TOKEN & trap 'exit 4' TERM; echo ready; wait";
        let (child, _pipes) = kit.ready(script).await;
        until("env -i", || kit.alive().iter().any(|pid| environ(*pid).is_empty())).await;
        let ended = child.end(TERM).await;
        assert_eq!((ended.exited, ended.how), (ExitStatus::Code(4), EndedBy::Terminated));
        assert_eq!((kit.alive().len(), ended.leftovers), (0, 1));
        bystander.is_well();
    }

    async fn second_end_has_the_same_result_and_may_be_faster(kit) {
        let (child, _pipes) = kit.ready(STUBBORN).await;
        let from = Instant::now();
        let (first, second) = tokio::join!(child.end(PATIENT), child.end(KILL));
        assert!(from.elapsed() < SOON);
        assert_eq!((first, first.how), (second, EndedBy::Killed));
        assert_eq!(child.end(PATIENT).await, first);
    }

    /// Invariant 6: opened and closed on different tasks.
    async fn child_can_be_ended_by_another_task(kit) {
        let (child, _pipes) = kit.ready(STUBBORN).await;
        let child = std::sync::Arc::new(child);
        let waiting: Vec<_> = (0..3).map(|_| wait_elsewhere(child.clone())).collect();
        let ended = tokio::runtime::Handle::current().spawn({
            let child = child.clone();
            async move { child.end(KILL).await }
        });
        assert_eq!(ended.await.unwrap().how, EndedBy::Killed);
        for waiter in waiting {
            assert_eq!(waiter.await.unwrap(), ExitStatus::Signal(9));
        }
    }

    /// Invariant 6: an end completes, wherever its future was dropped.
    async fn cancelled_end_completes(kit) {
        for times in 1..6 {
            let (child, _pipes) = kit.ready(STUBBORN).await;
            let _ = poll_times(times, child.end(KILL)).await;
            kit.count(0).await;
            assert_eq!(child.end(PATIENT).await.how, EndedBy::Killed);
        }
    }

    /// R034: dropping a child ends it.
    async fn dropped_child_is_ended(kit) {
        let child = kit.start("(setsid sleep TOKEN &); sleep TOKEN; :").await;
        kit.count(3).await;
        drop(child);
        kit.count(0).await;
        until("the count", || kit.processes.live() == 0).await;
    }

    /// E26: `drop` works without a runtime.
    async fn child_dropped_on_a_plain_thread_is_ended(kit) {
        let (child, _pipes) = kit.ready(STUBBORN).await;
        thread::spawn(move || drop(child)).join().unwrap();
        kit.count(0).await;
    }

    /// E36: all children end concurrently, not one after the other.
    async fn children_are_closed_concurrently(kit) {
        let mut children = Vec::new();
        for _ in 0..20 {
            children.push(kit.ready(STUBBORN).await);
        }
        let from = Instant::now();
        kit.processes.close().await;
        assert!(from.elapsed() < SOON, "{:?}", from.elapsed());
        assert_eq!(kit.alive(), [0_i32; 0]);
    }
}

fn environ(pid: i32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_else(|_| b"gone".to_vec())
}

fn wait_elsewhere(child: std::sync::Arc<Child>) -> tokio::task::JoinHandle<ExitStatus> {
    tokio::runtime::Handle::current().spawn(async move { child.wait().await })
}

/// E26: without its runtime the child is dead before `drop` returns.
fn dropped_after_its_runtime(way: Way) {
    let token = token();
    let script = format!("(setsid sleep TOKEN &); {STUBBORN}");
    for in_background in [false, true] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let processes = way.processes(runtime.handle());
        let child = runtime.block_on(async {
            let child = processes.start(&sh(&token, &script)).await.unwrap();
            until("the start", || alive(&token).len() == 3).await;
            child
        });
        if in_background {
            // The threads of the runtime do the same, and may finish after this check begins.
            runtime.shutdown_background();
            drop(child);
            wait_for(|| alive(&token).is_empty() && processes.live() == 0);
        } else {
            drop(runtime);
            drop(child);
        }
        assert_eq!(alive(&token), [0_i32; 0]);
        assert_eq!(processes.live(), 0);
    }
}

fn wait_for(is_so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn local_child_dropped_after_its_runtime_is_killed_at_once() {
    dropped_after_its_runtime(Way::Local);
}

#[test]
fn wardened_child_dropped_after_its_runtime_is_killed_at_once() {
    dropped_after_its_runtime(Way::Wardened);
}
