//! The layer around a service over HTTP: which session a request gets, and which it does not.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use stayput_core::Store;
use stayput_server::{Cookie, Expiry, MissingSession, NameSource};
use stayput_testkit::mcp::send;
use support::{Caller, World, builder, handle_in, in_our_hands, said, until};

/// R038, R041, R148, R149, E29, E31: who names no session is given a handle, and nothing is lost on the way; one that was not
/// minted here leads nowhere.
#[tokio::test]
async fn a_modern_client_is_offered_a_session_and_comes_back_to_it() {
    let world = World::start(builder().in_memory()).await;
    let mut client = world.modern();
    let result = client.call("count", json!({ "by": 2 })).await;
    assert_eq!(result["isError"], true, "{result}");
    let handle = handle_in(&said(&result));
    assert_eq!(result["_meta"]["dev.stayput/session"], handle.as_str());
    for total in [2, 4] {
        let total: u32 = total;
        let arguments = json!({ "by": 2, "session_id": handle });
        assert_eq!(client.text("count", arguments).await, total.to_string());
    }
    // `?` to the error of the SDK ends up where a model can read it, too.
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
    // R156, R157: a model that forgets its session gets another one, never somebody else's.
    assert_ne!(handle_in(&client.error("count", json!({ "by": 1 })).await), handle);
    assert_eq!(client.text("plain", json!({})).await, "plain");
    assert_eq!(client.text("peek", json!({})).await, "nobody");
    assert_eq!(client.text("peek", json!({ "session_id": handle })).await, "4");
    assert_eq!(client.text("ambient", json!({ "session_id": handle })).await, "5");
    assert_eq!(client.text("at_once", json!({})).await, "true", "not all tools are async");
}

/// R148: the call runs at once, and its result gives the handle out.
#[tokio::test]
async fn a_session_can_be_minted_at_once() {
    let world = World::start(builder().missing_session(MissingSession::Mint).in_memory()).await;
    let mut client = world.modern();
    let result = client.call("count", json!({ "by": 3, "session_id": "" })).await;
    assert_eq!(said(&result), "3");
    let handle = handle_in(result["content"][1]["text"].as_str().unwrap());
    assert_eq!(result["_meta"]["dev.stayput/session"], handle.as_str());
    let again = client.call("count", json!({ "by": 3, "session_id": handle })).await;
    assert_eq!((said(&again).as_str(), again["content"].as_array().unwrap().len()), ("6", 1));
    let world = World::start(builder().missing_session(MissingSession::Refuse).in_memory()).await;
    assert!(world.modern().error("count", json!({ "by": 1 })).await.contains("Name it"));
}

/// R044, R048, R063, R168: every carrier leads to the same session, for tools and resources.
#[tokio::test]
async fn every_carrier_leads_there() {
    let world = World::start(builder().in_memory()).await;
    let mut plain = world.modern();
    assert_eq!(plain.text("count", json!({ "by": 1, "session_id": "key:chat" })).await, "1");
    let mut by_header = world.modern().with("stayput-session", "key:chat");
    assert_eq!(by_header.text("count", json!({ "by": 1 })).await, "2");
    let mut params = json!({ "name": "count", "arguments": { "by": 1 } });
    params["_meta"]["dev.stayput/session"] = "key:chat".into();
    assert_eq!(said(&plain.request("tools/call", params.clone()).await["result"]), "3");
    let mut read = json!({ "uri": "test://count" });
    read["_meta"]["dev.stayput/session"] = "key:chat".into();
    let contents = plain.request("resources/read", read).await;
    assert_eq!(contents["result"]["contents"][0]["text"], "3", "{contents}");
    let nobody = plain.request("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!(nobody["error"]["code"], -32602, "{nobody}");
    // Two that disagree are an error.
    let two = by_header.error("count", json!({ "by": 1, "session_id": "key:other" })).await;
    assert!(two.contains("two different sessions"), "{two}");
    // What the host says by itself names a session of its own, and an explicit name goes before it.
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
        assert_eq!(said(&plain.request("tools/call", params).await["result"]), total, "{hint}");
    }
}

/// R049, R055, R065, R162: a client that shook hands has its session with it, on as many connections as it opens.
#[tokio::test]
async fn a_connection_leads_to_its_session() {
    let world = World::start(builder().in_memory()).await;
    let (mut ann, mut bob) = (world.legacy().await, world.legacy().await);
    assert_eq!(ann.text("count", json!({ "by": 1 })).await, "1");
    assert_eq!(ann.text("count", json!({ "by": 1 })).await, "2");
    assert_eq!(bob.text("count", json!({ "by": 1 })).await, "1");
    assert_eq!(ann.clone().text("read", json!({})).await, "2");
    // By a handle, to somebody else's as well: whoever has one may.
    let handle = ann.start().await;
    assert_eq!(ann.text("count", json!({ "by": 5, "session_id": handle })).await, "5");
    assert_eq!(bob.text("count", json!({ "by": 5, "session_id": handle })).await, "10");
    // R154: by choice it leads elsewhere.
    bob.call("session_switch", json!({ "session_id": handle })).await;
    assert_eq!(bob.text("count", json!({ "by": 1 })).await, "11");
    assert!(
        world
            .modern()
            .error("session_switch", json!({ "session_id": handle }))
            .await
            .contains("no connection")
    );
    // DELETE ends it, and what only it had.
    assert_eq!(ann.send(Method::DELETE, &Value::Null).await.status, 202);
    assert_eq!(ann.ask("ping", json!({})).await.status, 404);
    assert_eq!(bob.text("read", json!({})).await, "11");
    assert_eq!(bob.send(Method::DELETE, &Value::Null).await.status, 202);
    let mut other = world.legacy().await;
    assert_eq!(
        other.text("read", json!({ "session_id": handle })).await,
        "11",
        "named, it outlives them"
    );
}

/// E30, E31, invariant 1: nothing of one owner leads another one, or nobody, anywhere; foreign and unknown get the same
/// answer.
#[tokio::test]
async fn nobody_gets_into_the_session_of_another() {
    let world = World::start(builder().in_memory()).await;
    let mut ann = world.modern().with("x-user", "ann").shakes_hands().await;
    let handle = ann.start().await;
    assert_eq!(ann.text("count", json!({ "by": 7, "session_id": handle })).await, "7");
    assert_eq!(ann.text("count", json!({ "by": 7, "session_id": "key:mine" })).await, "7");
    assert_eq!(ann.text("count", json!({ "by": 7 })).await, "7");
    let unknown = format!("sp_{}", "b".repeat(32));
    for user in [Some("bob"), None] {
        let as_user = |caller: Caller| match user {
            Some(user) => caller.with("x-user", user),
            None => caller,
        };
        let mut thief = as_user(world.modern());
        for tool in ["count", "session_info", "session_end", "session_switch"] {
            let stolen = thief.call(tool, json!({ "by": 1, "session_id": handle })).await;
            let made_up = thief.call(tool, json!({ "by": 1, "session_id": unknown })).await;
            assert_eq!((&stolen["isError"], &stolen), (&json!(true), &made_up), "{tool}");
        }
        // A name is the owner's own.
        assert_eq!(thief.text("read", json!({ "session_id": "key:mine" })).await, "0");
        // The connection.
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
            let mut stolen = as_user(Caller { headers: Vec::new(), ..ann.clone() });
            let stolen = stolen.send(method.clone(), &ping).await;
            let mut made_up = as_user(Caller {
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
    // All of it is still there for its owner.
    assert_eq!(ann.text("read", json!({ "session_id": handle })).await, "7");
    assert_eq!(ann.text("read", json!({})).await, "7");
    // R153: the list has an owner's sessions, and no one else's.
    let listed = ann.call("session_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["sessions"].as_array().unwrap().len(), 3, "{listed}");
    let mut bob = world.modern().with("x-user", "bob");
    let listed = bob.call("session_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["sessions"].as_array().unwrap().len(), 1, "{listed}");
    let id = ann.call("session_info", json!({ "session_id": handle })).await;
    let id = id["structuredContent"]["session"].clone();
    assert!(bob.error("session_list", json!({ "session": id })).await.contains("no such session"));
    let again = ann.call("session_list", json!({ "session": id })).await;
    let again = again["structuredContent"]["session_id"].clone();
    assert_eq!(ann.text("read", json!({ "session_id": again })).await, "7");
    assert!(world.modern().error("session_list", json!({})).await.contains("authenticated"));
}

/// R044–R047: the cookie names the session, is set again on every answer, and an unknown one is told.
#[tokio::test]
async fn a_cookie_names_the_session() {
    let name_sources = [NameSource::Argument, NameSource::Cookie];
    let sessions = builder().name_sources(name_sources).cookie(Cookie::default()).in_memory();
    let world = World::start(sessions).await;
    let page = world.url.replace("/mcp", "/count");
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
    // The same over MCP.
    let mut client = world.modern().with("cookie", &cookie);
    assert_eq!(client.text("count", json!({ "by": 1 })).await, "3");
    assert_ne!(get(None).await.1.split(';').next().unwrap(), cookie);
    // R045: an unknown one is told, and forgotten.
    let (status, set, _) = get(Some("mcp_session_id=sp_x".to_owned())).await;
    assert_eq!(status, 404);
    assert!(set.starts_with("mcp_session_id=; ") && set.ends_with("Max-Age=0"), "{set}");
    // An axum handler that can do without.
    let peek = world.url.replace("/mcp", "/peek");
    let answer = send(Method::GET, &peek, &[("cookie", &cookie)], "").await.unwrap();
    assert_eq!(answer.bytes().await.unwrap(), "true");
}

/// R059, invariant 3: a session that idled out is told, to its owner with the reason; then it begins anew.
#[tokio::test]
async fn what_expired_is_told_once() {
    let (world, clock, store) = in_our_hands(|it| it).await;
    let mut modern = world.modern();
    let mut legacy = world.legacy().await;
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
        world.modern().with("x-user", "bob").error("read", json!({ "session_id": handle })).await;
    assert!(foreign.contains("no such session"), "{foreign}");
    assert!(legacy.error("count", json!({ "by": 1 })).await.contains("begins anew"));
    assert!(
        modern.error("read", json!({ "session_id": "key:chat" })).await.contains("begins anew")
    );
    // Told when the answer was written, and not a moment earlier.
    until("told", async || {
        !modern.call("read", json!({ "session_id": "key:chat" })).await["isError"]
            .as_bool()
            .unwrap_or(false)
    })
    .await;
    until("told", async || {
        !legacy.call("read", json!({})).await["isError"].as_bool().unwrap_or(false)
    })
    .await;
    assert_eq!(modern.text("read", json!({ "session_id": "key:chat" })).await, "0");
    assert_eq!(legacy.text("count", json!({ "by": 1 })).await, "1");
    // Nobody comes any more: the sweep ends them.
    clock.advance(Duration::from_secs(24 * 60 * 60));
    world.sessions.sweep().await.unwrap();
    assert!(store.list(None, None, 10).await.unwrap().is_empty());
}

/// Invariant 7: a call in flight keeps its session, however long it takes, and its stream comes as it is made.
#[tokio::test]
async fn a_call_in_flight_keeps_its_session() {
    let (world, clock, _) =
        in_our_hands(|it| it.expiry(Expiry::idle(Duration::from_secs(60)))).await;
    for mut client in [world.modern(), world.legacy().await] {
        client = client.with("stayput-session", "key:slow");
        let mut params = json!({ "name": "slow", "arguments": {} });
        params["_meta"]["progressToken"] = 7.into();
        let mut events = client.ask("tools/call", params).await.events();
        // It is on its way while the call waits.
        let progress = loop {
            let event = tokio::time::timeout(support::LONG, events.next()).await.unwrap().unwrap();
            if !event.data().is_empty() {
                break serde_json::from_slice::<Value>(event.data()).unwrap();
            }
        };
        assert_eq!(progress["method"], "notifications/progress");
        for _ in 0..3 {
            clock.advance(Duration::from_secs(60));
            world.sessions.sweep().await.unwrap();
        }
        world.counter.go.notify_one();
        let answer = tokio::time::timeout(support::LONG, events.message()).await.unwrap().unwrap();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    assert_eq!(world.modern().text("read", json!({ "session_id": "key:slow" })).await, "2");
}

/// R164, E40: what keeps nothing makes nothing, and what nobody comes back to ends soon.
#[tokio::test]
async fn calls_without_state_leave_nothing_behind() {
    let (world, clock, store) = in_our_hands(|it| it).await;
    let mut client = world.modern();
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
    world.sessions.sweep().await.unwrap();
    assert!(store.list(None, None, 100).await.unwrap().is_empty());
}

/// R060: limits are told, and hold; what nobody asked for makes room first.
#[tokio::test]
async fn limits_hold() {
    let (world, clock, _) = in_our_hands(|it| it.max_sessions_per_owner(3)).await;
    let mut client = world.modern();
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

/// R040, R057: 64 clients change one value in memory, and no change is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_clients_lose_no_update() {
    let world = World::start(builder().in_memory()).await;
    let handle = world.modern().start().await;
    let clients = (0..64).map(|_| {
        let (mut client, handle) = (world.modern(), handle.clone());
        tokio::runtime::Handle::current().spawn(async move {
            for _ in 0..5 {
                client.text("count", json!({ "by": 1, "session_id": handle })).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert_eq!(world.modern().text("read", json!({ "session_id": handle })).await, "320");
}
