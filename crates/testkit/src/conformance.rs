//! Server that passes the official conformance suite, on the official Rust SDK.
//!
//! The suite (`@modelcontextprotocol/conformance`, see [`peers`](crate::peers)) defines the tools, prompts and
//! resources with their names. Here they are written as JSON and parsed into the types of the SDK. Tests run the suite
//! twice, against this server and against Stayput in front of it, and expect the same result.

mod asking;
mod prompts;
mod resources;
mod tasks;
mod tools;

use std::{
    collections::HashSet,
    convert::Infallible,
    io::Write,
    net::Ipv4Addr,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
        CompleteResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
        GetTaskResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
        ReadResourceResponse, ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool,
        UnsubscribeRequestParams, UpdateTaskParams,
    },
    service::{RequestContext, SubscriptionContext},
    task_manager::TaskManager,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener, sync::broadcast};

type Context = RequestContext<RoleServer>;

/// State that all sessions and all modern clients share.
struct Shared {
    tasks: TaskManager,
    /// States that were issued with `input_required`. Any other state is invalid.
    states: Mutex<HashSet<String>>,
    changes: broadcast::Sender<Change>,
    /// Number of calls of the tool `wait` that were cancelled.
    cancelled: AtomicUsize,
}

#[derive(Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

#[derive(Clone)]
struct Server(Arc<Shared>);

/// Runs `stayput-conformance-server`: `[--port N] [--exit-with-stdin]`, which prints its URL when it listens, or
/// `stdio`. Other arguments have no effect; tests find the process by them.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = arguments.iter().position(|word| word == "--port").map(|at| &arguments[at + 1]);
    let port = port.map_or(0, |port| port.parse().unwrap());
    let with_stdin = arguments.iter().any(|word| word == "--exit-with-stdin");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stdio = arguments.first().is_some_and(|word| word == "stdio");
    runtime.block_on(async {
        tokio::select! {
            () = serve_stdio(), if stdio => {}
            () = serve(port), if !stdio => {}
            () = end_of_stdin(), if with_stdin => {}
        }
    });
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

async fn end_of_stdin() {
    let mut thrown_away = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut thrown_away).await;
}

impl Server {
    fn new() -> Self {
        let (changes, _) = broadcast::channel(16);
        let states = Mutex::default();
        let cancelled = AtomicUsize::default();
        Self(Arc::new(Shared { tasks: TaskManager::new(), states, changes, cancelled }))
    }
}

async fn serve_stdio() {
    let serving = Server::new().serve(rmcp::transport::stdio()).await.unwrap();
    serving.waiting().await.unwrap();
}

/// Returns the server as an HTTP service, to be wrapped by others.
#[must_use]
pub fn service() -> StreamableHttpService<impl ServerHandler, LocalSessionManager> {
    let server = Server::new();
    let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
    let config = StreamableHttpServerConfig::default().with_allowed_origins(origins);
    let sessions = Arc::new(LocalSessionManager::default());
    StreamableHttpService::new(move || Ok(server.clone()), sessions, config)
}

async fn serve(port: u16) {
    let service = service();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    let url = format!("http://{}/mcp\n", listener.local_addr().unwrap());
    std::io::stdout().write_all(url.as_bytes()).unwrap();
    while let Ok((socket, _)) = listener.accept().await {
        // Otherwise every small answer waits for the acknowledgement of the previous one.
        let _ = socket.set_nodelay(true);
        let service = service.clone();
        tokio::spawn(async move {
            let handle = service_fn(|request| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.handle(request).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), handle).await;
        });
    }
}

/// Parses JSON into a type of the SDK.
fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Parses the result of a request. The SDK removes what legacy clients do not know.
fn complete<T: DeserializeOwned>(mut result: Value) -> T {
    result["resultType"] = "complete".into();
    read(result)
}

fn invalid(what: impl Into<std::borrow::Cow<'static, str>>) -> ErrorData {
    ErrorData::invalid_params(what, None)
}

fn is_modern(context: &Context) -> bool {
    context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28)
}

/// Returns the declared capabilities of the client as JSON.
fn capabilities(context: &Context) -> Value {
    serde_json::to_value(context.client_capabilities()).unwrap()
}

/// Refuses a method that the modern era has removed.
fn legacy_only(context: &Context, method: &'static str) -> Result<(), ErrorData> {
    if is_modern(context) {
        return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
    }
    Ok(())
}

impl Shared {
    /// Issues a state.
    fn new_state(&self) -> String {
        let state = crate::server::fresh_name();
        self.states.lock().unwrap_or_else(PoisonError::into_inner).insert(state.clone());
        state
    }

    /// Returns whether this state was issued.
    fn knows_state(&self, state: Option<&str>) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_some_and(|state| states.contains(state))
    }
}

#[allow(deprecated, reason = "the legacy era is half of what is tested")]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        read(json!({
            "protocolVersion": ProtocolVersion::LATEST_WITH_INITIALIZE,
            "capabilities": {
                "completions": {},
                "logging": {},
                "prompts": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "tools": { "listChanged": true },
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
            "serverInfo": { "name": "stayput-conformance-server", "version": "1.0.0" },
        }))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(complete(cacheable(json!({ "tools": tools::list() }))))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::list().into_iter().find(|tool| tool["name"] == name).map(read)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        tools::call(&self.0, &call, &context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(complete(cacheable(json!({ "prompts": prompts::list() }))))
    }

    async fn get_prompt(
        &self,
        ask: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&ask, &context)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(complete(cacheable(json!({ "resources": resources::list() }))))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(complete(cacheable(json!({ "resourceTemplates": resources::templates() }))))
    }

    async fn read_resource(
        &self,
        ask: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&ask.uri, is_modern(&context))
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        legacy_only(&context, "resources/subscribe")
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        legacy_only(&context, "resources/unsubscribe")
    }

    async fn set_level(
        &self,
        _: rmcp::model::SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        legacy_only(&context, "logging/setLevel")
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let values = ["paris", "park", "party"];
        Ok(complete(json!({ "completion": { "values": values, "total": 3, "hasMore": false } })))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // The sink refuses notifications without a subscription, and a disconnected client needs none.
            let _ = match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }

    async fn get_task(&self, ask: GetTaskParams, _: Context) -> Result<GetTaskResult, ErrorData> {
        self.0.tasks.get_task(&ask.task_id).map(GetTaskResult::new)
    }

    async fn update_task(&self, ask: UpdateTaskParams, _: Context) -> Result<(), ErrorData> {
        self.0.tasks.update_task(&ask.task_id, ask.input_responses)
    }

    async fn cancel_task(&self, ask: CancelTaskParams, _: Context) -> Result<(), ErrorData> {
        self.0.tasks.cancel_task(&ask.task_id)
    }
}

/// Adds the cache lifetime that the modern era requires to a list.
fn cacheable(mut list: Value) -> Value {
    list["ttlMs"] = 60_000.into();
    list["cacheScope"] = "public".into();
    list
}
