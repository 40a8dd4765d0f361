//! Third-party clients, which start `stayput stdio` like any server.

use std::path::Path;

use serde_json::{Value, json};
use stayput_testkit::{peers, program};

use crate::{
    driven::Driven,
    kit::{Home, Window, servers},
    support::{gone, mark},
};

/// R163: SDKs for Python and TypeScript in both eras. Two concurrent clients have a session each, and a process ends
/// with its client.
#[tokio::test]
async fn sdks_have_sessions_over_stdio() {
    if peers::are_left_out() {
        return;
    }
    let home = Home::new();
    let stayput = env!("CARGO_BIN_EXE_stayput");
    let server = program("stayput-testserver");
    for (file, mode, version) in [
        ("python_stdio.py", Some("legacy"), "2025-11-25"),
        ("python_stdio.py", Some("auto"), "2026-07-28"),
        ("typescript1.mjs", None, "unknown"),
        ("typescript2_stdio.mjs", Some("legacy"), "2025-11-25"),
        ("typescript2_stdio.mjs", Some("auto"), "2026-07-28"),
    ] {
        let mark = mark(&format!("sdk-{file}-{}", mode.unwrap_or_default()));
        let mut peer = peers::client(file);
        peer.env.push(("XDG_DATA_HOME", home.0.path().join("data").into()));
        let mut args: Vec<&str> = mode.into_iter().collect();
        args.extend([stayput, "stdio", "--", server.to_str().unwrap(), "stdio"]);
        args.extend(["--era", "legacy", "--mark", &mark]);
        let mut client = Driven::start(&peer, &args);
        for name in ["ann", "bob"] {
            assert_eq!(client.open(name).await, version, "{file} {mode:?}");
        }
        for n in 1..=2 {
            assert_eq!((client.count("ann").await, client.count("bob").await), (n, n), "{file}");
        }
        assert_eq!(servers(&mark), 2, "{file} {mode:?}");
        client.close("ann").await;
        assert_eq!(client.count("bob").await, 3);
        client.close("bob").await;
        drop(client);
        gone(&mark).await;
    }
    assert_eq!(home.daemons().len(), 1, "one for all");
    home.deserted().await;
}

/// Arguments of `stayput stdio` in docs/recipes.md for the file of an editor, with the server of the peers.
fn documented_arguments() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## In the file of an editor\n").unwrap();
    let example = section.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    let entry = &example["mcpServers"]["memory"];
    assert_eq!(entry["command"], "stayput");
    let args = entry["args"].as_array().unwrap().iter();
    let args: Vec<String> = args.map(|it| it.as_str().unwrap().to_owned()).collect();
    let (own, server) = args.split_at(args.iter().position(|it| it == "--").unwrap() + 1);
    assert_eq!(server, ["npx", "-y", "@modelcontextprotocol/server-memory"]);
    let memory = peers::memory();
    let server =
        std::iter::once(memory.program.as_os_str()).chain(memory.args.iter().map(AsRef::as_ref));
    own.iter().cloned().chain(server.map(|it| it.to_str().unwrap().to_owned())).collect()
}

/// Two windows with the documented arguments have a memory each.
#[tokio::test]
async fn recipe_for_an_editor_isolates_two_windows() {
    if peers::are_left_out() {
        return;
    }
    let home = Home::new();
    let arguments = documented_arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = || {
        let mut command = home.command();
        command.args(&arguments);
        Window::start(command)
    };
    let (mut ann, mut bob) = (start(), start());
    ann.greet().await;
    bob.greet().await;
    let entity = json!({ "name": "milk", "entityType": "note", "observations": [] });
    ann.text("create_entities", json!({ "entities": [entity] })).await;
    assert!(!bob.text("read_graph", json!({})).await.contains("milk"));
    assert!(ann.text("read_graph", json!({})).await.contains("milk"));
    for window in [ann, bob] {
        assert!(window.close().await.success());
    }
    home.deserted().await;
}
