//! A hub from the file that people already have.

use std::path::PathBuf;

use crate::support::{TEST_TIMEOUT, ProcessMarker, count};
use serde_json::json;
use stayput::Hub;
use stayput_testkit::program;

fn file(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("mcp.json");
    std::fs::write(&path, text).unwrap();
    path
}

/// R121, R122: comments, variables, what is disabled, and what `stayput` says of a server.
#[tokio::test]
async fn a_hub_from_a_file() {
    let (marker, folder) = (ProcessMarker::new(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join(".env"), format!("TOKEN={}\n", marker.name())).unwrap();
    let server = program("stayput-testserver");
    let path = file(
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
        crate::support::wait_until("the death is noticed", || marker.processes().is_empty()).await;
        let mut again = hub.call("counter", "count", json!({})).await;
        if again.as_ref().is_err_and(stayput::Error::may_have_run) {
            // It went out before the death was noticed.
            again = hub.call("counter", "count", json!({})).await;
        }
        assert_eq!(again.unwrap().text(), "1");
    })
    .await;
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// What is wrong is said with file, line and the name that was meant, and without a secret.
#[test]
fn an_error_names_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (text, says) in [
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
        let error = Hub::from_config(file(&folder, text)).unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), "config");
        assert!(said.contains("mcp.json") && said.contains(says), "{said}");
    }
    let error = Hub::from_config("/no/such/file.json").unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file.json: the file cannot be read"), "{error}");
}
