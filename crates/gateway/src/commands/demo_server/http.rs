//! Demo server over Streamable HTTP, with a notebook for each `Mcp-Session-Id`.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header as names};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use stayput_sync::Mutex;
use stayput_wire::{Code, Era, Message, Version, header};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{
    MESSAGE_LIMIT,
    answer::{Peer, Refusal, is_modern},
    error::DemoError,
    sessions::Sessions,
};

const PATH: &str = "/mcp";

/// Maximum number of concurrent connections. Further ones wait.
const CONNECTIONS: usize = 256;

/// Pause after a failed accept, such as when there are too many open files.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

type Reply = Response<Full<Bytes>>;

/// Server that listens.
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    front: Arc<HttpServer>,
}

#[derive(Default)]
struct HttpServer(Mutex<Sessions>);

impl Server {
    /// Binds `address`, with the sessions of the file `state`.
    pub(super) async fn bind(address: SocketAddr, state: Option<&Path>) -> Result<Self, DemoError> {
        if !address.ip().is_loopback() {
            return Err(DemoError::NotLocal(address));
        }
        let front = Arc::new(HttpServer(Mutex::new(Sessions::load(state)?)));
        let failed = |error| DemoError::Bind { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, front })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves until it is dropped. That also closes all connections.
    pub(super) async fn serve(self) -> Result<(), DemoError> {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS {
                connections.join_next().await;
            }
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    connections.spawn(connection(self.front.clone(), socket));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await,
            }
        }
    }
}

async fn connection(front: Arc<HttpServer>, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let service = service_fn(|request| {
        let front = front.clone();
        async move { Ok::<Reply, std::convert::Infallible>(front.route(request).await) }
    });
    // An error of one connection concerns only its client.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
}

impl HttpServer {
    async fn route(&self, request: Request<Incoming>) -> Reply {
        let (parts, body) = request.into_parts();
        if parts.uri.path() != PATH {
            return status(StatusCode::NOT_FOUND);
        }
        if !is_local(&parts.headers) {
            return status(StatusCode::FORBIDDEN);
        }
        let reply = match parts.method {
            Method::POST => match Limited::new(body, MESSAGE_LIMIT).collect().await {
                Ok(body) => self.post(&parts.headers, &body.to_bytes()),
                Err(_) => Ok(status(StatusCode::PAYLOAD_TOO_LARGE)),
            },
            Method::DELETE => self.delete(&parts.headers),
            // GET is refused: this server sends no messages of its own.
            _ => Ok(not_allowed()),
        };
        reply.unwrap_or_else(|error| {
            let what = format!("the session cannot be kept: {error}");
            let answer = Refusal::new(Code::INTERNAL_ERROR, what).answer(None);
            json(StatusCode::INTERNAL_SERVER_ERROR, answer)
        })
    }

    fn post(&self, headers: &HeaderMap, body: &[u8]) -> io::Result<Reply> {
        if !says(headers, &names::CONTENT_TYPE, &[header::JSON]) {
            return Ok(status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let accepted = [header::JSON, "application/*", "*/*"];
        if headers.contains_key(names::ACCEPT) && !says(headers, &names::ACCEPT, &accepted) {
            return Ok(status(StatusCode::NOT_ACCEPTABLE));
        }
        if !speaks_legacy(headers, body) {
            let what = "this server keeps a session for each client; begin with `initialize`";
            return Ok(refused(StatusCode::BAD_REQUEST, Code::INVALID_REQUEST, what));
        }
        let Some(id) = text(headers, header::MCP_SESSION_ID) else { return self.begin(body) };
        let mut sessions = self.0.lock();
        if !sessions.knows(id) {
            return Ok(unknown());
        }
        Ok(match sessions.answer(id, body)? {
            Some(answer) => answered(answer),
            None => status(StatusCode::ACCEPTED),
        })
    }

    /// Handles a request without a session: `initialize`, or an error.
    fn begin(&self, body: &[u8]) -> io::Result<Reply> {
        let mut peer = Peer::default();
        let method = Message::parse(body).ok().and_then(|it| it.method().map(str::to_owned));
        let answer = peer.answer(body);
        match (method.as_deref(), answer) {
            (Some("initialize"), Some(answer)) if peer.version.is_some() => {
                let id = self.0.lock().begin(peer)?;
                let mut reply = answered(answer);
                let id = HeaderValue::try_from(id).map_err(io::Error::other)?;
                reply.headers_mut().insert(header::MCP_SESSION_ID, id);
                Ok(reply)
            }
            // A message that cannot be parsed and an invalid `initialize` already have an error answer.
            (None | Some("initialize"), Some(answer)) => Ok(answered(answer)),
            _ => {
                let what = "the header Mcp-Session-Id is missing; begin with `initialize`";
                Ok(refused(StatusCode::BAD_REQUEST, Code::INVALID_REQUEST, what))
            }
        }
    }

    fn delete(&self, headers: &HeaderMap) -> io::Result<Reply> {
        match text(headers, header::MCP_SESSION_ID) {
            None => Ok(status(StatusCode::BAD_REQUEST)),
            Some(id) if self.0.lock().end(id)? => Ok(status(StatusCode::NO_CONTENT)),
            Some(_) => Ok(unknown()),
        }
    }
}

/// Whether the request is not from a foreign web page: `Origin` and `Host` must be local, which also stops DNS
/// rebinding.
fn is_local(headers: &HeaderMap) -> bool {
    let local = |authority: &str| {
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|c| c.is_ascii_digit()) => host,
            _ => authority,
        };
        ["localhost", "127.0.0.1", "[::1]"].contains(&host)
    };
    let origin = match headers.get(names::ORIGIN) {
        None => true,
        Some(origin) => {
            let origin = origin.to_str().unwrap_or_default().split_once("://");
            origin.is_some_and(|(_, authority)| local(authority))
        }
    };
    origin && text(headers, names::HOST.as_str()).is_some_and(local)
}

/// Whether a header contains one of these media types.
fn says(headers: &HeaderMap, name: &names::HeaderName, types: &[&str]) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| {
        let one = one.split(';').next().unwrap_or_default().trim();
        types.iter().any(|wanted| wanted.eq_ignore_ascii_case(one))
    })
}

/// Whether the client is legacy. A modern client opens no session, so there would be no notebook to isolate. The error
/// makes it fall back to `initialize`.
fn speaks_legacy(headers: &HeaderMap, body: &[u8]) -> bool {
    let version = text(headers, header::PROTOCOL_VERSION).map(Version::from);
    let known = version.is_none_or(|it| it.is_known() && it.era() == Era::Legacy);
    let modern = Message::parse(body).ok().and_then(|message| {
        let params = serde_json::from_str(message.params()?.as_str()).ok()?;
        Some(is_modern(&params))
    });
    known && modern != Some(true)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn status(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    reply
}

fn not_allowed() -> Reply {
    let mut reply = status(StatusCode::METHOD_NOT_ALLOWED);
    reply.headers_mut().insert(names::ALLOW, HeaderValue::from_static("POST, DELETE"));
    reply
}

fn json(code: StatusCode, text: String) -> Reply {
    let mut reply = status(code);
    reply.headers_mut().insert(names::CONTENT_TYPE, HeaderValue::from_static(header::JSON));
    *reply.body_mut() = Full::new(text.into());
    reply
}

/// Returns an answer, with the HTTP status of its error code if it is an error.
fn answered(answer: String) -> Reply {
    let code = Message::parse(answer.as_bytes())
        .ok()
        .and_then(|message| message.error()?.find(&["code"])?.integer())
        .map_or(200, |code| Code(code).http_status(Era::Legacy));
    json(StatusCode::from_u16(code).unwrap_or_default(), answer)
}

fn refused(code: StatusCode, error: Code, what: &str) -> Reply {
    json(code, Refusal::new(error, what).answer(None))
}

/// Error with the message and the code of the official SDKs.
fn unknown() -> Reply {
    refused(StatusCode::NOT_FOUND, Code(-32001), "Session not found")
}
