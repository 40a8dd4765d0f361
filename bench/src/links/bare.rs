//! Hand-written minimal client. Over pipes: callers write under a lock, a table maps ids to waiting callers, and one
//! task reads and distributes the answers. Over HTTP: one POST for each call, on persistent connections.
//!
//! Many callers can call concurrently, each from its own task, and each gets its own answer, as with the other
//! clients. A single loop that writes and reads has no callers, and so measures another job. Beyond that there is
//! nothing: no limits, no timeouts, no cancellation, no loss, no server requests; any error ends the program.

use std::{
    collections::HashMap,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::oneshot,
};

use super::load::{Load, Tool, at_once};
use crate::server::counter;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bare","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Required members of an answer.
#[derive(Deserialize)]
struct Reply<'a> {
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

fn request(id: u64, tool: Tool) -> String {
    let params = tool.params();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

/// Returns an owned answer.
fn keep(line: &[u8]) -> (u64, Box<RawValue>) {
    let reply: Reply<'_> = serde_json::from_slice(line).unwrap();
    (reply.id, reply.result.to_owned())
}

fn look(tool: Tool, result: &RawValue) {
    assert!(tool.fits(result.get().len()), "not the answer of this tool");
}

/// Waiting callers by id.
type Callers = Mutex<HashMap<u64, oneshot::Sender<Box<RawValue>>>>;

/// Child and its pipes. Callers write; one task reads.
pub(super) struct Pipes {
    _child: Child,
    stdin: tokio::sync::Mutex<ChildStdin>,
    callers: Arc<Callers>,
    next: AtomicU64,
}

impl Pipes {
    /// Starts a process without sending a message.
    pub(super) fn start() -> Self {
        let mut command = Command::new(counter());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let callers = Arc::<Callers>::default();
        tokio::spawn(read(stdout, callers.clone()));
        let stdin = tokio::sync::Mutex::new(stdin);
        Self { _child: child, stdin, callers, next: AtomicU64::new(1) }
    }

    pub(super) async fn greet(&self) {
        let greeted = self.wait_for(0);
        self.write(INITIALIZE.to_owned()).await;
        greeted.await.unwrap();
        self.write(INITIALIZED.to_owned()).await;
    }

    fn wait_for(&self, id: u64) -> oneshot::Receiver<Box<RawValue>> {
        let (give, get) = oneshot::channel();
        self.callers.lock().unwrap().insert(id, give);
        get
    }

    async fn write(&self, mut text: String) {
        text.push('\n');
        self.stdin.lock().await.write_all(text.as_bytes()).await.unwrap();
    }

    pub(super) async fn call(&self, tool: Tool) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = self.wait_for(id);
        self.write(request(id, tool)).await;
        look(tool, &answer.await.unwrap());
    }

    pub(super) async fn run(self: &Arc<Self>, load: Load) {
        at_once(load.at_once, || {
            let pipes = self.clone();
            async move {
                for _ in 0..load.each {
                    pipes.call(load.tool).await;
                }
            }
        })
        .await;
    }
}

/// Distributes answers until the output ends.
async fn read(stdout: ChildStdout, callers: Arc<Callers>) {
    // As large as the read buffer of links, which all links of a thread share.
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    let mut line = Vec::new();
    while stdout.read_until(b'\n', &mut line).await.unwrap() > 0 {
        let (id, result) = keep(&line);
        let caller = callers.lock().unwrap().remove(&id).unwrap();
        let _ = caller.send(result);
        line.clear();
    }
}

/// HTTP client with persistent connections.
#[derive(Clone)]
pub(super) struct Posts {
    client: Client<HttpConnector, Full<Bytes>>,
    url: http::Uri,
    session: Option<HeaderValue>,
}

impl Posts {
    pub(super) async fn open(url: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(32)
            .build(connector);
        let mut posts = Self { client, url: url.parse().unwrap(), session: None };
        let (session, _) = posts.post(INITIALIZE.to_owned()).await;
        posts.session = session;
        posts.post(INITIALIZED.to_owned()).await;
        posts
    }

    async fn post(&self, text: String) -> (Option<HeaderValue>, Bytes) {
        let mut request = Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        let request = request.body(Full::from(text)).unwrap();
        let answer = self.client.request(request).await.unwrap();
        let session = answer.headers().get("mcp-session-id").cloned();
        (session, answer.into_body().collect().await.unwrap().to_bytes())
    }

    pub(super) async fn run(&self, load: Load) {
        at_once(load.at_once, || {
            let posts = self.clone();
            async move {
                for n in 1..=load.each as u64 {
                    let (_, body) = posts.post(request(n, load.tool)).await;
                    let (id, result) = keep(&body);
                    assert_eq!(id, n);
                    look(load.tool, &result);
                }
            }
        })
        .await;
    }
}
