//! Whatever Bob knows of Ann's session, it leads him nowhere.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::Answer;

use super::{
    Somebody, token,
    world::{Gateway, LONG, gone, mark, stdio},
};

/// Status and body, to compare.
async fn shape(answer: Answer) -> (u16, String) {
    let status = answer.status.as_u16();
    let body = tokio::time::timeout(LONG, answer.bytes()).await.unwrap().unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn call(arguments: &Value, meta: &Value) -> String {
    let params = json!({ "name": "count", "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

/// E30, E31: by connection, event id, handle and key, on every method: as if it were not there.
#[tokio::test]
async fn what_is_anns_is_nothing_to_bob() {
    let mark = mark("hijack");
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "handles": "always" });
    let servers = json!({ "test": server });
    let gateway = Gateway::with(servers, json!({ "auth": auth, "session_tools": "all" })).await;
    let (url, ann, bob) = (gateway.at("test"), Somebody::bearer(&ann), Somebody::bearer(&bob));
    let connection = ann.connect(&url).await;
    assert_eq!(ann.text(&url, &connection, "count").await, "1");
    let unknown = bob.connect(&url).await;
    assert_eq!(bob.and("mcp-session-id", &unknown).ask(Method::DELETE, &url, "").await.status, 200);
    // By the id of the connection, and by that with an event id of it.
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let body =
            if method == Method::POST { call(&json!({}), &json!({})) } else { String::new() };
        let tried = bob.and("mcp-session-id", &connection).and("last-event-id", "AAAA");
        let nothing = bob.and("mcp-session-id", &unknown).and("last-event-id", "AAAA");
        let tried = shape(tried.ask(method.clone(), &url, &body).await).await;
        let nothing = shape(nothing.ask(method.clone(), &url, &body).await).await;
        assert_eq!(tried, nothing, "{method}");
        assert_eq!(tried.0, 404, "{method}");
    }
    // By her handle, wherever it stands.
    let handle = anns_handle(&ann, &url, &connection).await;
    let own = bob.connect(&url).await;
    let never: String = handle.chars().rev().take(8).collect();
    let never = &*format!("{}{never}", &handle[..handle.len() - 8]);
    let on_own = bob.and("mcp-session-id", &own);
    for said in ["argument", "meta", "header"] {
        let mut answers = Vec::new();
        for name in [&*handle, never] {
            let (mut arguments, mut meta, mut from) =
                (json!({}), json!({}), on_own.and("x-n", "1"));
            match said {
                "argument" => arguments["session_id"] = json!(name),
                "meta" => meta["dev.stayput/session"] = json!(name),
                _ => from = on_own.and("stayput-session", name),
            }
            let (status, body) =
                shape(from.ask(Method::POST, &url, &call(&arguments, &meta)).await).await;
            answers.push((status, body.replace(name, "NAME")));
        }
        assert_eq!(answers[0], answers[1], "{said}");
        assert!(!answers[0].1.contains("\"text\":\"2\""), "{said}: {}", answers[0].1);
    }
    // By the same key both have a session of their own.
    for (who, expected) in [(&ann, "1"), (&bob, "1"), (&ann, "2")] {
        let path = format!("{url}/~shared");
        let on = who.connect(&path).await;
        assert_eq!(who.text(&path, &on, "count").await, expected);
    }
    assert_eq!(ann.text(&url, &connection, "count").await, "2", "and nobody noticed anything");
    drop(gateway);
    gone(&mark).await;
}

/// A handle of the session of Ann's connection.
async fn anns_handle(ann: &Somebody, url: &str, connection: &str) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "session_start", "arguments": {} } });
    let answer =
        ann.and("mcp-session-id", connection).ask(Method::POST, url, &body.to_string()).await;
    let message = tokio::time::timeout(LONG, answer.message()).await.unwrap();
    let handle = message["result"]["structuredContent"]["session_id"].as_str();
    handle.unwrap_or_else(|| panic!("{message}")).to_owned()
}
