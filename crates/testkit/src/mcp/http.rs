//! Test server over HTTP.

pub(crate) mod body;
mod chaos;
mod checks;
mod old;
mod post;
mod session;
mod stream;

use std::{
    io::{self, Write},
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use hyper::{body::Incoming as Received, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use stayput_wire::{Code, Era, header};
use tokio::net::{TcpListener, TcpStream};

use super::{
    engine::Engine,
    message::{Incoming, Refusal},
    options::{Eras, Mode, Quirk},
};
use body::{Body, OnGone};
use chaos::Script;
use session::{Session, Sessions};

type Reply = Response<Body>;

/// HTTP request to the endpoint, with its whole body.
pub(super) struct Ask {
    method: Method,
    query: String,
    headers: HeaderMap,
    /// Message in the body of a POST, if any.
    message: Option<Result<Incoming, Refusal>>,
}

pub(super) struct Front {
    engine: Arc<Engine>,
    sessions: Sessions,
    script: Mutex<Script>,
}

/// Listens and serves until the process ends.
pub(super) async fn serve(engine: Arc<Engine>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, engine.options.port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = if engine.options.mode == Mode::Sse { "sse" } else { "mcp" };
    let script = engine.options.script.as_deref().unwrap_or("[]");
    let script = Mutex::new(Script::parse(script.as_bytes()).unwrap());
    let front = Arc::new(Front { engine, sessions: Sessions::default(), script });
    let url = format!("http://127.0.0.1:{port}/{path}\n");
    io::stdout().write_all(url.as_bytes()).unwrap();
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(connection(front.clone(), socket));
    }
}

async fn connection(front: Arc<Front>, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let counted = AtomicBool::new(false);
    let service = service_fn(|request| {
        // Requests for the statistics do not change them.
        if ["/mcp", "/sse", "/messages"].contains(&request.uri().path())
            && !counted.swap(true, Ordering::Relaxed)
        {
            front.engine.stats.count("connections");
        }
        front.clone().route(request)
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
}

impl Front {
    /// Routes a request. An error cuts the connection before the answer begins.
    async fn route(self: Arc<Self>, request: Request<Received>) -> io::Result<Reply> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let (method, path) = (parts.method, parts.uri.path().to_owned());
        match (self.engine.options.mode, path.as_str()) {
            (_, "/stats") => return Ok(self.stats()),
            (_, "/script") => return Ok(self.set_script(&body)),
            (Mode::Http, "/mcp") | (Mode::Sse, "/sse" | "/messages") => {}
            _ => return Ok(status(StatusCode::NOT_FOUND)),
        }
        let message = (method == Method::POST).then(|| {
            self.engine.note(&body);
            Incoming::parse(&body)
        });
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let ask = Ask { method, query, headers: parts.headers, message };
        self.count(&ask);
        let rule = self.script.lock().unwrap_or_else(PoisonError::into_inner).next(&ask);
        match rule {
            Some(rule) => chaos::play(&self, rule, ask).await,
            None => Ok(self.endpoint(ask, Tricks::default()).await),
        }
    }

    /// Answers like a correct server, apart from the tricks.
    async fn endpoint(self: &Arc<Self>, ask: Ask, tricks: Tricks) -> Reply {
        if !checks::origin_is_local(&ask.headers) {
            return status(StatusCode::FORBIDDEN);
        }
        if self.engine.options.mode == Mode::Sse {
            return self.old(ask);
        }
        match ask.method {
            Method::POST => self.post(ask, tricks).await,
            Method::GET => self.get(&ask),
            Method::DELETE => self.delete(&ask),
            _ => status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn get(&self, ask: &Ask) -> Reply {
        let options = &self.engine.options;
        if options.stateless || options.eras == Eras::Modern || options.has(Quirk::NoGet) {
            return status(StatusCode::METHOD_NOT_ALLOWED);
        }
        if !checks::accepts(&ask.headers, &[header::EVENT_STREAM]) {
            return status(StatusCode::NOT_ACCEPTABLE);
        }
        let session = match self.session(&ask.headers) {
            Ok(session) => session,
            Err(refusal) => return refused(&refusal, None, Era::Legacy),
        };
        if let Some(last) = checks::text(&ask.headers, header::LAST_EVENT_ID) {
            let from = stream::parse_id(last)
                .and_then(|(number, event)| Some((session.stream(number)?, event + 1)));
            return match from {
                Some((stream, event)) => events(stream.attach(event, OnGone::nothing())),
                None => status(StatusCode::BAD_REQUEST),
            };
        }
        if session.standalone.is_attached() && !options.has(Quirk::ManyGets) {
            return status(StatusCode::CONFLICT);
        }
        let body = session.standalone.attach_where_left(OnGone::nothing());
        if session.primes() {
            session.standalone.prime(self.retry());
        }
        events(body)
    }

    fn delete(&self, ask: &Ask) -> Reply {
        let options = &self.engine.options;
        if options.stateless || options.eras == Eras::Modern || options.has(Quirk::NoDelete) {
            return status(StatusCode::METHOD_NOT_ALLOWED);
        }
        match self.session(&ask.headers) {
            Ok(session) => {
                self.sessions.remove(&session.id);
                session.end();
                status(StatusCode::OK)
            }
            Err(refusal) => refused(&refusal, None, Era::Legacy),
        }
    }

    /// Returns the session that a request names. Legacy only.
    fn session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Refusal> {
        let bad = |what: &str| Refusal::new(Code(-32000), what).with_status(400);
        if !checks::legacy_version_is_known(&self.engine.options, headers) {
            return Err(bad("Bad Request: this revision is not served here"));
        }
        let id = checks::text(headers, header::MCP_SESSION_ID)
            .ok_or_else(|| bad("Bad Request: the session id is missing"))?;
        let unknown = || Refusal::new(Code(-32001), "Session not found").with_status(404);
        self.sessions.get(id).ok_or_else(unknown)
    }

    fn retry(&self) -> Duration {
        Duration::from_millis(self.engine.options.retry_ms.unwrap_or(100))
    }

    fn count(&self, ask: &Ask) {
        match ask.method {
            Method::POST => self.engine.stats.count("posts"),
            Method::GET => self.engine.stats.count("gets"),
            Method::DELETE => self.engine.stats.count("deletes"),
            _ => {}
        }
    }

    fn stats(&self) -> Reply {
        let mut stats = self.engine.stats.to_json();
        stats["sessions"] = self.sessions.len().into();
        json(StatusCode::OK, stats.to_string())
    }

    fn set_script(&self, script: &[u8]) -> Reply {
        match Script::parse(script) {
            Ok(script) => {
                *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
                status(StatusCode::OK)
            }
            Err(error) => {
                let mut reply = status(StatusCode::BAD_REQUEST);
                *reply.body_mut() = Body::whole(error.to_string());
                reply
            }
        }
    }
}

/// Changes of a script to an otherwise correct answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Tricks {
    /// Number and size of notifications before the answer.
    flood: Option<(u64, usize)>,
    /// Id that differs from that of the request.
    foreign_id: Option<String>,
    /// Sends the answer twice.
    twice: bool,
    /// Closes the connection after the first event, which contains this retry time.
    close: Option<Duration>,
    /// Breaks the connection in the middle of the answer.
    cut: bool,
}

impl Tricks {
    /// Returns whether they need a stream.
    fn need_a_stream(&self) -> bool {
        self.flood.is_some() || self.twice || self.close.is_some() || self.cut
    }
}

fn status(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

fn json(code: StatusCode, text: String) -> Reply {
    let mut reply = status(code);
    reply.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(header::JSON));
    *reply.body_mut() = Body::whole(text);
    reply
}

fn events(body: Body) -> Reply {
    let mut reply = status(StatusCode::OK);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(header::EVENT_STREAM));
    headers.insert(header::ACCEL_BUFFERING, http::HeaderValue::from_static("no"));
    *reply.body_mut() = body;
    reply
}

fn refused(refusal: &Refusal, id: Option<&str>, era: Era) -> Reply {
    let code = refusal.status.unwrap_or(refusal.code.http_status(era));
    json(StatusCode::from_u16(code).unwrap_or_default(), refusal.to_text(id))
}
