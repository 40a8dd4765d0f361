//! Record of one call: metrics, session statistics, audit log and spans.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use http::HeaderMap;
use memchr::memmem::Finder;
use stayput_core::{Owner, Session, SessionId};
use stayput_upstream::{Answer, CallError, LossReason, PooledLink, Server};
use stayput_wire::{Message, Raw};

use crate::observe::{
    CallEnd, CallObservation, CallSubject, Observers,
    metrics::{Metrics, Timing},
    recent::{
        NameSource,
        call_history::{CallHistory, CallOpening, RunningEntry},
    },
    session_stats::SessionStats,
};

/// Record of a call, finished when the call is over.
#[derive(Debug, Default)]
pub(crate) struct CallRecord {
    /// Timer, started when the call is sent.
    timing: Option<Timing>,
    /// Observation for the audit log and spans, if configured. It is reported when it is dropped.
    noted: Option<Box<CallObservation>>,
    /// Entry in the history of the session.
    past: Option<RunningEntry>,
}

/// Call that is about to be made.
#[derive(Clone, Copy)]
pub(crate) struct CallStart<'a> {
    pub(crate) owner: &'a Owner,
    /// Session of the call, if it has one.
    pub(crate) session: Option<&'a Session>,
    /// Server of the call. `None` for a tool of the gateway.
    pub(crate) server: Option<&'a Server>,
    pub(crate) message: &'a Message<'a>,
    pub(crate) headers: &'a HeaderMap,
    /// Part of the request that named the session.
    pub(crate) name_source: Option<NameSource>,
    /// Short number of the client's connection.
    pub(crate) connection: Option<u32>,
    pub(crate) history: &'a Arc<CallHistory>,
}

impl<'a> CallStart<'a> {
    /// Returns the name of the tool, for `tools/call`.
    pub(crate) fn tool(&self) -> Option<Cow<'a, str>> {
        let call = self.message.method() == Some("tools/call");
        self.message.name().filter(|_| call)?.text()
    }

    /// Adds the call to the history of its session.
    fn begin_history_entry(&self) -> Option<RunningEntry> {
        let (session, server) = (self.session?, self.server?);
        let tool = self.tool();
        let method = || self.message.method().unwrap_or_default();
        let arguments = || self.message.params()?.find(&["arguments"]);
        let call = CallOpening {
            server: server.name(),
            label: tool.as_deref().unwrap_or_else(method),
            sent: self.message.text().len(),
            name_source: self.name_source,
            connection: self.connection,
            arguments: self.history.keeps_arguments().then(arguments).flatten().map(Raw::as_str),
        };
        Some(self.history.begin(session.id(), call))
    }

    /// Starts the observation of the call, if there are observers.
    fn start_observation(
        &self,
        observers: Option<&Arc<Observers>>,
    ) -> Option<Box<CallObservation>> {
        let observers = observers?;
        let of = CallSubject {
            owner: self.owner,
            session: self.session.map(Session::id),
            server: self.server.map(Server::shared_name),
            headers: self.headers,
        };
        Some(Box::new(CallObservation::new(observers, of, self.message)))
    }
}

impl CallRecord {
    /// Starts the record of a call.
    pub(crate) fn begin(observers: Option<&Arc<Observers>>, begun: CallStart<'_>) -> Self {
        if let (Some(usage), Some(server)) =
            (begun.session.and_then(SessionStats::get), begun.server)
        {
            usage.called(server.name(), || server.shared_name(), begun.tool().as_deref());
        }
        Self {
            timing: None,
            noted: begun.start_observation(observers),
            past: begun.begin_history_entry(),
        }
    }

    /// Records a call that the configuration does not allow.
    pub(crate) fn denied(observers: Option<&Arc<Observers>>, begun: CallStart<'_>) {
        let noted = begun.start_observation(observers);
        Self { noted, ..Self::default() }.end_with(CallEnd::Denied);
    }

    /// Sets the session of the call, if it is known only now.
    pub(crate) fn set_session(&mut self, session: SessionId) {
        if let Some(noted) = &mut self.noted {
            noted.set_session(session);
        }
    }

    /// Starts the timer: the call is sent now.
    pub(crate) fn sent(&mut self, metrics: &Metrics, server: &str) {
        self.timing = metrics.call(server);
    }

    /// Returns the message with its trace context, if spans are configured.
    pub(crate) fn traced(&self, message: &Message<'_>) -> Option<String> {
        self.noted.as_ref()?.traced(message)
    }

    /// Sets the outcome.
    pub(crate) fn end_with(&self, outcome: CallEnd) {
        if let Some(past) = &self.past {
            past.end(outcome, 0);
        }
        if let Some(noted) = &self.noted {
            noted.end_with(outcome);
        }
    }

    /// Records the answer or the failure of the call.
    pub(crate) fn ended(
        &self,
        session: Option<&Session>,
        link: &PooledLink,
        end: &Result<Answer, CallError>,
    ) {
        if self.noted.is_some() || self.past.is_some() {
            let outcome = outcome(end);
            if let Some(past) = &self.past {
                past.end(outcome, end.as_ref().map_or(0, |answer| answer.as_bytes().len()));
            }
            self.end_with(outcome);
        }
        let failure = match end {
            Ok(answer) if answer.error().is_none() => return,
            Ok(answer) => answer.error_message().unwrap_or_default(),
            Err(CallError::Cancelled) => return,
            Err(error) => error.to_string(),
        };
        let Some(usage) = session.and_then(SessionStats::get) else { return };
        let loss = end.as_ref().err().and_then(CallError::loss);
        let stderr = match loss {
            Some(loss) => loss.detail().to_owned(),
            None => link.stderr_tail(),
        };
        usage.failed(Arc::from(link.key().server()), failure, &stderr);
    }
}

/// Whether a result may have a member `isError` that is true. A text in the result can look like one.
fn may_be_error(result: &str) -> bool {
    const NAME: &str = r#""isError""#;
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
    FINDER.find_iter(result.as_bytes()).any(|at| {
        let value = result.get(at + NAME.len()..).unwrap_or_default();
        value.trim_start_matches([':', ' ', '\n', '\r', '\t']).starts_with('t')
    })
}

/// Returns the outcome of a call. A result is parsed only if it seems to have `isError`, because it can be large.
fn outcome(end: &Result<Answer, CallError>) -> CallEnd {
    match end {
        Ok(answer) => match answer.result() {
            None => CallEnd::Error,
            Some(result) if !may_be_error(result) => CallEnd::Ok,
            Some(result) => {
                let failed =
                    Raw::parse(result).ok().and_then(|it| it.find(&["isError"])?.boolean());
                if failed == Some(true) { CallEnd::ToolError } else { CallEnd::Ok }
            }
        },
        Err(CallError::Cancelled) => CallEnd::Cancelled,
        Err(error) => match error.loss() {
            Some(loss) if loss.reason() != LossReason::Released => CallEnd::Lost,
            _ => CallEnd::Failed,
        },
    }
}
