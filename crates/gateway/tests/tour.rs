//! `stayput demo`, run by a person or by a program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use stayput_testkit::processes;
use tempfile::TempDir;
use tokio::time::Instant;

/// Steps, and the beginnings of their first lines.
const STEPS: [(&str, &str); 4] = [
    ("mixed", "1  Without"),
    ("apart", "2  With"),
    ("once", "3  Fifty"),
    ("restart", "4  kill -9"),
];

/// Demo with its own temporary folder. All its processes inherit the path of that folder and are found by it.
struct Demo {
    folder: TempDir,
}

impl Demo {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        command.arg("demo").args(arguments).env("TMPDIR", self.folder.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end, at most for a minute.
    fn run(&self, command: &mut Command) -> Output {
        let begun = Instant::now();
        let output = command.output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
        output
    }

    /// Runs it until a line begins with these words.
    fn run_until(&self, words: &str) -> Child {
        let mut child = self.command(&[]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with(words)), "it never came to: {words}");
        // Drains the rest of the output, so that the demo does not block on it.
        std::thread::spawn(move || lines.for_each(drop));
        child
    }

    /// Waits until none of its processes runs.
    fn no_process_is_left(&self) {
        let path = self.folder.path().to_str().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while !processes::with_token(path).is_empty() {
            assert!(Instant::now() < end, "left: {:?}", processes::with_token(path));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn nothing_is_left(&self) {
        let path = self.folder.path().to_str().unwrap();
        assert_eq!(processes::with_token(path), [] as [u32; 0], "processes");
        assert_eq!(std::fs::read_dir(self.folder.path()).unwrap().count(), 0, "files");
    }
}

/// Sends a signal to a child, or for Ctrl-C to its whole process group.
fn signal(child: &Child, name: &str) {
    let sign = if name == "-INT" { "-" } else { "" };
    let to = format!("{sign}{}", child.id());
    let status = Command::new("kill").args([name, "--", &to]).status().unwrap();
    assert!(status.success());
}

/// R019, R037, E34, invariants 3, 4 and 5, shown by the demo.
#[test]
fn demo_succeeds_and_leaves_nothing() {
    let demo = Demo::new();
    let output = demo.run(&mut demo.command(&[]));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines = told.lines();
    for (_, title) in STEPS {
        assert!(lines.any(|line| line.starts_with(title)), "{title} is missing: {told}");
    }
    for seen in [
        "Bob reads what Ann wrote",
        "There are no notes.",
        "1 process was started for them.",
        "No orphans",
        "The state of `notes` was lost",
        "Nothing of it is left",
    ] {
        assert!(told.contains(seen), "{seen} is missing: {told}");
    }
    assert!(!told.contains('\x1b') && !told.contains('\r'), "nobody looks: {told}");
    demo.nothing_is_left();
}

/// The lines in the README are lines of the demo.
#[test]
fn readme_shows_lines_of_the_demo() {
    let readme = include_str!("../../../README.md");
    let shown = readme.split("```text\n1  Without").nth(1).and_then(|it| it.split("```").next());
    let demo = Demo::new();
    let told = String::from_utf8(demo.run(&mut demo.command(&[])).stdout).unwrap();
    for line in format!("1  Without{}", shown.unwrap()).lines() {
        let line = line.trim_end_matches('…').trim_end();
        assert!(told.contains(line), "not in the story: {line}");
    }
}

#[test]
fn demo_prints_json() {
    let demo = Demo::new();
    let output = demo.run(&mut demo.command(&["--json"]));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    let steps: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(steps.len(), STEPS.len(), "{told}");
    for (step, (name, _)) in steps.iter().zip(STEPS) {
        assert_eq!((&step["step"], &step["ok"]), (&name.into(), &true.into()), "{step}");
        assert!(step["seen"].as_array().is_some_and(|seen| !seen.is_empty()), "{step}");
        assert!(step["title"].is_string() && step["millis"].is_u64(), "{step}");
    }
    demo.nothing_is_left();
}

/// A failed step is reported and ends the demo with code 1.
#[test]
fn failed_demo_reports_the_problem() {
    let demo = Demo::new();
    // An invalid proxy, so that the chats do not reach the gateway.
    let output = demo.run(demo.command(&["--json"]).env("HTTP_PROXY", "no proxy"));
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["step"], &last["ok"]), (&"apart".into(), &false.into()), "{last}");
    assert!(last["problem"].as_str().is_some_and(|it| it.contains("HTTP_PROXY")), "{last}");
    demo.nothing_is_left();
    let nowhere = demo.run(demo.command(&[]).env("TMPDIR", "/no/such/folder"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8(nowhere.stderr).unwrap().starts_with("stayput: "));
}

/// Ctrl-C at any step leaves nothing behind.
#[test]
fn interrupted_demo_leaves_nothing() {
    for (_, title) in STEPS {
        for name in ["-INT", "-TERM"] {
            let demo = Demo::new();
            let mut child = demo.run_until(title);
            signal(&child, name);
            let code = child.wait().unwrap().code();
            // The demo may just have ended.
            assert!(matches!(code, Some(130 | 0)), "{name} at {title}: {code:?}");
            assert!(code == Some(130) || title == STEPS[3].1, "{name} at {title}: {code:?}");
            demo.nothing_is_left();
        }
    }
}

/// Invariant 5: a demo that is killed leaves no process either.
#[test]
fn killed_demo_leaves_no_process() {
    for (_, title) in STEPS {
        let demo = Demo::new();
        let mut child = demo.run_until(title);
        signal(&child, "-KILL");
        child.wait().unwrap();
        demo.no_process_is_left();
    }
}
