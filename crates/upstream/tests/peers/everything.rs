//! `server-everything`, the reference server, on each of its transports.

use serde_json::{Value, json};
use stayput_testkit::peers;
use stayput_upstream::{EraChoice, Http, Incoming, Link, Links, Listener, Server, TransportConfig};
use stayput_wire::Era;
use tokio::time::timeout;

use crate::{
    kit::{Token, Way, ask, everything, kept, open, talk, tool},
    listening::Listening,
    support::{LONG, close, place, until},
};

/// Server on one transport, and the objects that keep it running.
struct Reached {
    name: &'static str,
    server: Server,
    token: Token,
    http: Option<Listening>,
}

impl Reached {
    fn stdio() -> Self {
        let token = Token::new();
        let stdio = token.stdio(&peers::everything(), &["stdio"]);
        let server = kept("everything", stdio, EraChoice::Auto);
        Self { name: "stdio", server, token, http: None }
    }

    async fn streamable() -> Self {
        let http = Listening::everything(peers::everything(), "streamableHttp", "/mcp").await;
        let server = kept("everything", Http::new(http.url()), EraChoice::Auto);
        Self { name: "streamable", server, token: Token::new(), http: Some(http) }
    }

    async fn sse() -> Self {
        let http = Listening::everything(peers::everything(), "sse", "/sse").await;
        // The old transport is not configured, so it has to be detected.
        let server = kept("everything", Http::new(http.url()), EraChoice::Auto);
        Self { name: "sse", server, token: Token::new(), http: Some(http) }
    }

    /// Returns the numbers of begun and ended sessions, as far as the server prints them.
    fn sessions(&self) -> (usize, usize) {
        let Some(http) = &self.http else { return (0, 0) };
        match self.name {
            "sse" => (http.count("Client Connected"), http.count("Client Disconnected")),
            _ => (
                http.count("Session initialized"),
                http.count("Received session termination request"),
            ),
        }
    }

    /// Listens, and returns when the server's stream is open.
    async fn listen(&self, link: &Link) -> Listener {
        let opened = |http: &Listening| http.count("Establishing new SSE stream");
        let before = self.http.as_ref().map_or(0, opened);
        let listener = link.listen("{}", everything()).await.unwrap();
        if self.name == "streamable" {
            until("a stream", || self.http.as_ref().map_or(0, opened) > before).await;
        }
        listener
    }
}

/// Waits for a notification, and answers server requests with `roots` meanwhile.
async fn heard(listener: &mut Listener, method: &str, roots: &Value) -> Value {
    loop {
        match timeout(LONG, listener.next()).await.unwrap().unwrap() {
            Incoming::Request(asked) => asked.reply(&roots.to_string()),
            Incoming::Notification(text) => {
                let told: Value = serde_json::from_slice(&text).unwrap();
                if told["method"] == method {
                    return told;
                }
            }
            other => panic!("{method}: {other:?}"),
        }
    }
}

/// Checks lists, calls, and long calls with progress.
async fn lists_echoes_and_reports(reached: &Reached, links: &Links) {
    let link = open(links, &reached.server, &place()).await;
    assert_eq!(link.initialize_result().era(), Era::Legacy);
    let tools = ask(&link, "tools/list", &json!({})).await;
    let names = tools["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap());
    assert!(names.clone().any(|name| name == "trigger-sampling-request"), "{tools}");
    let echo = tool(&link, "echo", &json!({ "message": "grüß dich" })).await;
    assert!(echo.contains("grüß dich"), "{echo}");

    let long = json!({
        "name": "trigger-long-running-operation",
        "arguments": { "duration": 0.5, "steps": 5 },
        "_meta": { "progressToken": "so far" },
    });
    let talk = talk(&link, &long, &Value::Null).await;
    assert!(talk.text.contains("completed"), "{talk:?}");
    let progress = talk.told.iter().filter(|it| it["method"] == "notifications/progress");
    let progress: Vec<&Value> = progress.collect();
    assert!(progress.iter().all(|it| it["params"]["progressToken"] == "so far"), "{progress:?}");
    let steps: Vec<u64> =
        progress.iter().map(|it| it["params"]["progress"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5]);
}

/// A server request during a call comes with the call.
async fn asks_and_is_answered(reached: &Reached, links: &Links) {
    let link = open(links, &reached.server, &place()).await;
    let sampling = json!({ "name": "trigger-sampling-request", "arguments": { "prompt": "hm" } });
    let thought = json!({
        "role": "assistant", "model": "none", "content": { "type": "text", "text": "a thought" },
    });
    let talked = talk(&link, &sampling, &thought).await;
    assert!(talked.asked.contains(&"sampling/createMessage".to_owned()), "{talked:?}");
    assert!(talked.text.contains("a thought"), "{talked:?}");

    let elicitation = json!({ "name": "trigger-elicitation-request", "arguments": {} });
    let content = json!({ "action": "accept", "content": { "name": "Ann" } });
    let talked = talk(&link, &elicitation, &content).await;
    assert!(talked.asked.contains(&"elicitation/create".to_owned()), "{talked:?}");
    assert!(talked.text.contains("Name: Ann"), "{talked:?}");
}

/// The server requests roots outside any call, over HTTP on the stream of a listener.
async fn asks_for_roots(reached: &Reached, links: &Links) {
    let link = open(links, &reached.server, &place()).await;
    let roots = json!({ "roots": [{ "uri": "file:///work", "name": "work" }] });
    let mut listener = reached.listen(&link).await;
    let call = json!({ "name": "get-roots-list", "arguments": {} });
    let talked = tokio::select! {
        talked = talk(&link, &call, &roots) => talked,
        told = heard(&mut listener, "never", &roots) => panic!("{told}"),
    };
    assert!(talked.text.contains("file:///work"), "{}: {talked:?}", reached.name);
}

/// A listener gets updates of its subscriptions and log messages.
async fn tells_who_listens(reached: &Reached, links: &Links) {
    let link = open(links, &reached.server, &place()).await;
    let roots = json!({ "roots": [] });
    let mut listener = reached.listen(&link).await;
    ask(&link, "logging/setLevel", &json!({ "level": "debug" })).await;
    let uri = "demo://resource/dynamic/text/1";
    ask(&link, "resources/subscribe", &json!({ "uri": uri })).await;
    tool(&link, "toggle-subscriber-updates", &json!({})).await;
    let updated = heard(&mut listener, "notifications/resources/updated", &roots).await;
    assert_eq!(updated["params"]["uri"], uri);
    tool(&link, "toggle-simulated-logging", &json!({})).await;
    let logged = heard(&mut listener, "notifications/message", &roots).await;
    assert!(logged["params"]["level"].is_string(), "{logged}");
}

/// Two concurrent sessions each have their own switch, which keeps its state.
async fn keeps_sessions_apart(reached: &Reached, links: &Links) {
    let (ann, ben) = (place(), place());
    let mut said = Vec::new();
    for place in [&ann, &ben, &ann, &ann, &ben] {
        let link = open(links, &reached.server, place).await;
        let text = tool(&link, "toggle-subscriber-updates", &json!({})).await;
        said.push(text.split(' ').next().unwrap().to_owned());
    }
    let name = reached.name;
    assert_eq!(said, ["Started", "Started", "Stopped", "Started", "Stopped"], "{name}");
    if reached.http.is_none() {
        assert_eq!(reached.token.tree().len(), 2);
    }
    for place in [ann, ben] {
        assert!(links.end(place.session).await.is_empty());
    }
    assert_eq!(reached.token.tree(), [0_u32; 0]);
    // The probe and the two sessions.
    let sessions = if reached.http.is_some() { 3 } else { 0 };
    until("the end of its sessions", || reached.sessions() == (sessions, sessions)).await;
}

async fn all(reached: Reached) {
    let links = Way::Local.links();
    keeps_sessions_apart(&reached, &links).await;
    tokio::join!(
        lists_echoes_and_reports(&reached, &links),
        asks_and_is_answered(&reached, &links),
        asks_for_roots(&reached, &links),
        tells_who_listens(&reached, &links),
    );
    close(&links).await;
    assert_eq!(reached.token.tree(), [0_u32; 0]);
}

/// R013, R016, R102.
#[tokio::test]
async fn everything_works_over_stdio() {
    if !peers::are_left_out() {
        all(Reached::stdio()).await;
    }
}

/// R013, R016, R102, R103.
#[tokio::test]
async fn everything_works_over_streamable_http() {
    if !peers::are_left_out() {
        all(Reached::streamable().await).await;
    }
}

/// Covers the transport of 2024-11-05, both detected and configured.
#[tokio::test]
async fn everything_works_over_sse() {
    if peers::are_left_out() {
        return;
    }
    let mut reached = Reached::sse().await;
    let links = Way::Local.links();
    lists_echoes_and_reports(&reached, &links).await;
    close(&links).await;
    // Otherwise the sessions of the first part would be counted.
    reached.http = Some(Listening::everything(peers::everything(), "sse", "/sse").await);
    let url = reached.http.as_ref().unwrap().url();
    reached.server = kept("everything", TransportConfig::Sse(Http::new(url)), EraChoice::Auto);
    all(reached).await;
}
