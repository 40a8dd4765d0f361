//! Observation of one call, for the audit log and spans. It is reported when it is dropped.

use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use serde_json::{Map, Value};
use stayput_core::{Clock as _, Handle, Owner, SessionId, SystemClock, Timestamp};
use stayput_wire::Message;
use tokio::time::Instant;

use super::{Observers, spans::Span};
use crate::observe::traceparent::Trace;

/// Maximum number of bytes of a name that are recorded. The protocol recommends no longer names.
const MAX_NAME_BYTES: usize = 128;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// A result.
    Ok,
    /// A result with `isError`.
    ToolError,
    /// A JSON-RPC error of the server.
    Error,
    /// No answer: the server could not be reached, or timed out.
    Failed,
    /// State was lost, and the client was notified of it.
    Lost,
    /// The request names no session of the owner, or the session is not available.
    NoSession,
    /// There is no link to the server.
    NoLink,
    /// The call is not allowed: the configuration hides the tool, or a limit is reached. Or the message must not reach
    /// a server under any configuration.
    Denied,
    /// The client does not wait for the answer any more.
    Cancelled,
}

impl CallEnd {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::NoSession => "no_session",
            Self::NoLink => "no_link",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the outcome is a problem that an operator should look at.
    pub(super) fn is_bad(self) -> bool {
        !matches!(self, Self::Ok | Self::Cancelled)
    }
}

/// Observed call.
#[derive(Debug)]
pub(crate) struct CallObservation {
    observers: Arc<Observers>,
    pub(super) owner: Owner,
    pub(super) session: Option<SessionId>,
    /// `None` for a tool of the gateway.
    pub(super) server: Option<Arc<str>>,
    pub(super) method: String,
    pub(super) tool: Option<String>,
    /// Raw JSON of the arguments, if the audit log records them.
    arguments: Option<String>,
    pub(super) at: Timestamp,
    begun: Instant,
    outcome: OnceLock<CallEnd>,
    trace: Option<Trace>,
}

/// Owner, session and server of a call.
pub(crate) struct CallSubject<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) session: Option<SessionId>,
    pub(crate) server: Option<Arc<str>>,
    pub(crate) headers: &'a HeaderMap,
}

impl CallObservation {
    /// Starts the observation of a call.
    pub(crate) fn new(
        observers: &Arc<Observers>,
        of: CallSubject<'_>,
        message: &Message<'_>,
    ) -> Self {
        let params = message.params();
        let call = message.method() == Some("tools/call");
        let member = |name: &str| params.filter(|_| call)?.find(&[name]);
        let wanted = observers.audit.as_ref().is_some_and(|audit| audit.arguments);
        Self {
            owner: of.owner.clone(),
            session: of.session,
            server: of.server,
            method: brief(message.method().unwrap_or_default()),
            tool: member("name").and_then(|name| Some(brief(&name.text()?))),
            arguments: member("arguments").filter(|_| wanted).map(|it| it.as_str().to_owned()),
            at: SystemClock.now(),
            begun: Instant::now(),
            outcome: OnceLock::new(),
            trace: observers.spans.as_ref().map(|_| Trace::from_request(message, of.headers)),
            observers: observers.clone(),
        }
    }

    /// Sets the session of the call.
    pub(crate) fn set_session(&mut self, session: SessionId) {
        self.session = Some(session);
    }

    /// Sets the outcome. Only the first one counts.
    pub(crate) fn end_with(&self, outcome: CallEnd) {
        let _ = self.outcome.set(outcome);
    }

    /// Returns the message with the trace context of this call, if spans are configured.
    pub(crate) fn traced(&self, message: &Message<'_>) -> Option<String> {
        self.trace.as_ref()?.onto(message)
    }

    fn line(&self, outcome: CallEnd, micros: u128) -> String {
        let mut line = Map::new();
        line.insert("at".to_owned(), self.at.to_rfc3339_millis().into());
        line.insert("owner".to_owned(), self.owner.as_str().into());
        line.insert("session".to_owned(), self.session.map(|id| id.to_string()).into());
        line.insert("server".to_owned(), self.server.as_deref().into());
        line.insert("method".to_owned(), (&*self.method).into());
        line.insert("tool".to_owned(), self.tool.clone().into());
        line.insert("outcome".to_owned(), outcome.as_str().into());
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        line.insert("ms".to_owned(), (f64::from(micros) / 1_000.0).into());
        if let Some(trace) = &self.trace {
            line.insert("trace".to_owned(), crate::observe::traceparent::hex(&trace.id).into());
        }
        if let Some(arguments) = &self.arguments {
            let mut value = serde_json::from_str::<Value>(arguments).unwrap_or_default();
            veil(&mut value);
            line.insert("arguments".to_owned(), value);
        }
        Value::Object(line).to_string()
    }
}

/// Truncates a name to `MAX_NAME_BYTES` bytes.
fn brief(name: &str) -> String {
    let mut length = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    name.get(..length).unwrap_or_default().to_owned()
}

/// Shortens handles in the arguments, as all other output does.
fn veil(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Ok(handle) = text.parse::<Handle>() {
                *text = format!("{handle:?}");
            }
        }
        Value::Array(all) => all.iter_mut().for_each(veil),
        Value::Object(all) => all.values_mut().for_each(veil),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Drop for CallObservation {
    fn drop(&mut self) {
        let outcome = self.outcome.get().copied().unwrap_or(CallEnd::Cancelled);
        let took = self.begun.elapsed();
        if let Some(audit) = &self.observers.audit {
            audit.line(self.line(outcome, took.as_micros()));
        }
        if let (Some(spans), Some(trace)) = (&self.observers.spans, self.trace.take()) {
            spans.add(Span::new(self, trace, outcome, took));
        }
    }
}
