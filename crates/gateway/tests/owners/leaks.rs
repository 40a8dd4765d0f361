//! Contents of errors and logs: clients get no paths, and secrets appear nowhere.

use http::Method;
use serde_json::{Value, json};

use super::{
    Somebody,
    identity::modern,
    raw,
    support::{Gateway, LONG, until},
    token,
};

/// Marker in every path and query of these tests. No client may see it.
const HIDDEN: &str = "h1dden";

/// Prefix of every secret in these tests, as in `secrets.rs`.
const SECRET: &str = "s3cr3t-";

/// Returns the bodies that a client of each era gets for a call of `tool`.
async fn told(gateway: &Gateway, who: &Somebody, server: &str, tool: &str) -> [String; 2] {
    let url = gateway.at(server);
    let greeted = who.greet(&url).await;
    let connection = greeted.header("mcp-session-id").to_owned();
    let mut legacy = String::from_utf8(greeted.bytes().await.unwrap().into()).unwrap();
    if !connection.is_empty() {
        let answer = who.call(&url, &connection, tool).await;
        legacy = String::from_utf8(answer.bytes().await.unwrap().into()).unwrap();
    }
    let (headers, body) = modern("tools/call", json!({ "name": tool, "arguments": {} }));
    let who = headers
        .iter()
        .fold(who.and("stayput-session", "key:x"), |who, (name, value)| who.and(name, value));
    let answer = who.ask(Method::POST, &url, &body).await;
    let bytes = tokio::time::timeout(LONG, answer.bytes()).await.unwrap().unwrap();
    [legacy, String::from_utf8(bytes.into()).unwrap()]
}

async fn gateway(servers: Value) -> (Gateway, Somebody) {
    let (token, hash) = token("ann");
    let gateway = Gateway::with(servers, json!({ "auth": { "tokens": { "ann": hash } } })).await;
    (gateway, Somebody::bearer(&token))
}

/// A client learns which server failed, and at most its origin. The log has the details.
#[tokio::test]
async fn error_shows_no_path_to_a_client() {
    // Reads the call and closes the connection.
    let broken = raw::serve(&["x"], |_, _| false);
    let (gateway, ann) = gateway(json!({
        "missing": { "command": format!("/opt/{HIDDEN}/no-such-program") },
        "folder": { "command": "sh", "cwd": format!("/opt/{HIDDEN}/no-such-folder") },
        "away": { "url": format!("http://127.0.0.1:9/{HIDDEN}/mcp?key={HIDDEN}") },
        "breaks": { "url": format!("{broken}/{HIDDEN}/mcp?key={HIDDEN}") },
    }))
    .await;
    for (server, expected) in [
        ("missing", "`missing` could not be started: its command was not found"),
        ("folder", "`folder` could not be started: its working folder cannot be used"),
        ("away", "no connection to http://127.0.0.1:9:"),
        ("breaks", &*format!("the connection to {broken} broke")),
    ] {
        for said in told(&gateway, &ann, server, "x").await {
            assert!(said.contains(expected), "{server}: {said}");
            assert!(!said.contains(HIDDEN), "{server}: {said}");
        }
    }
    let log = gateway.log();
    assert!(log.contains(&format!("/opt/{HIDDEN}/no-such-program")), "{log}");
    assert!(log.contains(&format!("/opt/{HIDDEN}/no-such-folder")), "{log}");
}

/// A credential that a server repeats in an error is removed before the client gets the error. Any other error passes
/// unchanged.
#[tokio::test]
async fn credential_that_a_server_repeats_is_redacted() {
    let url = raw::serve(&["x", "plain"], |heard, stream| {
        let (id, token) = (&heard.message["id"], heard.header("authorization").to_owned());
        let escaped = token.replace('s', "\\u0073");
        let body = match heard.tool() {
            "plain" => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1, "message":"\u006eo", "n":1.10}}}}"#
            ),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32001,"message":"bad {token}","data":["{escaped}",{{"{token}":1}},"{}"]}}}}"#,
                heard.header("x-key")
            ),
        };
        raw::write(stream, "200 OK", "application/json", &body)
    });
    let headers = json!({ "Authorization": format!("Bearer {SECRET}token"), "X-Key": format!("{SECRET}key") });
    let refusing = raw::serve(&["x"], |heard, stream| {
        let body = format!("no {} here", heard.header("authorization"));
        raw::write(stream, "418 Teapot", "text/plain", &body)
    });
    let (gateway, ann) = gateway(json!({
        "repeats": { "url": format!("{url}/mcp"), "headers": headers },
        "refuses": { "url": format!("{refusing}/mcp"), "headers": headers },
    }))
    .await;
    for said in told(&gateway, &ann, "repeats", "x").await {
        assert!(said.contains(r#""message":"bad [redacted]""#), "{said}");
        assert!(said.contains(r#""data":["[redacted]",{"[redacted]":1},"[redacted]"]"#), "{said}");
        assert!(!said.contains(SECRET) && !said.contains("3cr3t"), "{said}");
    }
    for said in told(&gateway, &ann, "repeats", "plain").await {
        assert!(said.contains(r#"{"code":-1, "message":"\u006eo", "n":1.10}"#), "{said}");
    }
    for said in told(&gateway, &ann, "refuses", "x").await {
        assert!(said.contains("418") && !said.contains(SECRET), "{said}");
    }
}

/// The stderr of a process is logged without the values of its variables and without other substituted secrets.
#[tokio::test]
async fn stderr_is_logged_without_secrets() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{SECRET}file\n")).unwrap();
    let variables = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(variables.path(), format!("FROM_FILE={SECRET}env-file\n")).unwrap();
    let script = "echo \"have $TOKEN, $FROM_FILE, $1 and $MODE in $PLACE\" >&2; exit 3";
    let (gateway, ann) = gateway(json!({ "dies": {
        "command": "sh",
        "args": ["-c", script, "sh", format!("${{file:{}}}", file.path().display())],
        "env": { "TOKEN": format!("{SECRET}environment"), "MODE": "dev", "PLACE": "/usr/bin" },
        "envFile": variables.path(),
    }}))
    .await;
    for said in told(&gateway, &ann, "dies", "x").await {
        assert!(said.contains("`dies`") && !said.contains("have "), "{said}");
    }
    until("line of the process", || gateway.log().contains("have ")).await;
    let log = gateway.log();
    let expected = "have [redacted], [redacted], [redacted] and dev in /usr/bin";
    assert!(log.contains(expected) && !log.contains(SECRET), "{log}");
}
