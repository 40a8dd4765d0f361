//! Streams of clients: messages of servers outside of calls, on links of any replica.

use serde_json::{Value, json};
use stayput_testkit::mcp::{Events, TestServer};
use tokio::time::timeout;

use crate::{
    replicas::{Database, Replicas, settings},
    support::{Client, Gateway, LONG, gone, mark, stdio},
};

/// Calls a tool in the session with this name.
async fn call_in(
    (client, name): (&Client, &str),
    gateway: &Gateway,
    (tool, arguments): (&str, Value),
) -> Value {
    request_in(
        (client, name),
        gateway,
        ("tools/call", json!({ "name": tool, "arguments": arguments })),
    )
    .await
}

/// Sends a request in the session with this name.
async fn request_in(
    (client, name): (&Client, &str),
    gateway: &Gateway,
    (method, params): (&str, Value),
) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let headers = [("mcp-session-id", &*client.id), ("stayput-session", name)];
    let answer = gateway.post(&client.server, &headers, &body.to_string()).await;
    assert_eq!(answer.status, 200);
    let answer = timeout(LONG, answer.message()).await.unwrap();
    assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{answer}");
    answer
}

/// Waits for a message with this method on a stream.
async fn hear(stream: &mut Events, method: &str) -> Value {
    let heard = async {
        loop {
            let message = stream.message().await.expect("the stream is open");
            if message["method"] == method {
                return message;
            }
        }
    };
    let heard = timeout(LONG, heard).await;
    heard.unwrap_or_else(|_| panic!("the client does not hear of {method}"))
}

/// Waits until a stream ends.
async fn ended(stream: &mut Events) {
    let rest = async { while stream.message().await.is_some() {} };
    timeout(LONG, rest).await.expect("the stream ends");
}

/// §7: the holder of the default session has the stream of a connection, and the other replicas pass messages on to it: from
/// links that they had before, and from links that they open later.
async fn check_messages_of_other_replicas(database: &Database, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let replicas = Replicas::start(&servers, database.url()).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    for server in ["local", "web"] {
        let client = zero.client(server).await;
        assert_eq!(client.text(zero, "count").await, "1");
        let [early, late] = ["early", "late"].map(|name| format!("key:{server}-{name}"));
        call_in((&client, &early), one, ("count", json!({}))).await;
        let mut stream = client.get(two, None).await.events();
        call_in((&client, &early), zero, ("notify", json!({ "tool": "grown" }))).await;
        hear(&mut stream, "notifications/tools/list_changed").await;
        // The first call on a new link, at a replica that has none of this session.
        call_in((&client, &late), two, ("notify", json!({ "tool": "grown" }))).await;
        hear(&mut stream, "notifications/tools/list_changed").await;
        let subscribe = ("resources/subscribe", json!({ "uri": "test://count" }));
        request_in((&client, &late), one, subscribe).await;
        call_in((&client, &late), zero, ("notify", json!({}))).await;
        hear(&mut stream, "notifications/resources/updated").await;
        // A client that opens its stream again hears of the same links.
        drop(stream);
        let mut stream = client.get(one, None).await.events();
        call_in((&client, &early), two, ("notify", json!({ "tool": "more" }))).await;
        hear(&mut stream, "notifications/tools/list_changed").await;
        assert_eq!(client.text(one, "count").await, "2");
    }
    drop(replicas);
    gone(&mark).await;
}

#[tokio::test]
async fn client_hears_of_sessions_at_other_replicas_on_postgres() {
    check_messages_of_other_replicas(&Database::postgres().await, "listening-postgres").await;
}

#[tokio::test]
async fn client_hears_of_sessions_at_other_replicas_on_redis() {
    check_messages_of_other_replicas(&Database::redis().await, "listening-redis").await;
}

/// A process that all sessions share is at one replica, and a client whose default session is at another one hears of it.
#[tokio::test]
async fn client_hears_of_a_shared_process_at_another_replica() {
    let (mark, database) = (mark("listening-shared"), Database::redis().await);
    let mut shared = stdio(&mark, &[]);
    shared["stayput"] = json!({ "isolation": "shared" });
    let servers = json!({ "own": stdio(&mark, &[]), "shared": shared });
    let replicas = Replicas::start(&servers, database.url()).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    let holder = zero.client("shared").await;
    holder.text(zero, "count").await;
    let client = one.client("").await;
    client.text(one, "own__count").await;
    let mut stream = client.get(two, None).await.events();
    client.text(two, "shared__count").await;
    holder.call(zero, "notify", json!({ "tool": "grown" })).await;
    hear(&mut stream, "notifications/tools/list_changed").await;
    drop(replicas);
    gone(&mark).await;
}

/// The stream of a client ends where its default session is not held any more, and the next one hears of it.
#[tokio::test]
async fn stream_ends_when_the_default_session_is_switched_to_another_replica() {
    let (mark, database) = (mark("listening-switch"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["session_tools"] = json!("all");
    let replicas = Replicas::with(&json!({ "local": stdio(&mark, &[]) }), &settings).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    let client = zero.client("local").await;
    assert_eq!(client.text(zero, "count").await, "1");
    call_in((&client, "key:other"), one, ("count", json!({}))).await;
    let mut stream = client.get(zero, None).await.events();
    let switch = json!({ "session_id": "key:other" });
    let switched = client.call(two, "session_switch", switch).await;
    assert_ne!(switched["result"]["isError"], true, "{switched}");
    ended(&mut stream).await;
    let mut stream = client.get(zero, None).await.events();
    client.call(two, "notify", json!({ "tool": "grown" })).await;
    hear(&mut stream, "notifications/tools/list_changed").await;
    drop(replicas);
    gone(&mark).await;
}

/// A holder that was stopped for longer than its lease ends the streams of the sessions that it lost.
#[tokio::test]
async fn stream_ends_at_a_replica_that_lost_the_session() {
    let (database, web) = (Database::redis().await, TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "web": { "url": web.url() } });
    let replicas = Replicas::start(&servers, database.url()).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    let client = zero.client("web").await;
    assert_eq!(client.text(zero, "count").await, "1");
    let mut stream = client.get(zero, None).await.events();
    zero.signal("-STOP");
    // The first call may be on its way to the stopped holder; another replica has the session after it.
    client.call(one, "echo", json!({})).await;
    assert_eq!(client.text(one, "count").await, "2");
    zero.signal("-CONT");
    ended(&mut stream).await;
    let mut stream = client.get(zero, None).await.events();
    client.call(two, "notify", json!({ "tool": "grown" })).await;
    hear(&mut stream, "notifications/tools/list_changed").await;
}

/// A log level and a subscription that a client has set through other replicas hold at the replica that takes its sessions
/// over: its default session, and one that it names.
#[tokio::test]
async fn preferences_hold_after_a_takeover() {
    let (mark, database) = (mark("listening-takeover"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let mut replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    let named = (&client, "key:named");
    // The last replica has a copy of the connection without preferences.
    for at in [1, 0, 2] {
        call_in(named, &replicas.all[at], ("count", json!({}))).await;
        client.text(&replicas.all[at], "count").await;
    }
    let subscribe = ("resources/subscribe", json!({ "uri": "test://count" }));
    request_in(named, &replicas.all[0], subscribe).await;
    let level = json!({ "level": "error" });
    let level = client.request(&replicas.all[1], "logging/setLevel", level).await;
    assert!(level["result"].is_object(), "{level}");
    let default = [("mcp-session-id", &*client.id)];
    let named = [("mcp-session-id", &*client.id), ("stayput-session", named.1)];
    for (holder, headers) in [(0, &default[..]), (1, &named[..])] {
        replicas.all[holder].kill();
        let two = &replicas.all[2];
        let call = async |tool: &str| {
            let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
                "name": tool, "arguments": {},
            }});
            two.post("local", headers, &body.to_string()).await
        };
        let lost = call("count").await.message().await;
        assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
        let mut stream = client.get(two, None).await.events();
        let log = call("log").await;
        assert_eq!(log.header("content-type"), "application/json", "it has sent log messages");
        drop(call("notify").await);
        hear(&mut stream, "notifications/resources/updated").await;
    }
    drop(replicas);
    gone(&mark).await;
}

/// A log level applies at once to links at other replicas.
#[tokio::test]
async fn log_level_reaches_links_at_other_replicas() {
    let (mark, database) = (mark("listening-level"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    let client = zero.client("local").await;
    client.text(zero, "count").await;
    let named = (&client, "key:named");
    call_in(named, one, ("count", json!({}))).await;
    let log = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "log", "arguments": {},
    }});
    let headers = [("mcp-session-id", &*client.id), ("stayput-session", named.1)];
    for (level, kind) in [("error", "application/json"), ("info", "text/event-stream")] {
        let set = client.request(two, "logging/setLevel", json!({ "level": level })).await;
        assert!(set["result"].is_object(), "{set}");
        let answer = zero.post("local", &headers, &log.to_string()).await;
        assert_eq!(answer.header("content-type"), kind, "{level} {}", replicas.logs());
    }
    drop(replicas);
    gone(&mark).await;
}

/// Messages that come while no replica reads them wait for the next holder of the default session.
#[tokio::test]
async fn messages_at_another_replica_wait_for_the_next_holder() {
    let (mark, database) = (mark("listening-wait"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let mut replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    let named = (&client, "key:named");
    call_in(named, &replicas.all[1], ("count", json!({}))).await;
    let mut stream = client.get(&replicas.all[0], None).await.events();
    call_in(named, &replicas.all[1], ("notify", json!({ "tool": "grown" }))).await;
    hear(&mut stream, "notifications/tools/list_changed").await;
    replicas.all[0].kill();
    let [_, one, two] = &replicas.all[..] else { panic!() };
    // The default session is lost with its process, and the next replica has it after this call.
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "count", "arguments": {},
    }});
    let default = [("mcp-session-id", &*client.id)];
    drop(two.post("local", &default, &call.to_string()).await.message().await);
    call_in(named, one, ("notify", json!({ "tool": "more" }))).await;
    let mut stream = client.get(two, None).await.events();
    hear(&mut stream, "notifications/tools/list_changed").await;
    drop(replicas);
    gone(&mark).await;
}
