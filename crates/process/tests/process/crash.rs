//! Children after the death of the processes that supervise them.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use stayput_process::{ExitStatus, Grace, Processes};
use tokio::{
    runtime::{Handle, Runtime},
    time::{Instant, sleep},
};

use crate::kit::{Kit, Way, alive, answer, parent, pid, runs, sh, stat, token, until};

/// Scripts whose processes leave their group, session or parent in different ways, and ignore signals.
const WILD: [&str; 4] = [
    "trap '' TERM HUP INT; while :; do sleep TOKEN; done",
    "trap '' TERM HUP INT; setsid sleep TOKEN & while :; do sleep TOKEN; done",
    "trap '' TERM HUP INT; (setsid sh -c '(sleep TOKEN &); sleep TOKEN' &); exec sleep TOKEN",
    "trap '' TERM HUP INT; (sleep TOKEN | sleep TOKEN &); exit 0",
];

/// Script whose processes only a warden finds.
const SCRUBBED: &str = "(setsid env -i /bin/sh -c 'trap \"\" TERM; /bin/sleep TOKEN & /bin/sleep TOKEN' &); exec sleep TOKEN";

/// Stayput process that is killed. Does nothing when the harness runs it.
#[test]
fn the_victim() {
    let Ok(token) = std::env::var("VICTIM") else { return };
    let way =
        if std::env::var_os("VICTIM_WARDENED").is_some() { Way::Wardened } else { Way::Local };
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let processes = way.processes(&Handle::current());
        let mut children = Vec::new();
        for number in 0..20 {
            let script = match way {
                Way::Wardened if number % 5 == 4 => SCRUBBED,
                _ => WILD[number % 4],
            };
            children.push(processes.start(&sh(&token, script)).await.unwrap());
        }
        println!("\nREADY");
        sleep(Duration::from_secs(60)).await;
    });
}

/// Invariant 5, R032: two seconds after `kill -9` no process lives.
async fn nothing_outlives_a_kill(way: Way) {
    let token = token();
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "crash::the_victim", "--nocapture"]).env("VICTIM", &*token);
    if way == Way::Wardened {
        victim.env("VICTIM_WARDENED", "1");
    }
    let mut victim = victim.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(victim.stdout.take().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line == "READY"));
    // The third kind has four processes, and there are at least five of it.
    until("all of them", || alive(&token).len() > 40).await;

    victim.kill().unwrap();
    let killed = Instant::now();
    victim.wait().unwrap();
    // The search takes time itself: what counts is when the last one began that found a process.
    let mut last = killed;
    until("the end of all", || {
        let begun = Instant::now();
        let lives = !alive(&token).is_empty();
        if lives {
            last = begun;
        }
        !lives
    })
    .await;
    let took = last - killed;
    println!("{way:?}: nothing lives {took:?} after kill -9");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn no_process_outlives_a_killed_parent_with_local_children() {
    nothing_outlives_a_kill(Way::Local).await;
}

#[tokio::test]
async fn no_process_outlives_a_killed_parent_with_a_warden() {
    nothing_outlives_a_kill(Way::Wardened).await;
}

fn kill_hard(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// The children end, waiting callers get an error, and the next start has a new warden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_outlives_a_killed_warden() {
    let kit = Kit::new(Way::Wardened);
    let mut children = Vec::new();
    for script in WILD {
        children.push(kit.start(script).await);
    }
    until("all of them", || alive(&kit.token).len() >= 8).await;
    let first = parent(pid(&children[0]));
    assert_ne!(first, i32::try_from(std::process::id()).unwrap());
    kill_hard(first);
    kit.count(0).await;
    for child in &children[..3] {
        assert_eq!(child.wait().await, ExitStatus::Unknown);
        assert_eq!(child.end(Grace::NONE).await.exited, ExitStatus::Unknown);
    }
    until("the reap", || kit.processes.live() == 0).await;

    let (child, _pipes) = kit.ready("echo ready; exec cat").await;
    let second = parent(pid(&child));
    assert!(second != first && runs(second));
    kit.finish().await;
    assert!(!runs(second));
}

/// Ctrl-C, or a service manager that stops all processes at once, does not end the warden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warden_ignores_stop_signals() {
    let kit = Kit::new(Way::Wardened);
    let (child, _pipes) = kit.ready("echo ready; exec cat").await;
    let warden = parent(pid(&child));
    assert_eq!(stat(warden, 3).unwrap(), warden.to_string(), "a session of its own");
    for signal in [Signal::INT, Signal::HUP, Signal::TERM, Signal::PIPE] {
        kill_process(Pid::from_raw(warden).unwrap(), signal).unwrap();
    }
    let (_second, _pipes) = kit.ready("echo ready; exec cat").await;
    assert!(runs(warden) && child.exited().is_none());
    kit.finish().await;
}

/// Signals that Stayput or its warden handles have their default action in children. Without a warden, those that it was
/// started to ignore, as under `nohup` or in the background of a script, stay ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_have_default_signal_actions() {
    for way in [Way::Local, Way::Wardened] {
        let kit = Kit::new(way);
        for (signal, number) in [("INT", 2), ("HUP", 1), ("TERM", 15), ("PIPE", 13), ("CHLD", 17)] {
            let child = kit.start(&format!("kill -{signal} $$; exit 5")).await;
            let exited = child.wait().await;
            // The runtime of Rust ignores PIPE for itself, and has the default for children.
            let inherited = matches!(way, Way::Local) && signal != "PIPE" && is_ignored(number);
            let survived = signal == "CHLD" || inherited;
            assert_eq!(exited == ExitStatus::Code(5), survived, "{way:?} {signal}: {exited}");
        }
        kit.finish().await;
    }
}

/// Whether this process ignores a signal.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (number - 1) & 1 == 1
}

/// Orphans below a warden do not stay zombies. A daemon without a mark ends with the last child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warden_reaps_orphans() {
    let kit = Kit::new(Way::Wardened);
    let (child, _pipes) = kit.ready("(setsid true &); (setsid true &); echo ready; exec cat").await;
    let warden = parent(pid(&child));
    let zombies = || {
        let below = |pid: &i32| stat(*pid, 1).is_some_and(|parent| parent == warden.to_string());
        crate::kit::pids().into_iter().filter(below).filter(|pid| !runs(*pid)).count()
    };
    until("no zombies", || zombies() == 0).await;
    let (scrubbed, _more) =
        kit.ready("(setsid env -i /bin/sleep TOKEN &); echo ready; exec cat").await;
    kit.count(3).await;
    scrubbed.end(Grace::NONE).await;
    child.end(Grace::NONE).await;
    assert_eq!(kit.alive(), [0_i32; 0]);
    kit.finish().await;
}

/// Returns the mark of a child.
async fn mark(kit: &Kit) -> String {
    let mut child = kit.start("echo $STAYPUT_LINK").await;
    answer(child.take_pipes().unwrap(), "").await.trim().to_owned()
}

/// A killed watchdog is replaced with the next child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_watchdog_is_replaced() {
    let kit = Kit::new(Way::Local);
    let (_first, _pipes) = kit.ready("echo ready; exec cat").await;
    let prefix = mark(&kit).await.rsplit_once('.').unwrap().0.to_owned();
    let watchdogs = || -> HashSet<i32> {
        let is_one = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&prefix) && runs(*pid)
        };
        crate::kit::pids().into_iter().filter(is_one).collect()
    };
    let first = watchdogs();
    assert_eq!(first.len(), 1);
    for pid in &first {
        assert_eq!(stat(*pid, 3).unwrap(), pid.to_string(), "a session of its own");
        kill_hard(*pid);
    }
    until("its death", || watchdogs().is_empty()).await;
    let (_second, _pipes) = kit.ready("echo ready; exec cat").await;
    assert_eq!(watchdogs().len(), 1);
    kit.finish().await;
    assert_eq!(watchdogs().len(), 0);
}

/// A sweep kills only what a dead holder left on this machine.
#[tokio::test]
async fn sweep_kills_only_processes_of_dead_holders() {
    let processes = Processes::local(Handle::current());
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let space: u64 = space
        .to_str()
        .unwrap()
        .trim_matches(|letter: char| !letter.is_ascii_digit())
        .parse()
        .unwrap();
    let me = std::process::id();
    let started = stat(i32::try_from(me).unwrap(), 19).unwrap();
    let start = |mark: String, token: &str| {
        let script = format!("env -i /bin/sleep {token} & wait");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).env_clear().env("STAYPUT_LINK", mark).process_group(0);
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let (alive_token, foreign_token) = (token(), token());
    let mut kept = vec![
        start(format!("{space}.{me}.{started}.0.1"), &alive_token),
        start(format!("{}.{me}.1.0.1", space + 1), &foreign_token),
        start("not a mark".to_owned(), &foreign_token),
    ];
    // Another gateway that starts on this machine may be faster; then try again.
    let mut swept = 0;
    for _ in 0..5 {
        let token = token();
        let mut left = start(format!("{space}.{me}.1.0.1"), &token);
        // Another gateway may end it before both processes run.
        let is_over = |left: &mut std::process::Child| left.try_wait().unwrap().is_some();
        until("what was left", || alive(&token).len() == 2 || is_over(&mut left)).await;
        swept = processes.sweep().await;
        let _ = left.wait();
        assert_eq!(alive(&token), [0_i32; 0]);
        if swept >= 2 {
            break;
        }
    }
    assert!(swept >= 2, "{swept}");
    assert_eq!((alive(&alive_token).len(), alive(&foreign_token).len()), (2, 4));
    drop((alive_token, foreign_token));
    for child in &mut kept {
        child.wait().unwrap();
    }
}
