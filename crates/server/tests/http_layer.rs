//! Sessions of requests that pass through the HTTP layer.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use stayput_core::Store;
use stayput_server::{Cookie, Expiry, MissingSession, NameSource};
use stayput_testkit::mcp::send;
use support::{
    Client, TestServer, builder, handle_in, result_text, start_with_manual_clock, wait_until,
};

/// R038, R041, R148, R149, E29, E31: a call without a session is offered a handle, and repeating it with the handle
/// works; a made-up handle is unknown.
#[tokio::test]
async fn call_without_a_session_is_offered_a_handle() {
    let server = TestServer::start(builder().in_memory()).await;
    let mut client = server.modern();
    let result = client.call("count", json!({ "by": 2 })).await;
    assert_eq!(result["isError"], true, "{result}");
    let handle = handle_in(&result_text(&result));
    assert_eq!(result["_meta"]["dev.stayput/session"], handle.as_str());
    for total in [2, 4] {
        let total: u32 = total;
        let arguments = json!({ "by": 2, "session_id": handle });
        assert_eq!(client.text("count", arguments).await, total.to_string());
    }
    // The model can also read an error that `?` converted to the error type of the SDK.
    assert!(client.error("read", json!({})).await.contains("session_id"));
    let made_up = format!("sp_{}", "a".repeat(32));
    let unknown = client.error("count", json!({ "by": 1, "session_id": made_up })).await;
    assert!(unknown.contains("no such session"), "{unknown}");
    assert!(
        client
            .error("count", json!({ "by": 1, "session_id": &made_up[..20] }))
            .await
            .contains("not whole")
    );
    // R156, R157: a model that forgets its session gets a new one.
    assert_ne!(handle_in(&client.error("count", json!({ "by": 1 })).await), handle);
    assert_eq!(client.text("plain", json!({})).await, "plain");
    assert_eq!(client.text("peek", json!({})).await, "none");
    assert_eq!(client.text("peek", json!({ "session_id": handle })).await, "4");
    assert_eq!(client.text("ambient", json!({ "session_id": handle })).await, "5");
    assert_eq!(client.text("at_once", json!({})).await, "true", "not all tools are async");
}

/// R148: the call runs at once, and its result contains the handle.
#[tokio::test]
async fn mint_policy_runs_the_call_in_a_new_session() {
    let server =
        TestServer::start(builder().missing_session(MissingSession::Mint).in_memory()).await;
    let mut client = server.modern();
    let result = client.call("count", json!({ "by": 3, "session_id": "" })).await;
    assert_eq!(result_text(&result), "3");
    let handle = handle_in(result["content"][1]["text"].as_str().unwrap());
    assert_eq!(result["_meta"]["dev.stayput/session"], handle.as_str());
    let again = client.call("count", json!({ "by": 3, "session_id": handle })).await;
    assert_eq!(
        (result_text(&again).as_str(), again["content"].as_array().unwrap().len()),
        ("6", 1)
    );
    let server =
        TestServer::start(builder().missing_session(MissingSession::Refuse).in_memory()).await;
    assert!(server.modern().error("count", json!({ "by": 1 })).await.contains("Name it"));
}

/// R044, R048, R063, R168: all name sources find the same session, for tools and resources.
#[tokio::test]
async fn every_name_source_finds_the_session() {
    let server = TestServer::start(builder().in_memory()).await;
    let mut plain = server.modern();
    assert_eq!(plain.text("count", json!({ "by": 1, "session_id": "key:chat" })).await, "1");
    let mut by_header = server.modern().with("stayput-session", "key:chat");
    assert_eq!(by_header.text("count", json!({ "by": 1 })).await, "2");
    let mut params = json!({ "name": "count", "arguments": { "by": 1 } });
    params["_meta"]["dev.stayput/session"] = "key:chat".into();
    assert_eq!(result_text(&plain.request("tools/call", params.clone()).await["result"]), "3");
    let mut read = json!({ "uri": "test://count" });
    read["_meta"]["dev.stayput/session"] = "key:chat".into();
    let contents = plain.request("resources/read", read).await;
    assert_eq!(contents["result"]["contents"][0]["text"], "3", "{contents}");
    let unnamed = plain.request("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!(unnamed["error"]["code"], -32602, "{unnamed}");
    // Contradicting names are an error.
    let two = by_header.error("count", json!({ "by": 1, "session_id": "key:other" })).await;
    assert!(two.contains("two different sessions"), "{two}");
    // A conversation hint has its own session, and an explicit name takes precedence over the hint.
    for (hint, session, total) in [
        ("threadId", None, "1"),
        ("threadId", None, "2"),
        ("sessionID", None, "1"),
        ("threadId", Some("key:chat"), "4"),
    ] {
        let mut params = json!({ "name": "count", "arguments": { "by": 1 } });
        params["_meta"][hint] = "t-1".into();
        if let Some(session) = session {
            params["arguments"]["session_id"] = session.into();
        }
        assert_eq!(
            result_text(&plain.request("tools/call", params).await["result"]),
            total,
            "{hint}"
        );
    }
}

/// R049, R055, R065, R162: a legacy client has a session per connection.
#[tokio::test]
async fn legacy_connection_has_its_own_session() {
    let server = TestServer::start(builder().in_memory()).await;
    let (mut ann, mut bob) = (server.legacy().await, server.legacy().await);
    assert_eq!(ann.text("count", json!({ "by": 1 })).await, "1");
    assert_eq!(ann.text("count", json!({ "by": 1 })).await, "2");
    assert_eq!(bob.text("count", json!({ "by": 1 })).await, "1");
    assert_eq!(ann.clone().text("read", json!({})).await, "2");
    // A handle works on every connection of its owner.
    let handle = ann.start().await;
    assert_eq!(ann.text("count", json!({ "by": 5, "session_id": handle })).await, "5");
    assert_eq!(bob.text("count", json!({ "by": 5, "session_id": handle })).await, "10");
    // R154: the client switches the connection to another session.
    bob.call("session_switch", json!({ "session_id": handle })).await;
    assert_eq!(bob.text("count", json!({ "by": 1 })).await, "11");
    assert!(
        server
            .modern()
            .error("session_switch", json!({ "session_id": handle }))
            .await
            .contains("no connection")
    );
    // DELETE ends the connection and its unnamed session.
    assert_eq!(ann.send(Method::DELETE, &Value::Null).await.status, 202);
    assert_eq!(ann.ask("ping", json!({})).await.status, 404);
    assert_eq!(bob.text("read", json!({})).await, "11");
    assert_eq!(bob.send(Method::DELETE, &Value::Null).await.status, 202);
    let mut other = server.legacy().await;
    assert_eq!(
        other.text("read", json!({ "session_id": handle })).await,
        "11",
        "a session with a used handle outlives its connections"
    );
}

/// E30, E31, invariant 1: no handle, name or connection of one owner works for another one; the answer is the same as
/// for an unknown one.
#[tokio::test]
async fn session_of_another_owner_is_unknown() {
    let server = TestServer::start(builder().in_memory()).await;
    let mut ann = server.modern().with("x-user", "ann").initialize().await;
    let handle = ann.start().await;
    assert_eq!(ann.text("count", json!({ "by": 7, "session_id": handle })).await, "7");
    assert_eq!(ann.text("count", json!({ "by": 7, "session_id": "key:mine" })).await, "7");
    assert_eq!(ann.text("count", json!({ "by": 7 })).await, "7");
    let unknown = format!("sp_{}", "b".repeat(32));
    for user in [Some("bob"), None] {
        let as_user = |caller: Client| match user {
            Some(user) => caller.with("x-user", user),
            None => caller,
        };
        let mut thief = as_user(server.modern());
        for tool in ["count", "session_info", "session_end", "session_switch"] {
            let stolen = thief.call(tool, json!({ "by": 1, "session_id": handle })).await;
            let made_up = thief.call(tool, json!({ "by": 1, "session_id": unknown })).await;
            assert_eq!((&stolen["isError"], &stolen), (&json!(true), &made_up), "{tool}");
        }
        // The same name of another owner is another session.
        assert_eq!(thief.text("read", json!({ "session_id": "key:mine" })).await, "0");
        // The same holds for connections.
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
            let mut stolen = as_user(Client { headers: Vec::new(), ..ann.clone() });
            let stolen = stolen.send(method.clone(), &ping).await;
            let mut made_up = as_user(Client {
                connection: Some("7".into()),
                headers: Vec::new(),
                ..ann.clone()
            });
            let made_up = made_up.send(method.clone(), &ping).await;
            assert_eq!(
                (stolen.status, made_up.status),
                (http::StatusCode::NOT_FOUND, stolen.status),
                "{method}"
            );
            assert_eq!(stolen.bytes().await.unwrap(), made_up.bytes().await.unwrap());
        }
    }
    // The owner still has all sessions.
    assert_eq!(ann.text("read", json!({ "session_id": handle })).await, "7");
    assert_eq!(ann.text("read", json!({})).await, "7");
    // R153: the list contains only sessions of the owner.
    let listed = ann.call("session_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["sessions"].as_array().unwrap().len(), 3, "{listed}");
    let mut bob = server.modern().with("x-user", "bob");
    let listed = bob.call("session_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["sessions"].as_array().unwrap().len(), 1, "{listed}");
    let id = ann.call("session_info", json!({ "session_id": handle })).await;
    let id = id["structuredContent"]["session"].clone();
    assert!(bob.error("session_list", json!({ "session": id })).await.contains("no such session"));
    let again = ann.call("session_list", json!({ "session": id })).await;
    let again = again["structuredContent"]["session_id"].clone();
    assert_eq!(ann.text("read", json!({ "session_id": again })).await, "7");
    assert!(server.modern().error("session_list", json!({})).await.contains("authenticated"));
}

/// R044–R047: the cookie identifies the session and is set on every response; an unknown cookie is refused.
#[tokio::test]
async fn cookie_identifies_the_session() {
    let name_sources = [NameSource::Argument, NameSource::Cookie];
    let sessions = builder().name_sources(name_sources).cookie(Cookie::default()).in_memory();
    let server = TestServer::start(sessions).await;
    let page = server.url.replace("/mcp", "/count");
    let get = |cookie: Option<String>| {
        let page = page.clone();
        async move {
            let headers: Vec<(&str, &str)> =
                cookie.as_deref().map(|it| ("cookie", it)).into_iter().collect();
            let answer = send(Method::GET, &page, &headers, "").await.unwrap();
            let (status, set) = (answer.status.as_u16(), answer.header("set-cookie").to_owned());
            (status, set, String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap())
        }
    };
    let (status, set, count) = get(None).await;
    assert_eq!((status, count.as_str()), (200, "1"));
    assert!(set.ends_with("; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=1800"), "{set}");
    let cookie = set.split(';').next().unwrap().to_owned();
    let (_, again, count) = get(Some(cookie.clone())).await;
    assert_eq!((again, count.as_str()), (set, "2"));
    // The cookie works over MCP, too.
    let mut client = server.modern().with("cookie", &cookie);
    assert_eq!(client.text("count", json!({ "by": 1 })).await, "3");
    assert_ne!(get(None).await.1.split(';').next().unwrap(), cookie);
    // R045: an unknown cookie is refused and deleted.
    let (status, set, _) = get(Some("mcp_session_id=sp_x".to_owned())).await;
    assert_eq!(status, 404);
    assert!(set.starts_with("mcp_session_id=; ") && set.ends_with("Max-Age=0"), "{set}");
    // An axum handler can take `Option<State>`.
    let peek = server.url.replace("/mcp", "/peek");
    let answer = send(Method::GET, &peek, &[("cookie", &cookie)], "").await.unwrap();
    assert_eq!(answer.bytes().await.unwrap(), "true");
}

/// R059, invariant 3: an expired session is reported to its owner with the reason, and then starts again.
#[tokio::test]
async fn expired_session_is_reported_once() {
    let (server, clock, store) = start_with_manual_clock(|it| it).await;
    let mut modern = server.modern();
    let mut legacy = server.legacy().await;
    let handle = modern.start().await;
    for client in [&mut modern, &mut legacy] {
        client.text("count", json!({ "by": 1, "session_id": "key:chat" })).await;
    }
    modern.text("count", json!({ "by": 1, "session_id": handle })).await;
    legacy.text("count", json!({ "by": 1 })).await;
    clock.advance(Duration::from_secs(30 * 60));
    let over = modern.error("count", json!({ "by": 1, "session_id": handle })).await;
    assert!(over.contains("expired after 30 min idle"), "{over}");
    let foreign =
        server.modern().with("x-user", "bob").error("read", json!({ "session_id": handle })).await;
    assert!(foreign.contains("no such session"), "{foreign}");
    assert!(legacy.error("count", json!({ "by": 1 })).await.contains("starts again"));
    assert!(
        modern.error("read", json!({ "session_id": "key:chat" })).await.contains("starts again")
    );
    // The loss is acknowledged after the response was sent.
    wait_until("loss is acknowledged", async || {
        !modern.call("read", json!({ "session_id": "key:chat" })).await["isError"]
            .as_bool()
            .unwrap_or(false)
    })
    .await;
    wait_until("loss is acknowledged", async || {
        !legacy.call("read", json!({})).await["isError"].as_bool().unwrap_or(false)
    })
    .await;
    assert_eq!(modern.text("read", json!({ "session_id": "key:chat" })).await, "0");
    assert_eq!(legacy.text("count", json!({ "by": 1 })).await, "1");
    // The sweep ends unused sessions.
    clock.advance(Duration::from_secs(24 * 60 * 60));
    server.sessions.sweep().await.unwrap();
    assert!(store.list(None, None, 10).await.unwrap().is_empty());
}

/// Invariant 7: a call in flight keeps its session alive, and its events are streamed at once.
#[tokio::test]
async fn call_in_flight_keeps_its_session() {
    let (server, clock, _) =
        start_with_manual_clock(|it| it.expiry(Expiry::idle(Duration::from_secs(60)))).await;
    for mut client in [server.modern(), server.legacy().await] {
        client = client.with("stayput-session", "key:slow");
        let mut params = json!({ "name": "slow", "arguments": {} });
        params["_meta"]["progressToken"] = 7.into();
        let mut events = client.ask("tools/call", params).await.events();
        // The progress arrives while the call waits.
        let progress = loop {
            let event =
                tokio::time::timeout(support::TEST_TIMEOUT, events.next()).await.unwrap().unwrap();
            if !event.data().is_empty() {
                break serde_json::from_slice::<Value>(event.data()).unwrap();
            }
        };
        assert_eq!(progress["method"], "notifications/progress");
        for _ in 0..3 {
            clock.advance(Duration::from_secs(60));
            server.sessions.sweep().await.unwrap();
        }
        server.counter.go.notify_one();
        let answer =
            tokio::time::timeout(support::TEST_TIMEOUT, events.message()).await.unwrap().unwrap();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    assert_eq!(server.modern().text("read", json!({ "session_id": "key:slow" })).await, "2");
}

/// R164, E40: calls without state create no session, and an offered session ends soon if it is not used.
#[tokio::test]
async fn calls_without_state_create_no_session() {
    let (server, clock, store) = start_with_manual_clock(|it| it).await;
    let mut client = server.modern();
    for _ in 0..20 {
        client.text("plain", json!({})).await;
        client.request("tools/list", json!({})).await;
        client.text("peek", json!({})).await;
    }
    assert!(store.list(None, None, 100).await.unwrap().is_empty());
    for _ in 0..20 {
        client.error("count", json!({ "by": 1 })).await;
    }
    assert_eq!(store.list(None, None, 100).await.unwrap().len(), 20);
    clock.advance(Duration::from_secs(2 * 60));
    server.sessions.sweep().await.unwrap();
    assert!(store.list(None, None, 100).await.unwrap().is_empty());
}

/// R060: limits are reported and enforced; provisional sessions are evicted first.
#[tokio::test]
async fn session_and_value_limits_are_enforced() {
    let (server, clock, _) = start_with_manual_clock(|it| it.max_sessions_per_owner(3)).await;
    let mut client = server.modern();
    let large = client.error("big", json!({ "session_id": "key:a" })).await;
    assert!(large.contains("at most 262144 are allowed"), "{large}");
    let offered = handle_in(&client.error("count", json!({ "by": 1 })).await);
    client.text("count", json!({ "by": 1, "session_id": "key:b" })).await;
    client.text("count", json!({ "by": 1, "session_id": "key:c" })).await;
    let evicted = client.error("count", json!({ "by": 1, "session_id": offered })).await;
    assert!(evicted.contains("made room"), "{evicted}");
    let full = client.error("count", json!({ "by": 1, "session_id": "key:d" })).await;
    assert!(full.contains("3 live sessions"), "{full}");
    client.call("session_end", json!({ "session_id": "key:c" })).await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(client.text("count", json!({ "by": 1, "session_id": "key:d" })).await, "1");
}

/// R040, R057: 64 clients update one value in memory, and no update is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_updates_are_not_lost() {
    let server = TestServer::start(builder().in_memory()).await;
    let handle = server.modern().start().await;
    let clients = (0..64).map(|_| {
        let (mut client, handle) = (server.modern(), handle.clone());
        tokio::runtime::Handle::current().spawn(async move {
            for _ in 0..5 {
                client.text("count", json!({ "by": 1, "session_id": handle })).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert_eq!(server.modern().text("read", json!({ "session_id": handle })).await, "320");
}
