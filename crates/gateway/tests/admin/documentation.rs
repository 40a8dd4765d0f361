//! Examples in the documentation: each command is run, and its output is compared with the page.

use std::{collections::HashMap, path::Path, process::Command};

use serde_json::json;
use stayput_testkit::program;

use crate::{
    commands::stayput,
    kit::{sessions, until_some},
    support::{Gateway, gone, mark},
};

/// Returns the commands and their outputs from the examples in the documentation.
fn stories() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, stories) = page.split_once("\n## Three questions\n").unwrap();
    let (stories, _) = stories.split_once("\n## ").unwrap();
    let blocks =
        stories.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let mut all: Vec<(String, String)> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push((command.to_owned(), String::new())),
            (None, Some((_, said))) => *said += &format!("{line}\n"),
            (None, None) => panic!("{line}"),
        }
    }
    assert!(all.len() > 8, "{all:?}");
    all
}

/// Returns whether a word differs from run to run: ids, pids, times and memory.
fn varies(word: &str) -> bool {
    let word = word.trim_matches(|it: char| "(),:;|".contains(it));
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let span = word.ends_with(['s', 'm', 'h']) && word.starts_with(|it: char| it.is_ascii_digit());
    let id = word.len() == 36 && word.matches('-').count() == 4;
    let time = word.len() == 20 && word.ends_with('Z');
    id || time || span || (digits == word.len() && digits > 0)
}

/// Splits an output into words. Leaves out how a process ended, because the gateway notices that in one of several
/// ways.
fn words(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("  | "));
    let lines = lines.map(|line| if line.starts_with("  before: ") { "  before:" } else { line });
    lines.flat_map(str::split_whitespace).collect()
}

/// Compares the output with the page word by word. Records which word stands for which.
fn compare(written: &str, said: &str, names: &mut HashMap<String, String>) {
    let (one, other) = (words(written), words(said));
    let fits = one.len() == other.len()
        && one.iter().zip(&other).all(|(one, other)| one == other || varies(one) && varies(other));
    assert!(fits, "--- written\n{written}\n--- said\n{said}");
    let bare = |word: &str| word.trim_matches(|it: char| "(),:;|".contains(it)).to_owned();
    names.extend(one.iter().zip(other).map(|(one, other)| (bare(one), bare(other))));
}

/// Runs every command of the examples in the order of the page on one gateway.
#[tokio::test]
async fn documented_commands_print_the_documented_output() {
    let mark = mark("stories");
    let browser = ["stdio", "--era", "legacy", "--mark", &mark, "--memory-mb", "180"];
    let browser: Vec<_> = browser.into_iter().chain(["--tool", "browser_navigate"]).collect();
    let servers = json!({
        "notes": { "command": env!("CARGO_BIN_EXE_stayput"), "args": ["demo-server"] },
        "browser": { "command": program("stayput-testserver"), "args": browser },
    });
    let gateway = Gateway::with(servers, json!({ "audit": { "to": "audit.jsonl" } })).await;
    let mut names = HashMap::<String, String>::new();
    for (command, written) in stories() {
        let words: Vec<String> = shell(&command);
        let known: Vec<&str> =
            words.iter().map(|it| names.get(it).map_or(&**it, String::as_str)).collect();
        let said = match known.split_first().unwrap() {
            (&"stayput", arguments) => {
                let said = stayput(gateway.folder.path(), arguments, "");
                said.output + &said.error
            }
            (&"kill", arguments) => {
                assert!(Command::new("kill").args(arguments).status().unwrap().success());
                let pid: u64 = arguments.last().unwrap().parse().unwrap();
                until_some("loss", async || {
                    let all = sessions(&gateway, "memory=false").await;
                    let live = all.iter().any(|it| it["links"][0]["pid"] == pid);
                    (!live).then_some(())
                })
                .await;
                String::new()
            }
            (other, _) => panic!("nobody runs {other}"),
        };
        compare(&written, &said, &mut names);
    }
    drop(gateway);
    gone(&mark).await;
}

/// Splits a command line into words.
fn shell(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    let mut words = vec![String::new()];
    for (place, part) in parts {
        if place % 2 == 1 {
            words.last_mut().unwrap().push_str(part);
            continue;
        }
        for (more, word) in part.split(' ').enumerate() {
            if more > 0 {
                words.push(String::new());
            }
            words.last_mut().unwrap().push_str(word);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
