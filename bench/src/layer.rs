//! Server on the official SDK with the layer of `stayput-server`, compared with the same server without it.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Mutex},
};

use axum::{Router, serve::ListenerExt as _};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rmcp::{
    ServerHandler,
    handler::server::{tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use stayput_server::{Error, ServerSessions, State};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    places::Places,
    report::{head, line},
};

/// Number of pairs of servers. The memory layout of a process and its processor are fixed when it starts, and matter
/// more than the layer costs. So one pair says little.
const PAIRS: usize = 7;

/// Number of turns of each server of a pair. Turns are short, so that disturbances affect both.
const ROUNDS: usize = 25;

/// Number of first turns that do not count, because they warm up both servers.
const WARM: usize = 3;
const CLIENTS: usize = 32;
const CALLS: usize = 25;

/// Target for the cost of the layer.
const TARGET: f64 = 1.05;

#[derive(Clone)]
struct Bench {
    tools: Arc<ToolRouter<Self>>,
    counts: Arc<Mutex<HashMap<String, u64>>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Mine {
    chat: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[tool_router]
impl Bench {
    #[tool(description = "Says it again")]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool(description = "Counts, as everybody writes it: no owner, no expiry, no limit, no store")]
    async fn by_hand(&self, Parameters(Mine { chat }): Parameters<Mine>) -> String {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(chat).or_default();
        *count += 1;
        count.to_string()
    }

    #[tool(description = "Counts")]
    async fn count(&self, state: State) -> Result<String, Error> {
        let counted = |count: &mut u64| {
            *count += 1;
            count.to_string()
        };
        state.update("count", counted).await
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Bench {}

/// Runs the server: `bare`, or with the layer.
pub(crate) fn serve(kind: &str) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.unwrap().block_on(async {
        let counts = Arc::default();
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        let app = if kind == "bare" {
            let bench = Bench { tools: Arc::new(Bench::tool_router()), counts };
            let manager = Arc::new(LocalSessionManager::default());
            let service = StreamableHttpService::new(move || Ok(bench.clone()), manager, config);
            Router::new().route_service("/mcp", service)
        } else {
            let sessions = ServerSessions::in_memory();
            let tools = sessions.session_tools().mount(Bench::tool_router());
            let bench = Bench { tools: Arc::new(tools), counts };
            Router::new().route_service(
                "/mcp",
                sessions.http_service_with(move || Ok(bench.clone()), config),
            )
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        std::io::stdout().flush().unwrap();
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        axum::serve(listener, app).await.unwrap();
    });
    ExitCode::SUCCESS
}

/// Server as a separate process, so that its processor time can be measured separately.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(kind: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["serve", "rmcp", kind]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// Returns its processor time in nanoseconds, including that of the kernel for it: of all its threads, as counted
    /// by the scheduler, because the time in `stat` has a resolution of 10 ms.
    fn cpu(&self) -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let times = threads.filter_map(|thread| {
            // A thread may have ended since it was listed.
            let told = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            told.split(' ').next()?.parse::<u64>().ok()
        });
        times.sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connection to a server, with its constant headers.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: String,
    connection: Option<String>,
}

impl Client {
    async fn open(server: &Server, legacy: bool) -> Self {
        let stream = TcpStream::connect(&server.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut client = Self { sender, address: server.address.clone(), connection: None };
        if legacy {
            let params = json!({
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "bench", "version": "1" },
            });
            let body =
                json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
            client.connection = Some(client.send(&body, "initialize").await.1);
            let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            client.send(&body, "notifications/initialized").await;
        }
        client
    }

    async fn send(&mut self, body: &Value, method: &str) -> (Bytes, String) {
        let mut request = Request::post("/mcp")
            .header("host", &self.address)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        match &self.connection {
            Some(id) => {
                request = request.header("mcp-session-id", id);
                request = request.header("mcp-protocol-version", "2025-11-25");
            }
            None if method != "initialize" => {
                request = request.header("mcp-protocol-version", "2026-07-28");
                request = request.header("mcp-method", method);
                request =
                    request.header("mcp-name", body["params"]["name"].as_str().unwrap_or_default());
            }
            None => {}
        }
        let request = request.body(Full::new(body.to_string().into())).unwrap();
        self.sender.ready().await.unwrap();
        let answer = self.sender.send_request(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        let id = answer.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        (answer.into_body().collect().await.unwrap().to_bytes(), id.unwrap_or_default())
    }

    async fn call(&mut self, tool: &str, arguments: &Value) {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if self.connection.is_none() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
            });
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let said = self.send(&body, "tools/call").await.0;
        let failed = br#""isError":true"#;
        assert!(!said.windows(failed.len()).any(|it| it == failed), "{said:?}");
    }
}

/// Callers of one server, each with its constant arguments.
struct Callers {
    server: Server,
    clients: Vec<(Client, Value)>,
    tool: &'static str,
}

impl Callers {
    async fn open(server: Server, legacy: bool, tool: &'static str, says: &[Value]) -> Self {
        let mut clients = Vec::new();
        for says in says {
            clients.push((Client::open(&server, legacy).await, says.clone()));
        }
        Self { server, clients, tool }
    }

    /// Returns the microseconds of the server for each call.
    async fn round(&mut self) -> f64 {
        let (before, tool) = (self.server.cpu(), self.tool);
        let calls = self.clients.drain(..).map(|(mut client, says)| {
            tokio::spawn(async move {
                for _ in 0..CALLS {
                    client.call(tool, &says).await;
                }
                (client, says)
            })
        });
        let mut back = Vec::new();
        for client in calls.collect::<Vec<_>>() {
            back.push(client.await.unwrap());
        }
        self.clients = back;
        (self.server.cpu() - before) as f64 / 1e3 / (CLIENTS * CALLS) as f64
    }
}

/// Returns median, minimum and maximum.
fn spread(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [all[all.len() / 2], all[0], all[all.len() - 1]]
}

/// Cost of a call without the layer and with it, and their ratio.
type Costs = [f64; 3];

/// Measures both in turns, so that disturbances of the machine affect both: each round gives a ratio.
async fn compare(mut bare: Callers, mut layered: Callers) -> Costs {
    let mut rounds = Vec::new();
    for round in 0..WARM + ROUNDS {
        let (one, other) = if round.is_multiple_of(2) {
            let one = bare.round().await;
            (one, layered.round().await)
        } else {
            let other = layered.round().await;
            (bare.round().await, other)
        };
        if round >= WARM {
            rounds.push([one, other, other / one]);
        }
    }
    [0, 1, 2].map(|which| spread(rounds.iter().map(|it| it[which]).collect())[0])
}

/// Measurement: the tools of the bare and of the layered server, with the arguments of their clients.
struct Case<'a> {
    places: &'a Places,
    legacy: bool,
    bare: (&'static str, &'a [Value]),
    layered: (&'static str, &'a [Value]),
}

impl Case<'_> {
    /// Starts two servers and measures them. Each is the first one in every other pair.
    async fn pair(&self, nth: usize) -> Costs {
        let open = async |kind, (tool, says)| {
            let server = self.places.start(|| Server::start(kind));
            Callers::open(server, self.legacy, tool, says).await
        };
        if nth.is_multiple_of(2) {
            let bare = open("bare", self.bare).await;
            compare(bare, open("layer", self.layered).await).await
        } else {
            let layered = open("layer", self.layered).await;
            compare(open("bare", self.bare).await, layered).await
        }
    }
}

/// Runs the measurements.
pub(crate) async fn run() {
    head(&format!(
        "A server on rmcp, {CLIENTS} clients at once: processor time of the server per call, with the layer of stayput-server \
         and without. {PAIRS} times both are started and measured in {ROUNDS} turns: the middle of the pairs, the least and the most"
    ));
    let places = Places::take();
    let all = |make: &dyn Fn(usize) -> Value| (0..CLIENTS).map(make).collect::<Vec<Value>>();
    let text = all(&|_| json!({ "text": "what was said before" }));
    let chat = all(&|n| json!({ "chat": format!("chat-{n}-{}", "x".repeat(24)) }));
    let key = all(&|n| json!({ "session_id": format!("key:chat-{n}-{}", "x".repeat(24)) }));
    let none = all(&|_| json!({}));
    for (legacy, era) in [(false, "2026-07-28"), (true, "2025-11-25")] {
        let named = if legacy { &none } else { &key };
        for (what, [by, tool], [given, says], target) in [
            ("a tool that keeps nothing", ["echo", "echo"], [&text, &text], true),
            ("one that counts, beside a map by hand", ["by_hand", "count"], [&chat, named], false),
        ] {
            let places = &places;
            let case = Case { places, legacy, bare: (by, given), layered: (tool, says) };
            let mut pairs = Vec::new();
            for nth in 0..PAIRS {
                pairs.push(case.pair(nth).await);
            }
            let [[without, ..], [with, ..], [ratio, low, high]] =
                [0, 1, 2].map(|which| spread(pairs.iter().map(|it| it[which]).collect()));
            let met = target.then_some(("≤ 1.05", ratio <= TARGET));
            line(&format!("{era}, {what}"), &format!("{with:.1} / {without:.1} µs"), None);
            line("  ratio", &format!("{ratio:.3} ({low:.3}–{high:.3})"), met);
        }
    }
}
