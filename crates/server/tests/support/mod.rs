//! Shared test support: a server with state, and HTTP clients.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod examples;

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::get, serve::ListenerExt as _};
use http::Method;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::{tool::ToolRouter, wrapper::Parameters},
    model::{
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use serde_json::{Value, json};
use stayput_core::{ManualClock, MemoryEventLog, MemoryStore, Timestamp};
use stayput_server::{Builder, Error, MaybeState, Owner, ServerSessions, State};
use stayput_testkit::mcp::{Answer, send};
use tokio::{net::TcpListener, sync::Notify, time::timeout};

#[allow(unused_imports, reason = "each test uses a part of it")]
pub(crate) use examples::{Example, example, round_robin};

/// Time limit of any step, long enough for a slow machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// MCP server with state.
#[derive(Clone)]
pub(crate) struct Counter {
    tools: Arc<ToolRouter<Self>>,
    /// Lets a slow call continue.
    pub(crate) go: Arc<Notify>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct By {
    by: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct Does {
    what: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Own {
    session_id: String,
}

#[tool_router]
impl Counter {
    #[tool(description = "Adds to the count")]
    async fn count(
        &self,
        Parameters(By { by }): Parameters<By>,
        state: State,
    ) -> Result<String, Error> {
        let added = |count: &mut u64| {
            *count += by;
            count.to_string()
        };
        state.update("count", added).await
    }

    #[tool(description = "Reads the count")]
    async fn read(&self, state: State) -> Result<String, ErrorData> {
        Ok(state.get::<u64>("count").await?.unwrap_or_default().to_string())
    }

    #[tool(description = "Reads the count if there is a session")]
    async fn peek(&self, MaybeState(state): MaybeState) -> Result<String, Error> {
        let Some(state) = state else { return Ok("none".into()) };
        Ok(state.get::<u64>("count").await?.unwrap_or_default().to_string())
    }

    #[tool(description = "Counts after a signal")]
    async fn slow(
        &self,
        state: State,
        context: RequestContext<RoleServer>,
    ) -> Result<String, Error> {
        state.get::<u64>("count").await?;
        let token = rmcp::model::ProgressToken(rmcp::model::NumberOrString::Number(7));
        let progress = rmcp::model::ProgressNotificationParam::new(token, 1.0);
        let _ = context.peer.notify_progress(progress).await;
        self.go.notified().await;
        state
            .update("count", |count: &mut u64| {
                *count += 1;
                count.to_string()
            })
            .await
    }

    #[tool(description = "Uses the state of the task")]
    async fn ambient(&self) -> Result<String, Error> {
        let state = State::current().ok_or(Error::LayerMissing)?;
        state
            .update("count", |count: &mut u64| {
                *count += 1;
                count.to_string()
            })
            .await
    }

    #[tool(description = "Reports whether the task has a state, without async")]
    fn at_once(&self) -> String {
        State::current().is_some().to_string()
    }

    #[tool(description = "Stores a large value")]
    async fn big(&self, state: State) -> Result<String, Error> {
        state.set("big", &"x".repeat(1 << 20)).await?;
        Ok("kept".into())
    }

    #[tool(description = "Does one thing with the state")]
    async fn does(
        &self,
        Parameters(Does { what }): Parameters<Does>,
        state: State,
    ) -> Result<String, Error> {
        match what.as_str() {
            "get" => Ok(format!("{:?}", state.get::<u64>("count").await?)),
            "set" => state.set("count", &7).await.map(|()| "set".into()),
            "remove" => state.remove("count").await.map(|()| "removed".into()),
            "keys" => Ok(state.keys().await?.iter().map(|it| it.key.as_str()).collect()),
            "info" => Ok(state.info().await?.session.to_string()),
            "handle" => Ok(state.issue_handle().await?.expose().to_owned()),
            _ => state.end().await.map(|()| "ended".into()),
        }
    }

    #[tool(description = "Uses no state")]
    async fn plain(&self) -> String {
        "plain".into()
    }

    #[tool(description = "Has its own session_id")]
    async fn own(&self, Parameters(Own { session_id }): Parameters<Own>) -> String {
        session_id
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Counter {
    async fn read_resource(
        &self,
        ask: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let count = State::from_context(&context)?.get::<u64>("count").await?.unwrap_or_default();
        Ok(ReadResourceResult::new(vec![ResourceContents::text(count.to_string(), ask.uri)]).into())
    }
}

impl Counter {
    pub(crate) fn new(sessions: &ServerSessions) -> Self {
        let tools = sessions.session_tools().all_session_tools().mount(Self::tool_router());
        Self { tools: Arc::new(tools), go: Arc::default() }
    }
}

/// Returns a builder whose owner is the value of the header `x-user`.
pub(crate) fn builder() -> Builder {
    ServerSessions::builder().owner(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        user.map_or_else(Owner::anonymous, |user| Owner::verified("test", user).unwrap())
    })
}

/// HTTP server in this process.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) sessions: ServerSessions,
    pub(crate) counter: Counter,
}

impl TestServer {
    pub(crate) async fn start(sessions: ServerSessions) -> Self {
        let counter = Counter::new(&sessions);
        let handler = counter.clone();
        let count = |state: State| async move {
            state
                .update("count", |count: &mut u64| {
                    *count += 1;
                    count.to_string()
                })
                .await
        };
        let peek = |state: Option<State>| async move { state.is_some().to_string() };
        let page = Router::new().route("/count", get(count)).route("/peek", get(peek));
        let app = Router::new()
            .route_service("/mcp", sessions.http_service(move || Ok(handler.clone())))
            .merge(page.layer(sessions.layer()));
        let url = listen(app).await;
        Self { url, sessions, counter }
    }

    pub(crate) fn modern(&self) -> Client {
        Client::modern(&self.url)
    }

    pub(crate) async fn legacy(&self) -> Client {
        Client::modern(&self.url).initialize().await
    }
}

/// Serves on a free port. Returns the URL.
pub(crate) async fn listen(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    tokio::runtime::Handle::current().spawn(async move { axum::serve(listener, app).await });
    url
}

/// Starts a server with a manual clock, and returns the store, too.
pub(crate) async fn start_with_manual_clock(
    with: impl FnOnce(Builder) -> Builder,
) -> (TestServer, Arc<ManualClock>, Arc<MemoryStore>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let sessions = with(builder().clock(clock.clone()))
        .with_store(store.clone(), Arc::new(MemoryEventLog::new()));
    (TestServer::start(sessions).await, clock, store)
}

/// HTTP client with fixed headers.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) urls: Vec<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) connection: Option<String>,
    pub(crate) next: usize,
}

impl Client {
    pub(crate) fn modern(url: &str) -> Self {
        Self { urls: vec![url.to_owned()], headers: Vec::new(), connection: None, next: 0 }
    }

    /// Sends requests to several servers in turn.
    pub(crate) fn between(urls: &[&str]) -> Self {
        Self { urls: urls.iter().map(|url| (*url).to_owned()).collect(), ..Self::modern("") }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn send(&mut self, method: Method, body: &Value) -> Answer {
        self.next += 1;
        let url = &self.urls[self.next % self.urls.len()];
        let mut headers = vec![("accept", "application/json, text/event-stream")];
        if method == Method::POST {
            headers.push(("content-type", "application/json"));
        }
        let mcp = body["method"].as_str().unwrap_or_default();
        let name = body["params"]["name"].as_str().or(body["params"]["uri"].as_str());
        match &self.connection {
            Some(id) => {
                headers.push(("mcp-session-id", id));
                headers.push(("mcp-protocol-version", "2025-11-25"));
            }
            None if mcp != "initialize" => {
                headers.push(("mcp-protocol-version", "2026-07-28"));
                headers.push(("mcp-method", mcp));
                if let Some(name) = name {
                    headers.push(("mcp-name", name));
                }
            }
            None => {}
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let body = if method == Method::POST { body.to_string() } else { String::new() };
        let sent = send(method, url, &headers, body);
        timeout(TEST_TIMEOUT, sent).await.expect("an answer in time").unwrap()
    }

    fn body(&self, method: &str, mut params: Value) -> Value {
        if self.connection.is_none() && method != "initialize" {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
        }
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
    }

    /// Sends a request and returns the HTTP response.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Answer {
        let body = self.body(method, params);
        self.send(Method::POST, &body).await
    }

    /// Sends a request and returns the JSON-RPC response.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        let status = answer.status;
        if status != 200 {
            panic!("{status}: {:?}", answer.bytes().await);
        }
        timeout(TEST_TIMEOUT, answer.message()).await.expect("a message in time")
    }

    /// Calls a tool and returns its result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let response =
            self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        assert!(response["error"].is_null(), "{response}");
        response["result"].clone()
    }

    /// Calls a tool and returns its text. The result must not be an error.
    pub(crate) async fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        assert_ne!(result["isError"], true, "{result}");
        result_text(&result)
    }

    /// Calls a tool and returns its error text.
    pub(crate) async fn error(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        result_text(&result)
    }

    /// Initializes the client as a legacy client.
    pub(crate) async fn initialize(mut self) -> Self {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = self.ask("initialize", params).await;
        assert_eq!(answer.status, 200);
        self.connection = Some(answer.header("mcp-session-id").to_owned());
        answer.message().await;
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.send(Method::POST, &body).await.status, 202);
        self
    }

    /// Starts a session and returns its handle.
    pub(crate) async fn start(&mut self) -> String {
        let result = self.call("session_start", json!({})).await;
        result["structuredContent"]["session_id"].as_str().unwrap().to_owned()
    }
}

/// Returns the first text of a result.
pub(crate) fn result_text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Returns the handle that a text contains.
pub(crate) fn handle_in(sentence: &str) -> String {
    let at = sentence.find("sp_").unwrap_or_else(|| panic!("{sentence}"));
    sentence[at..at + 35].to_owned()
}

/// Waits until the condition is true.
pub(crate) async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    stayput_testkit::until_some(what, async || holds().await.then_some(())).await;
}
