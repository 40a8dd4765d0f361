//! The admin API on the socket.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;

use crate::{
    kit::{ask, get, sessions, until_some},
    support::{Gateway, gone, mark, stdio},
};

/// R145: the admin API shows a session with its owner, the source of its name, its servers, its process and its
/// statistics.
#[tokio::test]
async fn session_is_shown_with_its_servers_and_process() {
    let mark = mark("admin-seen");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    assert!(sessions(&gateway, "").await.is_empty());
    let client = gateway.client("test").await;
    let pid = client.text(&gateway, "pid").await;
    client.text(&gateway, "count").await;
    let seen = until_some("idle session", async || {
        let found = sessions(&gateway, "state=idle").await;
        found.into_iter().next()
    })
    .await;
    assert_eq!(seen["owner"], "anonymous");
    assert_eq!(seen["source"], "connection");
    assert_eq!(seen["servers"], json!(["test"]));
    assert_eq!((&seen["calls"], &seen["failures"]), (&json!(2), &json!(0)));
    assert_eq!(seen["last_tool"], "count");
    assert_eq!(seen["last_error"], Value::Null);
    let link = &seen["links"][0];
    assert_eq!(link["pid"].to_string(), pid);
    assert_eq!((&link["state"], &link["shared_by"]), (&json!("live"), &json!("session")));
    assert!(link["memory_bytes"].as_u64().unwrap() > 100_000, "{link}");
    // The id is the one in the logs. No handle of any kind is shown.
    let id = seen["id"].as_str().unwrap();
    assert!(gateway.log().contains(id));
    let whole = get(&gateway, &format!("/admin/sessions/{id}")).await.to_string();
    assert!(!whole.contains(&client.id) && !whole.contains("sp_"), "{whole}");
    drop(gateway);
    gone(&mark).await;
}

/// Issue 6: the last error comes with the end of stderr of the process. Only the operator sees it.
#[tokio::test]
async fn crash_is_shown_with_the_end_of_stderr() {
    let mark = mark("admin-crash");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.call(&gateway, "stderr", json!({ "text": "the disk is full" })).await;
    let id = sessions(&gateway, "").await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/admin/sessions/{id}");
    until_some("stderr of the live process", async || {
        let seen = get(&gateway, &path).await;
        seen["links"][0]["stderr"].as_str().unwrap().contains("disk").then_some(())
    })
    .await;
    let told = client.call(&gateway, "crash", json!({})).await.to_string();
    assert!(!told.contains("disk"), "{told}");
    let seen = get(&gateway, &path).await;
    assert_eq!(seen["failures"], 1, "{seen}");
    assert_eq!(seen["last_tool"], "crash");
    assert_eq!(seen["last_error"]["server"], "test");
    assert!(seen["last_error"]["stderr"].as_str().unwrap().contains("the disk is full"), "{seen}");
    assert!(seen["links"][0]["trouble"]["message"].as_str().unwrap().contains("exited"), "{seen}");
    // The new process is shown as the next generation.
    client.text(&gateway, "count").await;
    let seen = get(&gateway, &path).await;
    assert_eq!((&seen["generation"], &seen["links"][0]["generation"]), (&json!(1), &json!(1)));
    let servers = get(&gateway, "/admin/servers").await;
    assert_eq!(servers["servers"][0]["links"], 1, "{servers}");
    drop(gateway);
    gone(&mark).await;
}

/// Ending a session ends its processes and fails its calls at once. The session stays on record as ended.
#[tokio::test]
async fn ended_session_loses_its_processes_and_fails_its_calls() {
    let mark = mark("admin-end");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let id = sessions(&gateway, "").await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/admin/sessions/{id}");
    let hour = json!({ "ms": 3_600_000 });
    let slow = client.call(&gateway, "slow", hour);
    let ending = async {
        until_some("call", async || {
            (!sessions(&gateway, "state=busy").await.is_empty()).then_some(())
        })
        .await;
        ask(&gateway, Method::DELETE, &path).await
    };
    let (failed, ended) = futures_util::future::join(slow, ending).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    assert!(failed["result"]["isError"] == true || failed["error"].is_object(), "{failed}");
    gone(&mark).await;
    assert!(sessions(&gateway, "").await.is_empty());
    let seen = get(&gateway, &path).await;
    assert_eq!((&seen["state"], &seen["ended"]["reason"]), (&json!("ended"), &json!("closed")));
    assert_eq!(ask(&gateway, Method::DELETE, &path).await.status, 410);
    // The client gets an error before any call runs, and continues in a new session.
    let after = client.call(&gateway, "count", json!({})).await;
    assert!(
        after.to_string().contains("was ended") && after["result"]["isError"] == true,
        "{after}"
    );
    assert_eq!(client.text(&gateway, "count").await, "1");
    let next = sessions(&gateway, "").await;
    assert!(next.len() == 1 && next[0]["id"] != id, "{next:?}");
    drop(gateway);
    gone(&mark).await;
}

/// Filters and pages: every session is on exactly one page.
#[tokio::test]
async fn sessions_are_listed_page_by_page() {
    let mark = mark("admin-pages");
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    for number in 0..7 {
        let server = if number < 3 { "one" } else { "two" };
        gateway.client(server).await.text(&gateway, "count").await;
    }
    let mut seen = Vec::new();
    let mut query = "limit=3&memory=false".to_owned();
    loop {
        let page = get(&gateway, &format!("/admin/sessions?{query}")).await;
        let ids = page["sessions"].as_array().unwrap().iter().map(|it| it["id"].to_string());
        seen.extend(ids);
        let Some(next) = page["next"].as_str() else { break };
        query = format!("limit=3&memory=false&cursor={next}");
    }
    assert_eq!(seen.len(), 7);
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen.len(), 7);
    assert_eq!(sessions(&gateway, "server=one").await.len(), 3);
    assert_eq!(sessions(&gateway, "server=two&limit=2").await.len(), 2);
    assert_eq!(sessions(&gateway, "owner=anonymous").await.len(), 7);
    assert!(sessions(&gateway, "owner=ann").await.is_empty());
    drop(gateway);
    gone(&mark).await;
}

/// An invalid request is answered with an error that names the mistake, and changes nothing.
#[tokio::test]
async fn invalid_request_is_refused_with_a_hint() {
    let gateway = Gateway::start(json!({})).await;
    let unknown = "/admin/sessions/0192f0c0-0000-7000-8000-000000000000";
    for (method, path, status, word) in [
        (Method::GET, "/admin/sessions?ownr=ann", 400, "`ownr`"),
        (Method::GET, "/admin/sessions?state=tired", 400, "busy"),
        (Method::GET, "/admin/sessions?limit=0", 400, "1000"),
        (Method::GET, "/admin/sessions?cursor=x", 400, "`next`"),
        (Method::GET, "/admin/sessions?memory=maybe", 400, "true"),
        (Method::GET, "/admin/status?x", 400, "`x`"),
        (Method::GET, "/admin/sessions/7", 400, "id"),
        (Method::GET, unknown, 404, "no session"),
        (Method::DELETE, unknown, 404, "no session"),
        (Method::POST, "/admin/sessions", 405, "GET"),
        (Method::DELETE, "/admin/servers", 405, "GET"),
        (Method::POST, unknown, 405, "GET and DELETE"),
        (Method::GET, "/admin", 404, "openapi"),
        (Method::GET, "/admin/nothing", 404, "openapi"),
    ] {
        let said = ask(&gateway, method.clone(), path).await;
        assert_eq!(said.status, status, "{method} {path}: {said:?}");
        assert!(said.sentence().contains(word), "{method} {path}: {said:?}");
    }
}

/// The API shows the servers with what was learned about them, and the gateway process itself.
#[tokio::test]
async fn servers_and_process_are_shown() {
    let mark = mark("admin-servers");
    let http = TestServer::http(&["--era", "modern"]).await;
    let servers = json!({ "far": { "url": http.url() }, "near": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let before = get(&gateway, "/admin/servers").await;
    assert_eq!(before["servers"][0]["state"], "unused", "{before}");
    for server in ["far", "near"] {
        gateway.client(server).await.text(&gateway, "count").await;
    }
    let seen = get(&gateway, "/admin/servers").await;
    let (far, near) = (&seen["servers"][0], &seen["servers"][1]);
    assert_eq!((&far["name"], &far["transport"]), (&json!("far"), &json!("http")));
    assert_eq!(far["profile"]["era"], "modern", "{far}");
    assert_eq!(far["profile"]["isolation"], "shared");
    assert_eq!((&near["transport"], &near["state"]), (&json!("stdio"), &json!("ready")));
    assert_eq!(near["profile"]["isolation"], "per-session");
    assert!(near["profile"]["tools"].as_u64().unwrap() > 10, "{near}");
    assert_eq!((&near["links"], &near["processes"]), (&json!(1), &json!(1)));
    assert!(near["memory_bytes"].as_u64().unwrap() > 100_000, "{near}");
    let status = get(&gateway, "/admin/status").await;
    assert_eq!(status["pid"], gateway.pid());
    assert_eq!((&status["sessions"], &status["servers"]), (&json!(2), &json!(2)));
    assert_eq!(status["ready"], true);
    let document = get(&gateway, "/admin/openapi.json").await;
    assert_eq!(document, crate::document::document());
    drop(gateway);
    gone(&mark).await;
}

/// Sessions that no client has used since a restart are listed, too.
#[tokio::test]
async fn sessions_of_an_earlier_process_are_listed_as_away() {
    let mark = mark("admin-away");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    gateway.kill();
    gateway.restart().await;
    let seen = sessions(&gateway, "").await;
    assert_eq!((&seen[0]["state"], &seen[0]["calls"]), (&json!("away"), &json!(0)), "{seen:?}");
    assert_eq!(sessions(&gateway, "state=away&server=test").await.len(), 1);
    let path = format!("/admin/sessions/{}", seen[0]["id"].as_str().unwrap());
    assert_eq!(ask(&gateway, Method::DELETE, &path).await.status, 204);
    assert!(sessions(&gateway, "").await.is_empty());
    drop(gateway);
    gone(&mark).await;
}
