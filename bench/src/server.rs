//! Counter over HTTP, and the path of the one over stdio.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::{BufRead, BufReader, stdin},
    net::Ipv4Addr,
    process::{Child, Command, ExitCode, Stdio},
    sync::Mutex,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use stayput_wire::Message;
use tokio::net::TcpListener;

use crate::counter::answer;

/// Path of a counter with a long list of tools.
pub(crate) const LONG_LIST_PATH: &str = "/long-list";
/// Bytes of that list.
pub(crate) const LONG_LIST: usize = 3 << 20;

/// Duration of `wait` over HTTP.
const WAIT: Duration = Duration::from_secs(1);

/// Prints its URL, on any free port if `port` is 0, and serves until its input ends.
pub(crate) fn http(port: u16) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut stdin(), &mut std::io::sink());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
    });
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        println!("http://{}/mcp", listener.local_addr().unwrap());
        while let Ok((socket, _)) = listener.accept().await {
            let _ = socket.set_nodelay(true);
            let served =
                http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(route));
            tokio::spawn(served);
        }
    });
    ExitCode::SUCCESS
}

/// Counters of all sessions. An unknown session, which belongs to an earlier process, starts anew.
static COUNTED: Mutex<Option<HashMap<Bytes, u64>>> = Mutex::new(None);

fn count(session: Bytes) -> u64 {
    let mut counted = COUNTED.lock().unwrap();
    let counted = counted.get_or_insert_default().entry(session).or_default();
    *counted += 1;
    *counted
}

async fn route(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let session = head.headers.get("mcp-session-id");
    let session = session.map(|id| Bytes::copy_from_slice(id.as_bytes())).unwrap_or_default();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut reply = Response::new(Full::default());
    match head.method {
        Method::POST => {
            let message = Message::parse(&body).unwrap();
            let tool = message.params().and_then(|params| params.find(&["name"])?.text());
            if tool.as_deref() == Some("wait") {
                tokio::time::sleep(WAIT).await;
            }
            if message.method() == Some("initialize") {
                reply.headers_mut().insert("mcp-session-id", new_session());
            }
            let is_long_list =
                head.uri.path() == LONG_LIST_PATH && message.method() == Some("tools/list");
            let answered = match is_long_list {
                true => message.id().map(|id| long_list(id.as_str())),
                false => answer(&message, || count(session)),
            };
            match answered {
                Some(answer) => {
                    let json = http::HeaderValue::from_static("application/json");
                    reply.headers_mut().insert(CONTENT_TYPE, json);
                    *reply.body_mut() = Full::from(answer);
                }
                None => *reply.status_mut() = StatusCode::ACCEPTED,
            }
        }
        Method::DELETE => {
            COUNTED.lock().unwrap().get_or_insert_default().remove(&session);
        }
        // The counter sends nothing outside of calls.
        _ => *reply.status_mut() = StatusCode::METHOD_NOT_ALLOWED,
    }
    Ok(reply)
}

/// Returns the answer to `tools/list` with a list of `LONG_LIST` bytes.
fn long_list(id: &str) -> String {
    let description = "a sentence of a description ".repeat(35);
    let tool = |number: usize| {
        format!(
            r#"{{"name":"tool{number}","description":"{description}","inputSchema":{{"type":"object"}}}}"#
        )
    };
    let tools: Vec<_> = (0..LONG_LIST / tool(0).len()).map(tool).collect();
    let tools = tools.join(",");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tools}]}}}}"#)
}

fn new_session() -> http::HeaderValue {
    let (a, b) = (getrandom::u64().unwrap(), getrandom::u64().unwrap());
    http::HeaderValue::from_str(&format!("{a:016x}{b:016x}")).unwrap()
}

/// Returns the path of the counter over stdio, which is next to this program.
pub(crate) fn counter() -> String {
    let counter = std::env::current_exe().unwrap().with_file_name("stayput-bench-counter");
    assert!(counter.exists(), "{} is not built; `make bench` builds it", counter.display());
    counter.to_str().unwrap().to_owned()
}

/// Returns the path of this program.
pub(crate) fn program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// Running server over HTTP. Dropping it ends it and its connections.
pub(crate) struct HttpServer {
    child: Child,
    pub(crate) url: String,
}

impl HttpServer {
    pub(crate) fn start() -> Self {
        Self::start_on("0")
    }

    fn start_on(port: &str) -> Self {
        let mut command = Command::new(program());
        command.args(["serve", "http", port]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim_end().to_owned() }
    }

    /// Ends it and starts another one at the same address. All connections to it are cut.
    pub(crate) fn restart(&mut self) {
        self.end();
        let port = self.url.rsplit([':', '/']).nth(1).unwrap();
        *self = Self::start_on(port);
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.end();
    }
}
