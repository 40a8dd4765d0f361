//! Messages of a server over a link that several owners share: each reaches only the client that it concerns.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Answer, Events, TestServer};
use tempfile::NamedTempFile;

use super::{
    Somebody,
    support::{Gateway, LONG, mark, stdio, until},
    token,
};

const RESOURCE: &str = "test://count";
const CHANGED: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";
const LOGGED: &str = "notifications/message";
const ASKED: [(&str, &str); 2] =
    [("elicit", "elicitation/create"), ("sample", "sampling/createMessage")];

/// Transport of the shared server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Stdio,
    /// HTTP with a stream for each call.
    Streams,
    /// HTTP, with everything but answers on the stream of the link.
    OneStream,
}

const WAYS: [Way; 3] = [Way::Stdio, Way::Streams, Way::OneStream];

/// Gateway whose server is shared by Ann and Bob. The server sends requests that the client did not declare, too.
struct World {
    gateway: Gateway,
    _http: Option<TestServer>,
    /// Messages that the server received.
    log: NamedTempFile,
    ann: Somebody,
    bob: Somebody,
}

impl World {
    async fn new(way: Way, name: &str) -> Self {
        let log = NamedTempFile::new().unwrap();
        let options = ["--quirk", "ask-anyway", "--log", log.path().to_str().unwrap()];
        let http = match way {
            Way::Stdio => None,
            Way::Streams => Some(TestServer::http(&http_options("--sse", &options)).await),
            Way::OneStream => Some(TestServer::http(&http_options("--json", &options)).await),
        };
        let mut server = match &http {
            None => stdio(&mark(name), &options),
            Some(http) => json!({ "url": http.url() }),
        };
        server["stayput"] = json!({ "isolation": "shared", "era": "legacy" });
        let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
        let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
        let gateway = Gateway::with(json!({ "test": server }), json!({ "auth": auth })).await;
        let (ann, bob) = (Somebody::bearer(&ann), Somebody::bearer(&bob));
        Self { gateway, _http: http, log, ann, bob }
    }

    /// Returns a client that has used the link.
    async fn client(&self, who: &Somebody, capabilities: Value) -> Client {
        let client = Client::new(who, self.gateway.at("test"), capabilities).await;
        client.text("count", json!({})).await;
        client
    }

    fn told(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Returns the answer that the server got to its request of this id.
    async fn answer_to(&self, id: &str) -> Value {
        let find = || {
            let told = self.told();
            let lines = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut answers = lines.filter(|it| it["method"].is_null() && it["id"] == id);
            answers.next()
        };
        until(&format!("answer to {id}"), || find().is_some()).await;
        find().unwrap()
    }
}

fn http_options<'a>(answers: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["--era", "legacy", answers];
    all.extend(more);
    all
}

/// One connection.
struct Client {
    who: Somebody,
    url: String,
}

impl Client {
    async fn new(who: &Somebody, url: String, capabilities: Value) -> Self {
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        }});
        let answer = who.ask(Method::POST, &url, &hello.to_string()).await;
        assert_eq!(answer.status, 200);
        let who = who.and("mcp-session-id", answer.header("mcp-session-id"));
        Self { who, url }
    }

    async fn post(&self, message: Value) -> Answer {
        self.who.ask(Method::POST, &self.url, &message.to_string()).await
    }

    async fn tell(&self, message: Value) {
        assert_eq!(self.post(message).await.status, 202);
    }

    async fn request(&self, method: &str, params: Value) -> Answer {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.post(message).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        let all = all(self.call(tool, arguments).await).await;
        text(all.last().unwrap())
    }

    /// Starts a call that runs until it is cancelled. Returns after the server has begun.
    async fn slow(&self) -> Events {
        let params = json!({ "name": "slow", "arguments": { "ms": 600_000 },
            "_meta": { "progressToken": "p" } });
        let mut events = self.request("tools/call", params).await.events();
        assert_eq!(next(&mut events).await["method"], "notifications/progress");
        events
    }

    async fn cancel(&self) {
        self.tell(notification("notifications/cancelled", &json!({ "requestId": 7 }))).await;
    }

    async fn answer(&self, id: &Value, name: &str) {
        let result = json!({ "action": "accept", "content": { "name": name } });
        self.tell(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }

    /// Makes the server send this message outside any call.
    async fn have_sent(&self, message: Value) {
        let params = json!({ "message": message });
        self.tell(notification("notifications/test/send", &params)).await;
    }

    async fn listen(&self) -> Events {
        let answer = self.who.ask(Method::GET, &self.url, "").await;
        assert_eq!(answer.status, 200);
        answer.events()
    }

    async fn subscribe(&self) {
        let done = all(self.request("resources/subscribe", json!({ "uri": RESOURCE })).await).await;
        assert_eq!(done.last().unwrap()["result"], json!({}), "{done:?}");
    }

    /// Returns what each of these streams received so far. The server reports its list first, so the second list marks
    /// the end of the first change.
    async fn heard(&self, streams: &mut [&mut Events]) -> Vec<Vec<String>> {
        self.text("notify", json!({})).await;
        self.text("notify", json!({})).await;
        let mut heard = Vec::new();
        for events in streams {
            let mut all: Vec<String> = Vec::new();
            while all.iter().filter(|it| *it == CHANGED).count() < 2 {
                let message = next(events).await;
                all.push(message["method"].as_str().unwrap().to_owned());
            }
            all.retain(|it| it != CHANGED);
            heard.push(all);
        }
        heard
    }
}

fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

async fn next(events: &mut Events) -> Value {
    tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap()
}

/// Returns all messages of an answer. The answer itself is the last.
async fn all(answer: Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200);
    if answer.header("content-type").starts_with("application/json") {
        return vec![answer.json().await];
    }
    rest(answer.events()).await
}

async fn rest(mut events: Events) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(message) = tokio::time::timeout(LONG, events.message()).await.unwrap() {
        all.push(message);
    }
    all
}

fn methods(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|it| it["method"].as_str()).collect()
}

fn everything() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": {} })
}

/// A server request goes to the client that made the call, whatever others declared. Only its answer counts: answers
/// of another owner or of another client of the same owner are ignored, even under the same id.
#[tokio::test]
async fn server_request_reaches_only_the_client_of_the_call() {
    for way in WAYS {
        let support = World::new(way, "asked").await;
        let ann = support.client(&support.ann, json!({})).await;
        let other = support.client(&support.ann, everything()).await;
        let bob = support.client(&support.bob, everything()).await;
        let (mut others, mut bobs) = (other.listen().await, bob.listen().await);
        for (tool, method) in ASKED {
            let mut call = ann.call(tool, json!({})).await.events();
            let asked = next(&mut call).await;
            assert_eq!(asked["method"], method, "{way:?}: {asked}");
            bob.answer(&asked["id"], "Bob").await;
            other.answer(&asked["id"], "other").await;
            ann.answer(&asked["id"], "Ann").await;
            let answer = next(&mut call).await;
            let said = text(&answer);
            assert!(said.contains("Ann"), "{way:?}: {said}");
        }
        let heard = ann.heard(&mut [&mut others, &mut bobs]).await;
        assert_eq!(heard, [[""; 0]; 2], "{way:?}");
    }
}

/// With two calls in flight the addressee of a server request is unknown, even if only one client declared the
/// capability.
#[tokio::test]
async fn server_request_during_several_calls_is_refused() {
    for way in WAYS {
        let support = World::new(way, "several").await;
        let ann = support.client(&support.ann, json!({})).await;
        let bob = support.client(&support.bob, everything()).await;
        let mut bobs = bob.listen().await;
        let slow = bob.slow().await;
        for (tool, _) in ASKED {
            let said = all(ann.call(tool, json!({})).await).await;
            assert_eq!(methods(&said), [""; 0], "{way:?}");
            assert!(text(&said[0]).contains("-32601"), "{way:?}: {said:?}");
        }
        bob.cancel().await;
        assert_eq!(methods(&rest(slow).await), [""; 0], "{way:?}");
        assert_eq!(ann.heard(&mut [&mut bobs]).await, [[""; 0]], "{way:?}");
    }
}

/// A server may still work on a cancelled call. Its request may belong to that call, unless the stream shows which
/// call it is for.
#[tokio::test]
async fn server_request_after_a_cancelled_call_is_refused() {
    for way in WAYS {
        let support = World::new(way, "cancelled").await;
        let ann = support.client(&support.ann, everything()).await;
        let bob = support.client(&support.bob, everything()).await;
        // The stream of the link is read only while a client listens.
        let _listening = bob.listen().await;
        let slow = bob.slow().await;
        bob.cancel().await;
        rest(slow).await;
        let mut call = ann.call("elicit", json!({})).await;
        if way == Way::Streams {
            let mut events = call.events();
            let asked = next(&mut events).await;
            assert_eq!(asked["method"], "elicitation/create", "{asked}");
            ann.answer(&asked["id"], "Ann").await;
            next(&mut events).await;
            call = ann.call("count", json!({})).await;
        } else {
            let said = all(call).await;
            assert_eq!(methods(&said), [""; 0], "{way:?}");
            assert!(text(&said[0]).contains("-32601"), "{way:?}: {said:?}");
            call = ann.call("count", json!({})).await;
        }
        assert_eq!(text(all(call).await.last().unwrap()), "3", "{way:?}");
    }
}

/// A server request that the server cancels is cancelled at the client that has it. Other ids have no effect.
#[tokio::test]
async fn cancelled_server_request_is_cancelled_at_its_client() {
    for way in WAYS {
        let support = World::new(way, "withdrawn").await;
        let ann = support.client(&support.ann, everything()).await;
        let bob = support.client(&support.bob, everything()).await;
        let mut bobs = bob.listen().await;
        let mut call = ann.call("elicit", json!({})).await.events();
        let asked = next(&mut call).await;
        // The server numbers its requests from one.
        for id in [&asked["id"], &json!(99), &json!(1)] {
            let params = json!({ "requestId": id });
            bob.have_sent(notification("notifications/cancelled", &params)).await;
        }
        let withdrawn = next(&mut call).await;
        assert_eq!(withdrawn["method"], "notifications/cancelled", "{way:?}");
        assert_eq!(withdrawn["params"]["requestId"], asked["id"], "{way:?}");
        ann.answer(&asked["id"], "Ann").await;
        ann.cancel().await;
        assert_eq!(methods(&rest(call).await), [""; 0], "{way:?}");
        assert_eq!(ann.heard(&mut [&mut bobs]).await, [[""; 0]], "{way:?}");
        assert!(!support.told().contains("accept"), "{way:?}: {}", support.told());
    }
}

/// The gateway itself answers server requests outside any call.
#[tokio::test]
async fn request_outside_a_call_is_answered_by_the_gateway() {
    for way in WAYS {
        let support = World::new(way, "outside").await;
        let ann = support.client(&support.ann, everything()).await;
        let bob = support.client(&support.bob, everything()).await;
        let (mut anns, mut bobs) = (ann.listen().await, bob.listen().await);
        let asked = ["ping", "roots/list", "elicitation/create", "sampling/createMessage"];
        for method in asked {
            bob.have_sent(json!({ "jsonrpc": "2.0", "id": method, "method": method })).await;
        }
        assert_eq!(support.answer_to("ping").await["result"], json!({}), "{way:?}");
        for method in &asked[1..] {
            let answer = support.answer_to(method).await;
            assert_eq!(answer["error"]["code"], -32601, "{way:?}: {answer}");
        }
        // Roots belong to the whole link, so the client of a call does not get this request either.
        let said = all(ann.call("roots", json!({})).await).await;
        assert_eq!(methods(&said), [""; 0], "{way:?}");
        assert!(text(&said[0]).contains("-32601"), "{way:?}: {said:?}");
        let heard = ann.heard(&mut [&mut anns, &mut bobs]).await;
        assert_eq!(heard, [[""; 0]; 2], "{way:?}");
    }
}

/// A resource update reaches its subscribers, also on the path of all servers. A list change reaches all.
#[tokio::test]
async fn update_reaches_subscribers_and_list_change_reaches_all() {
    for way in WAYS {
        let support = World::new(way, "updates").await;
        let ann = support.client(&support.ann, json!({})).await;
        let other = support.client(&support.ann, json!({})).await;
        let bob = support.client(&support.bob, json!({})).await;
        let wide = Client::new(&support.bob, support.gateway.at(""), json!({})).await;
        for client in [&ann, &wide] {
            client.subscribe().await;
        }
        let (mut anns, mut others) = (ann.listen().await, other.listen().await);
        let (mut bobs, mut wides) = (bob.listen().await, wide.listen().await);
        let mut streams = [&mut anns, &mut wides, &mut others, &mut bobs];
        // The second update comes after the end marker.
        let told: [&[&str]; 4] = [&[UPDATED], &[UPDATED], &[], &[]];
        assert_eq!(bob.heard(&mut streams).await, told, "{way:?}");
    }
}

/// A log message goes to the call that it belongs to. If that is unknown, it is dropped.
#[tokio::test]
async fn log_message_reaches_only_its_call() {
    for way in WAYS {
        let support = World::new(way, "logged").await;
        let ann = support.client(&support.ann, json!({})).await;
        let other = support.client(&support.ann, json!({})).await;
        let bob = support.client(&support.bob, json!({})).await;
        let (mut others, mut bobs) = (other.listen().await, bob.listen().await);
        let heard = async || {
            let said = all(ann.call("log", json!({})).await).await;
            methods(&said).contains(&LOGGED)
        };
        assert_eq!(heard().await, way != Way::OneStream, "{way:?}, alone");
        let slow = bob.slow().await;
        assert_eq!(heard().await, way == Way::Streams, "{way:?}, among several");
        bob.cancel().await;
        assert_eq!(methods(&rest(slow).await), [""; 0], "{way:?}");
        let outside = json!({ "level": "info", "data": "outside" });
        bob.have_sent(notification(LOGGED, &outside)).await;
        bob.have_sent(notification("notifications/of/theirs", &outside)).await;
        let heard = ann.heard(&mut [&mut others, &mut bobs]).await;
        assert_eq!(heard, [[""; 0]; 2], "{way:?}");
    }
}
