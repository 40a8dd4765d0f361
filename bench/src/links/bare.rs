//! What somebody writes who needs no more than this: one loop over two pipes, one POST for each call.
//! No limits, no timeouts, no cancellation, no loss; whatever goes wrong ends the program.

use std::{collections::HashMap, process::Stdio};

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
};

use super::load::{Load, Tool, at_once};
use crate::server::program;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bare","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// As much of an answer as has to be read.
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

/// The answer, as something that its caller can keep.
fn keep(tool: Tool, line: &[u8]) -> (u64, Box<RawValue>) {
    let reply: Reply<'_> = serde_json::from_slice(line).unwrap();
    assert!(tool.fits(reply.result.get().len()), "not the answer of this tool");
    (reply.id, reply.result.to_owned())
}

/// A child and its pipes.
pub(super) struct Pipes {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    next: u64,
}

impl Pipes {
    /// A process that nothing was said to.
    pub(super) fn start() -> Self {
        let mut command = Command::new(program());
        command.args(["serve", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        // As large as what a link reads into, which all links of a thread share.
        let stdout = BufReader::with_capacity(64 << 10, stdout);
        Self { _child: child, stdin, stdout, line: Vec::new(), next: 1 }
    }

    pub(super) async fn greet(&mut self) {
        self.write(INITIALIZE.to_owned()).await;
        self.read().await;
        self.write(INITIALIZED.to_owned()).await;
    }

    async fn write(&mut self, mut text: String) {
        text.push('\n');
        self.stdin.write_all(text.as_bytes()).await.unwrap();
    }

    async fn read(&mut self) {
        self.line.clear();
        self.stdout.read_until(b'\n', &mut self.line).await.unwrap();
    }

    pub(super) async fn call(&mut self, tool: Tool) {
        self.run(Load { tool, at_once: 1, each: 1 }).await;
    }

    /// In a task, as every other client.
    pub(super) async fn spawned(mut self, load: Load) -> Self {
        let task = tokio::spawn(async move {
            self.run(load).await;
            self
        });
        task.await.unwrap()
    }

    /// One loop for all that are in flight, which it knows by their ids.
    async fn run(&mut self, load: Load) {
        let (mut left, mut callers) = (load.calls(), HashMap::new());
        for caller in 0..load.at_once {
            self.ask(load.tool, caller, &mut callers).await;
        }
        while left > 0 {
            self.read().await;
            let (id, result) = keep(load.tool, &self.line);
            let caller = callers.remove(&id).unwrap();
            left -= 1;
            if left >= load.at_once {
                self.ask(load.tool, caller, &mut callers).await;
            }
            drop(result);
        }
    }

    async fn ask(&mut self, tool: Tool, caller: usize, callers: &mut HashMap<u64, usize>) {
        let id = self.next;
        self.next += 1;
        callers.insert(id, caller);
        self.write(request(id, tool)).await;
    }
}

/// A client of HTTP with connections that it keeps.
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
                    let (id, result) = keep(load.tool, &body);
                    assert_eq!(id, n);
                    drop(result);
                }
            }
        })
        .await;
    }
}
