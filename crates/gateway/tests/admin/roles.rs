//! Roles: admins and other users.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use http::Method;
use serde_json::{Value, json};

use crate::{
    kit::{ask_with, over_socket},
    support::{Gateway, gone, mark, stdio},
};

/// Creates a token and its entry in the configuration.
pub(crate) fn token(arguments: &[&str]) -> (String, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.arg("token").args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success());
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    (made["token"].as_str().unwrap().to_owned(), made["entry"].clone())
}

/// Over TCP only the admin role sees anything. That holds also for a gateway without authentication.
#[tokio::test]
async fn admin_api_requires_the_admin_role() {
    let mark = mark("admin-roles");
    let ((ann, ann_entry), (ops, ops_entry)) = (token(&["ann"]), token(&["ops", "--admin"]));
    let (eve, mut eve_entry) = token(&["eve"]);
    eve_entry = json!({ "hash": eve_entry, "claims": { "roles": ["user", "gateway-admin"] } });
    let tokens = json!({ "ann": ann_entry, "ops": ops_entry, "eve": eve_entry });
    let auth = json!({ "tokens": tokens, "admin": { "roles": "gateway-admin" } });
    let servers = json!({ "test": stdio(&mark, &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let paths = ["/admin/sessions", "/admin/servers", "/admin/status", "/admin/openapi.json"];
    for path in paths {
        assert_eq!(ask_with(&gateway, None, Method::GET, path).await.status, 401, "{path}");
        assert_eq!(ask_with(&gateway, Some("stp_x"), Method::GET, path).await.status, 401);
        let refused = ask_with(&gateway, Some(&ann), Method::GET, path).await;
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.sentence().contains("admin"), "{refused:?}");
        for token in [&ops, &eve] {
            assert_eq!(ask_with(&gateway, Some(token), Method::GET, path).await.status, 200);
        }
    }
    let unknown = "/admin/sessions/0192f0c0-0000-7000-8000-000000000000";
    assert_eq!(ask_with(&gateway, Some(&ann), Method::DELETE, unknown).await.status, 403);
    assert_eq!(ask_with(&gateway, Some(&ops), Method::DELETE, unknown).await.status, 404);
    drop(gateway);
    let open = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    for path in paths {
        assert_eq!(ask_with(&open, None, Method::GET, path).await.status, 403, "{path}");
    }
    gone(&mark).await;
}

/// Only the user that runs the gateway can open the socket. It needs no token there, and every path is served.
#[tokio::test]
async fn socket_is_open_only_to_the_user_of_the_gateway() {
    let (_, entry) = token(&["ann"]);
    let auth = json!({ "tokens": { "ann": entry } });
    let gateway = Gateway::with(json!({}), json!({ "auth": auth })).await;
    let data = gateway.folder.path().join("store.db.d");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&data.join("socket")) & 0o777, 0o600);
    assert_eq!(mode(&data) & 0o777, 0o700);
    for path in ["/admin/status", "/metrics", "/healthz", "/readyz"] {
        assert_eq!(over_socket(&data, Method::GET, path).await.status, 200, "{path}");
    }
    assert_eq!(over_socket(&data, Method::GET, "/nothing").await.status, 404);
}
