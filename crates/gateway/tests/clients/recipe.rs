//! Recipes as they stand in the documentation.

use std::path::Path;

use serde_json::{Value, json};
use stayput_testkit::peers::{self, Peer};

/// Returns the name of a server and its entry from the first example below a heading. The packages that `npx` would
/// fetch are taken from the peers; the rest is as written.
pub(crate) fn read(heading: &str) -> (String, Value) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let page = std::fs::read_to_string(file).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("a heading");
    let (_, example) = section.split_once("```json\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let example: Value = serde_json::from_str(example).unwrap();
    let (name, entry) = example["mcpServers"].as_object().unwrap().iter().next().unwrap();
    (name.clone(), installed(entry.clone()))
}

/// Returns the browser recipe as the page writes it for a container. `temporary` keeps files out of the home folder of
/// the user who runs the test.
pub(crate) fn browser(temporary: &Path) -> (String, Value) {
    let (name, mut entry) = read("Playwright");
    let chromium = peers::chromium();
    let more = ["--no-sandbox", "--executable-path", chromium.to_str().unwrap()];
    entry["args"].as_array_mut().unwrap().extend(more.map(Value::from));
    entry["env"] = json!({
        "TMPDIR": temporary,
        "XDG_CONFIG_HOME": "${session.dir}/config",
        "XDG_CACHE_HOME": "${session.dir}/cache",
    });
    (name, entry)
}

fn installed(mut entry: Value) -> Value {
    assert_eq!(entry["command"], "npx");
    let args = entry["args"].as_array().unwrap();
    assert_eq!(args[0], "-y");
    let Peer { program, args: first, .. } = match args[1].as_str().unwrap() {
        "@playwright/mcp" => peers::playwright(),
        "@modelcontextprotocol/server-memory" => peers::memory(),
        "@modelcontextprotocol/server-everything" => peers::everything(),
        other => panic!("{other} is not among the peers"),
    };
    let first = first.iter().map(|arg| arg.to_str().unwrap().into());
    entry["args"] = first.chain(args[2..].iter().cloned()).collect();
    entry["command"] = program.to_str().unwrap().into();
    entry
}
