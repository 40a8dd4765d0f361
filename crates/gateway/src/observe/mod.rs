//! Who wants to know of every single call: an audit, and whoever collects traces. Most gateways have neither, and
//! then a call asks for it once and does no more.
//!
//! | file | what it is |
//! |---|---|
//! | `audit.rs` | a line for each call, for a file or the standard error |
//! | `trace.rs` | the trace that a call belongs to, from its client and on to its server |
//! | `spans.rs`, `otlp.rs` | each call as a span, and how spans are sent on |

mod audit;
mod call_observation;
pub(crate) mod call_record;
pub(crate) mod events;
pub(crate) mod log;
pub(crate) mod metrics;
mod otlp;
pub(crate) mod session_stats;
mod spans;
pub(crate) mod time_format;
mod traceparent;

use std::{io, sync::Arc, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::{
    audit::{Audit, AuditRules, AuditTo},
    spans::{Spans, SpansRules},
};
pub(crate) use crate::observe::call_observation::{CallEnd, CallObservation, CallSubject};
use crate::observe::log::Log;

/// How long what was noted may take to be written at the end.
const FAREWELL: Duration = Duration::from_secs(3);

/// Who wants to know of every call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObserveRules {
    pub(crate) audit: Option<AuditRules>,
    pub(crate) spans: Option<SpansRules>,
}

/// Whom every call is told to.
#[derive(Debug)]
pub(crate) struct Observers {
    audit: Option<Audit>,
    spans: Option<Spans>,
}

/// Why calls cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    #[error("the audit cannot be written to {}: {error}", path.display())]
    Audit { path: std::path::PathBuf, error: io::Error },
    #[error("the audit cannot be begun: {0}")]
    Thread(io::Error),
    #[error("spans cannot be sent: {0}")]
    Spans(#[from] stayput_upstream::http::ClientError),
}

impl Observers {
    /// Begins, if anybody wants to know.
    ///
    /// # Errors
    /// If nobody could be told.
    pub(crate) fn start(rules: ObserveRules, log: Log) -> Result<Option<Arc<Self>>, ObserveError> {
        let ObserveRules { audit, spans } = rules;
        if audit.is_none() && spans.is_none() {
            return Ok(None);
        }
        let audit = audit.map(|rules| Audit::start(rules, log)).transpose()?;
        let spans = spans.map(|rules| Spans::start(rules, log)).transpose()?;
        let watch = Arc::new(Self { audit, spans });
        watch.reopen_on_hangup();
        Ok(Some(watch))
    }

    /// SIGHUP is how whoever moved the file of the audit away says so.
    fn reopen_on_hangup(self: &Arc<Self>) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        let watch = Arc::downgrade(self);
        tokio::runtime::Handle::current().spawn(async move {
            while hangup.recv().await.is_some() {
                let Some(watch) = watch.upgrade() else { return };
                watch.reopen();
            }
        });
    }

    /// Opens the file of the audit anew, after it was moved away.
    pub(crate) fn reopen(&self) {
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
    }

    /// Writes what was noted so far.
    pub(crate) async fn close(&self) {
        let closing = async {
            if let Some(audit) = &self.audit {
                audit.flush().await;
            }
            if let Some(spans) = &self.spans {
                spans.flush().await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, closing).await;
    }

    /// How many lines of the audit were dropped.
    pub(crate) fn audit_dropped(&self) -> u64 {
        self.audit.as_ref().map_or(0, Audit::dropped)
    }

    /// How many spans were dropped.
    pub(crate) fn spans_dropped(&self) -> u64 {
        self.spans.as_ref().map_or(0, Spans::dropped)
    }
}
