//! Client configurations in the documentation, run as they are written.

use serde_json::{Value, json};

use crate::kit::{Home, Window};

/// Returns the first example below a heading of the page.
fn example(heading: &str, language: &str) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md");
    let page = std::fs::read_to_string(file).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("a heading");
    let (_, example) = section.split_once(&format!("```{language}\n")).expect("an example");
    example.split_once("```").expect("its end").0.to_owned()
}

fn words(entry: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{entry}")).to_owned();
    std::iter::once(&entry["command"]).chain(entry["args"].as_array().unwrap()).map(word).collect()
}

/// Parses `claude mcp add NAME -- COMMAND ARGS…`: returns the words after the first `--`.
fn claude_code() -> Vec<String> {
    let line = example("Claude Code", "sh");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((&words[..4], words[4]), (&["claude", "mcp", "add", "notes"][..], "--"), "{line}");
    words[5..].iter().map(|word| (*word).to_owned()).collect()
}

fn cursor() -> Vec<String> {
    let file: Value = serde_json::from_str(&example("Cursor", "json")).unwrap();
    words(&file["mcpServers"]["notes"])
}

fn vs_code() -> Vec<String> {
    let file: Value = serde_json::from_str(&example("VS Code", "json")).unwrap();
    assert_eq!(file["servers"]["notes"]["type"], "stdio");
    words(&file["servers"]["notes"])
}

/// Parses just enough TOML for the example: a table, and values in JSON syntax.
fn codex() -> Vec<String> {
    let text = example("Codex", "toml");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("[mcp_servers.notes]"));
    let mut entry = json!({});
    for (name, value) in lines.filter_map(|line| line.split_once(" = ")) {
        entry[name] = serde_json::from_str(value).unwrap();
    }
    words(&entry)
}

/// Runs the command of a client, with the built program in place of `stayput`.
fn run(home: &Home, words: &[String]) -> Window {
    let own = env!("CARGO_BIN_EXE_stayput");
    let built = |word: &String| if word == "stayput" { own.to_owned() } else { word.clone() };
    let words: Vec<String> = words.iter().map(built).collect();
    assert_eq!(words[0], own);
    let mut command = home.command();
    command.args(&words[1..]);
    Window::start(command)
}

/// Each command works, and has no `--session`: it would have no effect in a host that names its conversations.
#[tokio::test]
async fn documented_configuration_works_in_every_client() {
    let home = Home::new();
    let clients = [claude_code(), cursor(), vs_code(), codex()];
    for words in &clients {
        assert!(!words.iter().any(|word| word == "--session"), "{words:?}");
        let mut window = run(&home, words);
        window.greet().await;
        let noted = window.text("note_add", json!({ "text": "bread" })).await;
        assert!(noted.contains('1'), "{words:?}: {noted}");
        assert!(window.close().await.success(), "{words:?}");
    }
    home.deserted().await;
}
