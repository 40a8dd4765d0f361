//! Clients of 2026-07-28 on every SDK, in two concurrent conversations: each conversation has its own browser and
//! memory, whichever name source is used.

use serde_json::{Value, json};
use stayput_testkit::{
    peers::{self, Peer},
    processes::with_token,
    program,
};
use tempfile::TempDir;

use crate::{driven::Driven, recipe, support::Gateway};

/// Names of the conversations.
const CHATS: [&str; 2] = ["ann", "ben"];

/// Name source of a conversation in a call.
#[derive(Clone, Copy, Debug)]
enum By {
    Handle,
    Header,
    Hint,
}

/// Gateway with a browser and a memory server, by their recipes.
struct World {
    gateway: Gateway,
    _temporary: TempDir,
}

impl World {
    async fn new() -> Self {
        let temporary = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
        let (browser, entry) = recipe::browser(temporary.path());
        let (memory, remembering) = recipe::read("server-memory");
        assert_eq!((&*browser, &*memory), ("browser", "memory"));
        let servers = json!({ "browser": entry, "memory": remembering });
        Self { gateway: Gateway::start(servers).await, _temporary: temporary }
    }

    /// Counts the processes of this gateway that run the file.
    fn started(&self, file: &str) -> usize {
        let own = with_token(self.gateway.sessions().to_str().unwrap());
        let runs = |pid: &&u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = command.split(|byte| *byte == 0);
            words.nth(1).is_some_and(|word| word.ends_with(file.as_bytes()))
        };
        own.iter().filter(runs).count()
    }
}

/// Client of one SDK with two conversations for each name source.
struct Chatting {
    name: &'static str,
    client: Driven,
    /// Handles from `session_start`, one per conversation.
    handles: Vec<Value>,
}

impl Chatting {
    async fn new(support: &World, (name, peer): (&'static str, Peer)) -> Self {
        let mut client = Driven::start(&peer, &[&support.gateway.at(""), "auto"]);
        assert_eq!(client.open("plain").await, "2026-07-28", "{name}");
        for chat in CHATS {
            let headers = json!({ "stayput-session": format!("key:{chat}") });
            assert_eq!(client.open_with(chat, headers).await, "2026-07-28", "{name}");
        }
        Self { name, client, handles: Vec::new() }
    }

    /// Requests the handles of the named conversations.
    async fn start(&mut self) {
        for chat in CHATS {
            let name = json!({ "name": chat });
            let started = self.client.call_with("plain", "session_start", name, Value::Null).await;
            self.handles.push(started["structuredContent"]["session_id"].clone());
        }
    }

    /// Returns the text of a tool in a conversation.
    async fn say(&mut self, chat: usize, by: By, (tool, mut arguments): (&str, Value)) -> String {
        let (connection, meta) = match by {
            By::Handle => {
                arguments["session_id"] = self.handles[chat].clone();
                ("plain", Value::Null)
            }
            By::Header => (CHATS[chat], Value::Null),
            By::Hint => ("plain", json!({ "vscode.conversationId": CHATS[chat] })),
        };
        let result = self.client.call_with(connection, tool, arguments, meta).await;
        assert_ne!(result["isError"], true, "{} {by:?} {tool}: {result}", self.name);
        let content = result["content"].as_array().unwrap();
        let texts: Vec<_> = content.iter().filter_map(|it| it["text"].as_str()).collect();
        texts.join("\n")
    }

    /// Opens a page and stores a person in each conversation by one name source, and reads both by the other. The
    /// entries of the earlier clients are there, too.
    async fn chat(&mut self, (one, other): (By, By), known: &mut [Vec<String>; 2]) {
        let name = self.name;
        for (chat, who) in CHATS.into_iter().enumerate() {
            let url = format!("data:text/html,<h1>{who} {name}</h1>");
            self.say(chat, one, ("browser__browser_navigate", json!({ "url": url }))).await;
            let person = format!("{who} of {name}");
            let entity = json!({ "name": person, "entityType": "person", "observations": [] });
            let entities = json!({ "entities": [entity] });
            self.say(chat, one, ("memory__create_entities", entities)).await;
            known[chat].push(person);
        }
        for (chat, who) in CHATS.into_iter().enumerate() {
            let seen = self.say(chat, other, ("browser__browser_snapshot", json!({}))).await;
            assert!(seen.contains(&format!("heading \"{who} {name}\"")), "{name}: {seen}");
            let graph = self.say(chat, other, ("memory__read_graph", json!({}))).await;
            let graph: Value = serde_json::from_str(&graph).unwrap();
            let all = graph["entities"].as_array().unwrap().iter();
            let all: Vec<_> = all.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
            assert_eq!(all, known[chat], "{name}");
        }
    }
}

/// Starts a client on each SDK.
async fn clients(support: &World) -> Vec<Chatting> {
    // The program may have to be built first.
    let rust = tokio::task::spawn_blocking(|| program("stayput-sdk-client")).await.unwrap();
    let peers = [
        ("python", peers::client("python_sdk.py")),
        ("fastmcp", peers::client("fastmcp_client.py")),
        ("typescript", peers::client("typescript2.mjs")),
        ("rust", Peer { program: rust, args: Vec::new(), env: Vec::new() }),
    ];
    let clients = peers.into_iter().map(|peer| Chatting::new(support, peer));
    futures_util::future::join_all(clients).await
}

/// Runs all clients by turns in the same two conversations.
async fn all_chat(support: &World, ways: (By, By)) {
    let mut known = [Vec::new(), Vec::new()];
    for mut client in clients(support).await {
        if matches!(ways.0, By::Handle) {
            client.start().await;
        }
        client.chat(ways, &mut known).await;
    }
    assert_eq!(known[0].len(), 4);
    // No other process was started, or it has ended.
    for file in ["@playwright/mcp/cli.js", "server-memory/dist/index.js"] {
        assert_eq!(support.started(file), 2, "{file}");
    }
}

/// R146, R148, design §4.5: a handle and a header lead to the same session, whichever SDK sends them.
#[tokio::test]
async fn conversations_of_every_sdk_are_isolated_by_handle_and_header() {
    if !peers::are_left_out() {
        all_chat(&World::new().await, (By::Handle, By::Header)).await;
    }
}

/// R168: the ids that hosts send identify conversations, too.
#[tokio::test]
async fn conversations_of_every_sdk_are_isolated_by_hint() {
    if !peers::are_left_out() {
        all_chat(&World::new().await, (By::Hint, By::Hint)).await;
    }
}
