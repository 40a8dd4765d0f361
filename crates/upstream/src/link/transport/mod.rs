//! Transport of a link.

pub(crate) mod posting;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod streamable;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use stayput_process::{MemoryMeter, ProcessInfo};

use super::{Core, PendingCall, prepare::PreparedMessage};
use crate::{
    CallError, LossReason,
    link::transport::{sse::Sse, stdio::Stdio, streamable::Streamable},
};

/// Transport of a link. All methods that send are synchronous, so that a cancelled caller cannot stop them halfway.
pub(crate) enum LinkTransport {
    /// Pipes of a child process.
    Stdio(Box<Stdio>),
    /// Streamable HTTP: one POST per message.
    Streamable(Streamable),
    /// HTTP+SSE (2024-11-05): one stream for all answers.
    Sse(Sse),
}

impl LinkTransport {
    /// Whether each call has its own response stream, which its caller reads.
    pub(crate) fn is_read_by_callers(&self) -> bool {
        matches!(self, Self::Streamable(_))
    }

    /// Waits until the transport accepts one more message. Returns whether it does.
    pub(crate) async fn ready(&self, core: &Core, limit: Duration) -> bool {
        match self {
            Self::Stdio(stdio) => stdio.ready(core, limit).await,
            Self::Streamable(_) | Self::Sse(_) => true,
        }
    }

    /// Sends a request that is already in the table of pending calls.
    pub(crate) fn request(
        &self,
        core: &Arc<Core>,
        pending_call: &Arc<PendingCall>,
        prepared: PreparedMessage,
    ) {
        match self {
            Self::Stdio(stdio) => stdio.send(Some(pending_call.number), prepared.text),
            Self::Streamable(http) => http.request(core, pending_call, prepared),
            Self::Sse(sse) => sse.request(core, pending_call, prepared.text),
        }
    }

    /// Sends a notification or an answer.
    pub(crate) fn message(&self, core: &Arc<Core>, text: Bytes) {
        match self {
            Self::Stdio(stdio) => stdio.send(None, text),
            Self::Streamable(http) => http.message(core, text),
            Self::Sse(sse) => sse.message(core, text),
        }
    }

    /// Cancels a call that is no longer pending. Returns whether it is certain that nothing of it was sent.
    pub(crate) fn cancel(&self, core: &Arc<Core>, number: u64, reason: &str) -> bool {
        match self {
            Self::Stdio(stdio) => return stdio.cancel(number, reason),
            Self::Streamable(http) => http.cancel(core, number, reason),
            Self::Sse(sse) => sse.message(core, cancellation(number, reason)),
        }
        false
    }

    /// Moves the timer for expired calls to an earlier time.
    pub(crate) fn rearm(&self) {
        match self {
            Self::Stdio(stdio) => stdio.rearm(),
            Self::Sse(sse) => sse.rearm(),
            // Each call has its own timer.
            Self::Streamable(_) => {}
        }
    }

    /// The server does not know the session any more.
    pub(crate) fn on_session_unknown(&self, core: &Arc<Core>) {
        match self {
            Self::Streamable(http) => http.on_session_unknown(core),
            // The reader of the stream handles it. A child process gives no such answer.
            Self::Sse(_) | Self::Stdio(_) => {}
        }
    }

    /// Updates the stream of server messages after a listener was added or removed.
    pub(crate) fn listen(&self, core: &Arc<Core>) {
        if let Self::Streamable(http) = self {
            http.listen(core);
        }
    }

    /// Sends the last message of the handshake. Waits until the server has received it, if the transport can tell.
    pub(crate) async fn tell_first(
        &self,
        core: &Arc<Core>,
        text: Bytes,
        limit: Duration,
    ) -> Result<(), CallError> {
        let sending = async {
            match self {
                Self::Stdio(stdio) => {
                    stdio.send(None, text);
                    Ok(())
                }
                Self::Streamable(http) => http.tell(core, text).await,
                Self::Sse(sse) => sse.post(core, text).await,
            }
        };
        let late = Err(CallError::TimedOut { limit });
        tokio::time::timeout(limit, sending).await.unwrap_or(late)
    }

    /// End of a child's stderr.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Stdio(stdio) => stdio.tail().text(),
            Self::Streamable(_) | Self::Sse(_) => String::new(),
        }
    }

    /// Memory of a child, in bytes.
    pub(crate) fn memory_meter(&self) -> Option<MemoryMeter> {
        match self {
            Self::Stdio(stdio) => Some(stdio.memory_meter()),
            Self::Streamable(_) | Self::Sse(_) => None,
        }
    }

    pub(crate) fn memory(&self) -> Option<u64> {
        match self {
            Self::Stdio(stdio) => stdio.memory(),
            Self::Streamable(_) | Self::Sse(_) => None,
        }
    }

    /// Processes of the child's tree. Blocks: it reads many small files.
    pub(crate) fn processes(&self) -> Vec<ProcessInfo> {
        match self {
            Self::Stdio(stdio) => stdio.processes(),
            Self::Streamable(_) | Self::Sse(_) => Vec::new(),
        }
    }

    /// Pid of the child process; `None` over HTTP.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Stdio(stdio) => Some(stdio.pid()),
            Self::Streamable(_) | Self::Sse(_) => None,
        }
    }

    /// Session id of the server. It is a secret.
    pub(crate) fn session(&self) -> Option<&str> {
        match self {
            Self::Streamable(http) => Some(http.session()?.as_str()),
            Self::Stdio(_) | Self::Sse(_) => None,
        }
    }

    /// Whether there is state that ends with the transport.
    pub(crate) fn keeps_state(&self) -> bool {
        match self {
            Self::Streamable(http) => http.session().is_some(),
            Self::Stdio(_) | Self::Sse(_) => true,
        }
    }

    /// Starts to end the transport. `Core::gone` is raised when it is done.
    pub(crate) fn begin_close(&self, core: &Arc<Core>, reason: LossReason) {
        match self {
            Self::Stdio(stdio) => stdio.begin_close(core, reason),
            Self::Streamable(http) => http.begin_close(core, reason),
            Self::Sse(sse) => sse.begin_close(core, reason),
        }
    }
}

/// Builds the `notifications/cancelled` of a call.
pub(crate) fn cancellation(number: u64, reason: &str) -> Bytes {
    let reason = stayput_wire::json::quote(reason);
    let params = format!(r#"{{"requestId":{number},"reason":{reason}}}"#);
    super::prepare::notification("notifications/cancelled", Some(&params))
}

impl fmt::Debug for LinkTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio(_) => "stdio",
            Self::Streamable(_) => "Streamable HTTP",
            Self::Sse(_) => "HTTP+SSE",
        })
    }
}
