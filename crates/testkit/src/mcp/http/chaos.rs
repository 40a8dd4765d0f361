//! Scripted faults: a list of rules, each with a condition and an action.
//!
//! ```json
//! [
//!   { "on": "tools/call", "tool": "count", "nth": 2, "do": { "status": { "code": 404 } } },
//!   { "on": "GET", "do": "hang" },
//!   { "on": "tools/call", "nth": 1, "run": true, "do": "cut" }
//! ]
//! ```
//!
//! `on` is a JSON-RPC method, an HTTP method, or `*`; `tool` narrows calls to one tool. With `nth` (from 1, counted
//! since the script was set) the rule applies only to that request, without it to all. The first matching rule is
//! applied. With `run` the request runs before the fault.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE, header::LOCATION};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;
use stayput_wire::{Code, header};

use super::{
    super::message::Refusal,
    Ask, Front, Reply, Tricks,
    body::{Body, OnGone, Piece},
    events, json, status,
};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    on: String,
    tool: Option<String>,
    nth: Option<u64>,
    #[serde(default)]
    run: bool,
    #[serde(rename = "do")]
    deed: Deed,
    #[serde(skip)]
    seen: u64,
}

/// Action of a rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Deed {
    /// Does nothing; keeps later rules from being applied.
    Pass,
    /// Answers with this status; `$id` in the body is replaced by the id of the request.
    Status {
        code: u16,
        #[serde(default)]
        body: String,
        #[serde(default)]
        headers: Vec<(String, String)>,
    },
    /// Never answers.
    Hang,
    /// Sends the head of a stream, and then nothing.
    HangAfterHead,
    /// Closes the connection without an answer.
    Cut,
    /// Breaks the connection in the middle of the stream.
    CutMidStream,
    /// Forgets all sessions, and then processes the request.
    Restart,
    /// Answers correctly, but under this session id.
    Session(String),
    /// Answers like to a second `initialize`: 400 and −32600.
    Refuse,
    /// Sends this many notifications of this many bytes before the answer.
    Flood {
        count: u64,
        bytes: usize,
    },
    /// Sends the body in pieces of this many bytes, with a pause between them.
    Slow {
        bytes: usize,
        ms: u64,
    },
    /// Answers correctly, but with this content type.
    ContentType(String),
    Redirect {
        to: String,
        #[serde(default = "temporary")]
        code: u16,
    },
    InvalidJson,
    /// Answers under the id of another request.
    ForeignId(Value),
    /// Sends the answer twice.
    Twice,
    /// Closes the stream after its first event, which contains the retry time.
    Close {
        retry: u64,
    },
    /// Answers correctly after this time.
    Delay(u64),
}

fn temporary() -> u16 {
    307
}

#[derive(Debug)]
pub(super) struct Script(Vec<Rule>);

impl Script {
    pub(super) fn parse(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text).map(Self)
    }

    /// Returns the rule for this request. Every rule counts its matches, applied or not.
    pub(super) fn next(&mut self, ask: &Ask) -> Option<Rule> {
        let mut played = None;
        for rule in &mut self.0 {
            if rule.fits(ask) {
                rule.seen += 1;
                if played.is_none() && rule.nth.is_none_or(|nth| nth == rule.seen) {
                    played = Some(rule.clone());
                }
            }
        }
        played
    }
}

impl Rule {
    fn fits(&self, ask: &Ask) -> bool {
        let message = ask.message.as_ref().and_then(|message| message.as_ref().ok());
        let method = message.and_then(|message| message.method.as_deref());
        let on = self.on == "*" || self.on == ask.method.as_str() || Some(&*self.on) == method;
        let tool = message.and_then(|message| message.tool());
        on && (self.tool.is_none() || self.tool.as_deref() == tool)
    }
}

/// Applies a rule to a request. An error cuts the connection.
pub(super) async fn play(front: &Arc<Front>, rule: Rule, ask: Ask) -> io::Result<Reply> {
    if let Some(tricks) = rule.tricks() {
        return Ok(front.endpoint(ask, tricks).await);
    }
    let id =
        ask.message.as_ref().and_then(|message| message.as_ref().ok()?.id()).map(str::to_owned);
    match rule.deed {
        Deed::Restart => front.sessions.clear(),
        Deed::Delay(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Deed::Session(_) | Deed::Slow { .. } | Deed::ContentType(_) | Deed::Pass => {}
        deed => {
            if rule.run {
                let reply = front.endpoint(ask, Tricks::default()).await;
                let _ = reply.into_body().collect().await;
            }
            return fail(deed, id.as_deref()).await;
        }
    }
    let mut reply = front.endpoint(ask, Tricks::default()).await;
    match rule.deed {
        Deed::Session(id) => {
            reply.headers_mut().insert(header::MCP_SESSION_ID, HeaderValue::from_str(&id).unwrap());
        }
        Deed::ContentType(kind) => {
            reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(&kind).unwrap());
        }
        Deed::Slow { bytes, ms } => return Ok(slow(reply, bytes, Duration::from_millis(ms))),
        _ => {}
    }
    Ok(reply)
}

/// Performs the actions that replace the whole answer.
async fn fail(deed: Deed, id: Option<&str>) -> io::Result<Reply> {
    Ok(match deed {
        Deed::Status { code, body, headers } => {
            let body = body.replace("$id", id.unwrap_or("null"));
            let mut reply = json(StatusCode::from_u16(code).unwrap_or_default(), body);
            for (name, value) in headers {
                let name: HeaderName = name.parse().unwrap();
                reply.headers_mut().insert(name, HeaderValue::from_str(&value).unwrap());
            }
            reply
        }
        Deed::Hang => std::future::pending().await,
        Deed::HangAfterHead => events(Body::endless([])),
        Deed::CutMidStream => {
            let half = Bytes::from_static(b"data: {\"jsonrpc\":");
            events(Body::endless([Piece::Bytes(half), Piece::Cut]))
        }
        Deed::Refuse => {
            let refusal = Refusal::new(Code::INVALID_REQUEST, "Server already initialized");
            json(StatusCode::BAD_REQUEST, refusal.to_text(id))
        }
        Deed::Redirect { to, code } => {
            let mut reply = status(StatusCode::from_u16(code).unwrap_or_default());
            reply.headers_mut().insert(LOCATION, HeaderValue::from_str(&to).unwrap());
            reply
        }
        Deed::InvalidJson => json(StatusCode::OK, "{\"jsonrpc\":\"2.0\",".to_owned()),
        _ => return Err(io::Error::other("cut, as the script says")),
    })
}

impl Rule {
    fn tricks(&self) -> Option<Tricks> {
        let none = Tricks::default();
        match &self.deed {
            Deed::Flood { count, bytes } => Some(Tricks { flood: Some((*count, *bytes)), ..none }),
            Deed::ForeignId(id) => Some(Tricks { foreign_id: Some(id.to_string()), ..none }),
            Deed::Twice => Some(Tricks { twice: true, ..none }),
            Deed::Close { retry } => {
                Some(Tricks { close: Some(Duration::from_millis(*retry)), ..none })
            }
            Deed::CutMidStream if self.run => Some(Tricks { cut: true, ..none }),
            _ => None,
        }
    }
}

fn slow(reply: Reply, bytes: usize, pause: Duration) -> Reply {
    let (parts, mut body) = reply.into_parts();
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            for piece in frame.into_data().unwrap_or_default().chunks(bytes.max(1)) {
                if send.send(Piece::Bytes(Bytes::copy_from_slice(piece))).is_err() {
                    return;
                }
                tokio::time::sleep(pause).await;
            }
        }
    });
    Reply::from_parts(parts, Body::pieces(receive, OnGone::nothing()))
}
