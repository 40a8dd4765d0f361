//! Observation of calls: metrics, events, the log, the audit log and spans. Most gateways have neither an audit log nor
//! spans. Then a call costs one check.
//!
//! | file | content |
//! |---|---|
//! | `audit.rs` | one line for each call, to a file or stderr |
//! | `traceparent.rs` | trace context of a call, from its client and to its server |
//! | `recent/` | last calls of sessions, events and samples, for the dashboard |
//! | `spans.rs`, `otlp.rs` | spans of calls, and their export |

mod audit;
mod call_observation;
pub(crate) mod call_record;
pub(crate) mod events;
pub(crate) mod log;
pub(crate) mod metrics;
mod otlp;
pub(crate) mod recent;
pub(crate) mod session_extension;
pub(crate) mod session_stats;
mod spans;
mod traceparent;

use std::{io, sync::Arc, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::{
    audit::{Audit, AuditRules, AuditTo},
    spans::{Spans, SpansRules},
};
pub(crate) use crate::observe::call_observation::{CallEnd, CallObservation, CallSubject};

/// Time to write queued lines and spans at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Configuration of the audit log and of spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObserveRules {
    pub(crate) audit: Option<AuditRules>,
    pub(crate) spans: Option<SpansRules>,
}

/// Observers of every call.
#[derive(Debug)]
pub(crate) struct Observers {
    audit: Option<Audit>,
    spans: Option<Spans>,
}

/// Reason why observation did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    #[error("the audit cannot be written to {}: {error}", path.display())]
    Audit { path: std::path::PathBuf, error: io::Error },
    #[error("the audit cannot be begun: {0}")]
    Thread(io::Error),
    #[error("spans cannot be sent: {0}")]
    Spans(#[from] stayput_http::ClientError),
}

impl Observers {
    /// Starts the observers, if any are configured.
    ///
    /// # Errors
    /// If the audit log or the exporter of spans cannot be started.
    pub(crate) fn start(rules: ObserveRules) -> Result<Option<Arc<Self>>, ObserveError> {
        let ObserveRules { audit, spans } = rules;
        if audit.is_none() && spans.is_none() {
            return Ok(None);
        }
        let audit = audit.map(Audit::start).transpose()?;
        let spans = spans.map(Spans::start).transpose()?;
        let observers = Arc::new(Self { audit, spans });
        observers.reopen_on_hangup();
        Ok(Some(observers))
    }

    /// Opens the audit file again on SIGHUP, which log rotation sends after it has moved the file.
    fn reopen_on_hangup(self: &Arc<Self>) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        let observers = Arc::downgrade(self);
        tokio::runtime::Handle::current().spawn(async move {
            while hangup.recv().await.is_some() {
                let Some(observers) = observers.upgrade() else { return };
                observers.reopen();
            }
        });
    }

    /// Opens the audit file again, after it was moved away.
    pub(crate) fn reopen(&self) {
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
    }

    /// Writes all queued lines and spans.
    pub(crate) async fn close(&self) {
        let closing = async {
            if let Some(audit) = &self.audit {
                audit.flush().await;
            }
            if let Some(spans) = &self.spans {
                spans.flush().await;
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, closing).await;
    }

    /// Returns the number of dropped lines of the audit log.
    pub(crate) fn audit_dropped(&self) -> u64 {
        self.audit.as_ref().map_or(0, Audit::dropped)
    }

    /// Returns the number of dropped spans.
    pub(crate) fn spans_dropped(&self) -> u64 {
        self.spans.as_ref().map_or(0, Spans::dropped)
    }
}
