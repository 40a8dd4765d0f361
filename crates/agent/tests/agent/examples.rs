//! Runs every example.

#[path = "../../examples/chat.rs"]
mod chat;
#[path = "../../examples/config.rs"]
mod config;
#[path = "../../examples/handlers.rs"]
mod handlers;
#[path = "../../examples/run.rs"]
mod run;
#[path = "../../examples/streaming.rs"]
mod streaming;
#[path = "../../examples/sub_agents.rs"]
mod sub_agents;
#[path = "../../examples/tickets.rs"]
mod tickets;

use crate::support::ProcessMarker;

/// R037, R064, R108.
#[tokio::test]
async fn run_example_keeps_notes_within_a_run() {
    let marker = ProcessMarker::new();
    let lines = run::demonstrate(marker.server()).await.unwrap();
    assert!(lines[0].contains("buy milk") && lines[0].contains("call Ann"), "{lines:?}");
    assert!(!lines[1].contains("milk"), "{lines:?}");
    marker.wait_until_gone().await;
}

/// R068, R104.
#[tokio::test]
async fn chat_example_reports_a_loss_and_continues() {
    let marker = ProcessMarker::new();
    let lines = chat::demonstrate(marker.server()).await.unwrap();
    let expected =
        ["ann: 1", "ben: 1", "ann: 2", "ann: 3", "ann: begin again, restarted", "ann: 1", "ben: 2"];
    assert_eq!(lines[..7], expected);
    assert_eq!(lines[7], "2 sessions, 2 links, 0 killed");
    assert!(marker.processes().is_empty());
}

/// R009.
#[tokio::test]
async fn sub_agents_example_shares_isolates_and_denies() {
    let marker = ProcessMarker::new();
    let lines = sub_agents::demonstrate(marker.server()).await.unwrap();
    assert_eq!(
        lines,
        [
            "the agent counts 1",
            "one that shares counts 2",
            "one with its own counts 1",
            "one without access fails: denied",
            "a task counts 3"
        ]
    );
    marker.wait_until_gone().await;
}

/// R025.
#[tokio::test]
async fn config_example_lists_tools() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    let server = stayput_testkit::program("stayput-testserver");
    let text =
        format!(r#"{{"mcpServers": {{"it": {{"command": {server:?}, "args": ["stdio"]}}}}}}"#);
    std::fs::write(&file, text).unwrap();
    assert!(config::demonstrate(&file).await.unwrap().iter().any(|line| line == "it: count"));
}

/// E05.
#[tokio::test]
async fn streaming_example_is_one_run() {
    let marker = ProcessMarker::new();
    let lines = streaming::demonstrate(marker.server()).await.unwrap();
    assert_eq!(lines, ["step 1 counts 1", "step 2 counts 2", "step 3 counts 3"]);
    marker.wait_until_gone().await;
}

/// §5.
#[tokio::test]
async fn handlers_example_answers_per_session() {
    let marker = ProcessMarker::new();
    let lines = handlers::demonstrate(marker.server()).await.unwrap();
    assert!(lines[0].contains("Ann") && lines[1].contains("Ben"), "{lines:?}");
    assert!(lines[2].contains("did not declare"), "{lines:?}");
    marker.wait_until_gone().await;
}

/// R118, E07.
#[tokio::test]
async fn tickets_example_moves_a_session() {
    let server = stayput_testkit::mcp::TestServer::http(&["--era", "legacy"]).await;
    let lines = tickets::demonstrate(server.url()).await.unwrap();
    assert_eq!(lines, ["here it counts 1", "there it counts 2"]);
}
