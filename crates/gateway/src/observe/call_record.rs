//! One call, as it is told to whoever runs the gateway.

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use stayput_core::{Owner, Session, SessionId};
use stayput_upstream::{Answer, CallError, Held, LossReason, Server};
use stayput_wire::{Message, Raw};

use crate::observe::{
    CallEnd, CallObservation, CallSubject, Observers,
    metrics::{Metrics, Timing},
    session_stats::SessionStats,
};

/// What is told of a call when it is over.
#[derive(Debug, Default)]
pub(crate) struct CallRecord {
    /// From when it is sent.
    timing: Option<Timing>,
    /// For those who want to know of every call, if there are any. Told when it is dropped.
    noted: Option<Box<CallObservation>>,
}

/// A call that is about to be made.
#[derive(Clone, Copy)]
pub(crate) struct CallStart<'a> {
    pub(crate) owner: &'a Owner,
    /// Whose it is, if it is a session's.
    pub(crate) session: Option<&'a Session>,
    /// Where it goes; nowhere if it is for a tool of ours.
    pub(crate) server: Option<&'a Server>,
    pub(crate) message: &'a Message<'a>,
    pub(crate) headers: &'a HeaderMap,
}

impl CallStart<'_> {
    /// The tool that it is for, if it is for one.
    fn tool(&self) -> Option<Cow<'_, str>> {
        let call = self.message.method() == Some("tools/call");
        self.message.name().filter(|_| call)?.text()
    }

    /// The call, for those who want to know of every one.
    fn noted(&self, observers: Option<&Arc<Observers>>) -> Option<Box<CallObservation>> {
        let watch = observers?;
        let of = CallSubject {
            owner: self.owner,
            session: self.session.map(Session::id),
            server: self.server.map(Server::shared_name),
            headers: self.headers,
        };
        Some(Box::new(CallObservation::new(watch, of, self.message)))
    }
}

impl CallRecord {
    /// Notes that a call begins.
    pub(crate) fn begin(observers: Option<&Arc<Observers>>, begun: CallStart<'_>) -> Self {
        if let (Some(usage), Some(server)) =
            (begun.session.and_then(SessionStats::of), begun.server)
        {
            usage.called(server.name(), || server.shared_name(), begun.tool().as_deref());
        }
        Self { timing: None, noted: begun.noted(observers) }
    }

    /// Notes a call that is not made, because the configuration does not let it be.
    pub(crate) fn denied(observers: Option<&Arc<Observers>>, begun: CallStart<'_>) {
        let noted = begun.noted(observers);
        Self { timing: None, noted }.came_to(CallEnd::Denied);
    }

    /// It was of this session, as is known only now.
    pub(crate) fn was_of(&mut self, session: SessionId) {
        if let Some(noted) = &mut self.noted {
            noted.was_of(session);
        }
    }

    /// It is sent now: from here on its server is waited for.
    pub(crate) fn sent(&mut self, metrics: &Metrics, server: &str) {
        self.timing = metrics.call(server);
    }

    /// The message as it is sent: with its trace, if traces are wanted.
    pub(crate) fn traced(&self, message: &Message<'_>) -> Option<String> {
        self.noted.as_ref()?.traced(message)
    }

    /// It came to this.
    pub(crate) fn came_to(&self, outcome: CallEnd) {
        if let Some(noted) = &self.noted {
            noted.came_to(outcome);
        }
    }

    /// It was answered, or failed.
    pub(crate) fn ended(
        &self,
        session: Option<&Session>,
        link: &Held,
        end: &Result<Answer, CallError>,
    ) {
        if let Some(noted) = &self.noted {
            noted.came_to(outcome(end));
        }
        let failure = match end {
            Ok(answer) if answer.error().is_none() => return,
            Ok(answer) => answer.error_message().unwrap_or_default(),
            Err(CallError::Cancelled) => return,
            Err(error) => error.to_string(),
        };
        let Some(usage) = session.and_then(SessionStats::of) else { return };
        let loss = end.as_ref().err().and_then(CallError::loss);
        let words = match loss {
            Some(loss) => loss.detail().to_owned(),
            None => link.last_words(),
        };
        usage.failed(Arc::from(link.key().server()), failure, &words);
    }
}

/// How a call ended. Whether a tool says that it failed is looked for only if somebody wants to know.
fn outcome(end: &Result<Answer, CallError>) -> CallEnd {
    match end {
        Ok(answer) => match answer.result() {
            None => CallEnd::Error,
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
