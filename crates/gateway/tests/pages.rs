//! Pages of the documentation, run from top to bottom as a reader would: files are written, commands run, and what they
//! print is compared with the page.
//!
//! | fence | meaning |
//! |---|---|
//! | `sh` | commands that succeed; comments behind them are not run |
//! | `console` | `$ COMMAND` lines, each with lines of its output; `…` stands for any text, and a command may fail |
//! | `json NAME` | content of the file `NAME` |
//! | `ini NAME` | systemd unit; its `ExecStart` is run |
//! | `nginx` | part of a configuration that nginx accepts |
//!
//! A gateway gets a free port instead of 7337. A line that ends with `&` is waited for until that gateway listens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    fmt::Write as _,
    os::unix::{fs::symlink, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use stayput_testkit::{peers, processes};
use tempfile::TempDir;

/// Separates the output of one command from the next.
const MARK: &str = "@@ next command";

/// Runs `stayput serve` with any port, keeps its log, and sets `URL` when it listens.
const SERVE: &str = r#"
serve() {
    local before; before=$(grep -c 'listens on' log || true)
    stayput serve --listen 127.0.0.1:0 "$@" >>log 2>&1 &
    gateway=$!
    until [ "$(grep -c 'listens on' log)" -gt "$before" ]; do kill -0 $gateway || { cat log; exit 1; }; sleep 0.05; done
    URL=$(grep -o 'listens on http://[0-9.:]*' log | tail -n 1 | cut -d ' ' -f 3)
}
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
set -u
: >log
"#;

/// Command of a page, with the lines that the page shows of its output.
struct Step {
    command: String,
    shown: Vec<String>,
    must_succeed: bool,
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the steps of a page in their order.
fn steps(page: &str) -> Vec<Step> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (mut steps, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind.split_once(' ') {
            None if kind == "sh" => {
                let all = body.iter().filter(|line| !line.is_empty() && !line.starts_with('#'));
                steps.extend(all.map(|line| step(line, true)));
            }
            None if kind == "console" => console(&body, &mut steps),
            None if kind == "nginx" && !peers::are_left_out() => steps.push(nginx(&body)),
            Some(("json", file)) => {
                steps.push(step(&format!("cat >{file} <<'@@'\n{}\n@@", body.join("\n")), true));
            }
            Some(("ini", _)) => {
                let run = body.iter().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
                steps.push(step(&format!("{run} &"), true));
            }
            _ => {}
        }
    }
    steps
}

fn step(command: &str, must_succeed: bool) -> Step {
    Step { command: command.to_owned(), shown: Vec::new(), must_succeed }
}

fn console(body: &[&str], steps: &mut Vec<Step>) {
    for line in body {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(step(command, false)),
            None => steps.last_mut().expect("a command").shown.push((*line).to_owned()),
        }
    }
}

/// Lets nginx check the part of a configuration.
fn nginx(body: &[&str]) -> Step {
    let part = body.join("\n").replace("/etc/stayput/", "$PWD/");
    let part = part.replace("$host", "\\$host");
    let whole =
        format!("pid $PWD/pid; error_log stderr; events {{}} http {{ access_log off;\n{part}\n}}");
    let test = "PATH=$PATH:/usr/sbin nginx -t -q -e stderr -c $PWD/nginx.conf || exit 1";
    step(&format!("cat >nginx.conf <<@@\n{whole}\n@@\n{test}"), true)
}

/// Returns the script of all steps.
fn script(steps: &[Step]) -> String {
    let mut script = SERVE.to_owned();
    for step in steps {
        writeln!(script, "echo '{MARK}'\n{}", line(step)).unwrap();
    }
    // A command in a `console` fence may fail, also the last one.
    script + "true\n"
}

/// Returns a step as the script has it.
fn line(Step { command, must_succeed, .. }: &Step) -> String {
    let command = command.replace("http://127.0.0.1:7337", "$URL");
    let command = command.replace("/usr/local/bin/stayput", "stayput").replace("/etc/stayput/", "");
    if command.contains('\n') {
        return command;
    }
    let bare = command.split(" #").next().unwrap().trim_end();
    match bare.strip_suffix('&').and_then(|it| it.strip_prefix("stayput serve")) {
        Some(served) => format!("serve {served}"),
        // The next command comes when the process is gone.
        None if bare.starts_with("kill ") => format!("{bare}; wait $! 2>/dev/null || true"),
        None if *must_succeed => format!("{bare} || {{ echo 'it failed'; exit 1; }}"),
        None => format!("{{ {bare}; }} 2>&1"),
    }
}

/// Returns whether a line of the page is a line of the output; `…` stands for any text.
fn is_shown(line: &str, output: &str) -> bool {
    let parts: Vec<&str> = line.split('…').map(str::trim).collect();
    output.lines().any(|said| {
        let mut rest = said;
        parts.iter().all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    })
}

/// Runs a page in a folder of its own, with the examples of the repository, and checks all that it shows.
fn run(page: &str) {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    std::fs::create_dir(here.join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_stayput"), here.join("bin/stayput")).unwrap();
    symlink(root().join("examples"), here.join("examples")).unwrap();
    let steps = steps(page);
    assert!(!steps.is_empty(), "{page} has no command");
    let path = format!("{}:{}", here.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-c", &script(&steps)]).current_dir(here).env("PATH", path).env("HOME", here);
    command.env("XDG_DATA_HOME", here.join("data")).env("TMPDIR", here).stdin(Stdio::null());
    command.env_remove("XDG_RUNTIME_DIR").process_group(0);
    let done = command.output().unwrap();
    let output = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    let log = std::fs::read_to_string(here.join("log")).unwrap_or_default();
    assert!(done.status.success(), "{page}: {output}\n{log}");
    let stdout = String::from_utf8(done.stdout).unwrap();
    let outputs: Vec<&str> = stdout.split(&format!("{MARK}\n")).skip(1).collect();
    assert_eq!(outputs.len(), steps.len(), "{page}: {output}");
    for (Step { command, shown, .. }, said) in steps.iter().zip(outputs) {
        for line in shown {
            assert!(
                is_shown(line, said),
                "{page}: `{command}` does not print\n{line}\nbut\n{said}"
            );
        }
    }
    let left = processes::with_token(here.to_str().unwrap());
    assert!(left.is_empty(), "{page} leaves {left:?}: {output}");
}

#[test]
fn every_command_of_the_readme_runs() {
    run("README.md");
}

#[test]
fn every_command_of_the_tutorial_runs() {
    run("docs/tutorial.md");
}

#[test]
fn every_message_in_troubleshooting_is_printed() {
    run("docs/troubleshooting.md");
}

#[test]
fn every_command_for_production_runs() {
    run("docs/production.md");
}

#[test]
fn every_command_for_owners_runs() {
    run("docs/owners.md");
}
