//! The smallest server that is one: the same for every client that is measured, so that what differs
//! is the client.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::{BufRead, BufReader, Write, stdin, stdout},
    net::Ipv4Addr,
    process::{Child, Command, ExitCode, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use stayput_wire::{Kind, Message};
use tokio::net::TcpListener;

/// What `large` answers with.
pub(crate) const LARGE: usize = 100_000;

/// How long `wait` takes, over HTTP.
const WAIT: Duration = Duration::from_secs(1);

const GREETING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#;

const TOOLS: &str = r#"{"tools":[{"name":"count","description":"Adds one and says the number.","inputSchema":{"type":"object"}}]}"#;

/// The answer to a message, if it wants one. `count` adds one to what its session has counted.
fn answer(message: &Message<'_>, count: impl FnOnce() -> u64) -> Option<String> {
    let Kind::Request { id, method, params } = message.kind() else { return None };
    let id = id.as_str();
    let tool = params.and_then(|params| params.find(&["name"])?.text());
    let result = match (&**method, tool.as_deref()) {
        ("initialize", _) => GREETING.to_owned(),
        ("tools/list", _) => TOOLS.to_owned(),
        ("tools/call", Some("count")) => text(&count().to_string()),
        ("tools/call", Some("large")) => large().to_owned(),
        ("tools/call", Some("pid")) => text(&std::process::id().to_string()),
        ("tools/call", _) => text("ok"),
        ("ping", _) => "{}".to_owned(),
        _ => {
            let error = r#"{"code":-32601,"message":"there is no such method"}"#;
            return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
        }
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn text(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
}

fn large() -> &'static str {
    static RESULT: OnceLock<String> = OnceLock::new();
    RESULT.get_or_init(|| text(&"a line of text as a file has them ".repeat(LARGE / 34)))
}

/// Serves until its input ends.
pub(crate) fn stdio() -> ExitCode {
    let (mut lines, mut out) = (BufReader::new(stdin().lock()), stdout().lock());
    let mut line = Vec::new();
    let mut counted = 0;
    while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let message = Message::parse(&line).unwrap();
        let count = || {
            counted += 1;
            counted
        };
        if let Some(mut answer) = answer(&message, count) {
            answer.push('\n');
            if out.write_all(answer.as_bytes()).and_then(|()| out.flush()).is_err() {
                break;
            }
        }
        line.clear();
    }
    ExitCode::SUCCESS
}

/// Says where it listens, any free port if `port` is none, and serves until its input ends.
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

/// What each session has counted. One that is not known, because it is of an earlier process, begins
/// anew.
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
            match answer(&message, || count(session)) {
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
        // It has nothing to say outside of calls.
        _ => *reply.status_mut() = StatusCode::METHOD_NOT_ALLOWED,
    }
    Ok(reply)
}

fn new_session() -> http::HeaderValue {
    let (a, b) = (getrandom::u64().unwrap(), getrandom::u64().unwrap());
    http::HeaderValue::from_str(&format!("{a:016x}{b:016x}")).unwrap()
}

/// This program.
pub(crate) fn program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// A running server over HTTP. Dropped, it is gone, and so are the connections to it.
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
