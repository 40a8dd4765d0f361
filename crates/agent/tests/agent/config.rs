//! Hubs from existing configuration files.

use std::path::PathBuf;

use crate::support::{ProcessMarker, TEST_TIMEOUT, count};
use serde_json::json;
use stayput::Hub;
use stayput_testkit::program;

fn write_config(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("mcp.json");
    std::fs::write(&path, text).unwrap();
    path
}

/// R121, R122: comments, variables, disabled entries, and the `stayput` object of a server.
#[tokio::test]
async fn hub_reads_servers_and_settings_from_a_file() {
    let (marker, folder) = (ProcessMarker::new(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join(".env"), format!("TOKEN={}\n", marker.value())).unwrap();
    let server = program("stayput-testserver");
    let path = write_config(
        &folder,
        &format!(
            r#"{{
            // As other programs write it.
            "mcpServers": {{
                "counter": {{
                    "command": {server:?}, "args": ["stdio", "--era", "${{NO_SUCH_VARIABLE:-legacy}}"],
                    "envFile": ".env",
                    "stayput": {{ "on_loss": "restart", "tools": {{ "deny": ["crash"] }} }},
                }},
                "off": {{ "command": "${{NOT_SET}}", "disabled": true }},
                "self": {{ "command": "stayput", "args": ["stdio"] }},
            }},
            "stayput": {{ "listen": "127.0.0.1:1" }},
        }}"#
        ),
    );
    let hub = Hub::from_config(&path).unwrap();
    assert_eq!(hub.server_names(), ["counter"]);
    assert!(hub.warnings()[0].contains("Stayput itself"), "{:?}", hub.warnings());
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        let denied = hub.call("counter", "crash", json!({})).await.unwrap_err();
        assert_eq!(denied.kind(), "denied", "{denied}");
        let tools = hub.tools("counter").await.unwrap();
        assert!(tools.iter().any(|it| it.name == "count"));
        assert!(tools.iter().all(|it| it.name != "crash"));
        marker.kill_processes();
        crate::support::until("the process is gone", || marker.processes().is_empty()).await;
        let mut again = hub.call("counter", "count", json!({})).await;
        if again.as_ref().is_err_and(stayput::Error::may_have_run) {
            // The call was sent before the exit was noticed.
            again = hub.call("counter", "count", json!({})).await;
        }
        assert_eq!(again.unwrap().text(), "1");
    })
    .await;
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// No secret is shown.
#[test]
fn config_error_names_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [
        (
            "{\n \"mcpServers\": {\"a\": {\"command\": \"x\", \"stayput\": {\"isolaton\": 1}}}}",
            ":2:",
        ),
        (
            "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"stayput\": {\"onloss\": 1}}}}",
            "on_loss",
        ),
        ("{\"mcpServers\": {\"a\": {\"command\": \"${NOT_SET_AT_ALL}\"}}}", "NOT_SET_AT_ALL"),
        ("{}", "no servers"),
    ] {
        let error = Hub::from_config(write_config(&folder, text)).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.kind(), "config");
        assert!(message.contains("mcp.json") && message.contains(expected), "{message}");
    }
    let error = Hub::from_config("/no/such/file.json").unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file.json: the file does not exist"), "{error}");
}
