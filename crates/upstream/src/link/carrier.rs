//! The transport under a link.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Core, Flight, prepare::Prepared};
use crate::{CallError, LossReason, sse::Sse, stdio::Stdio, streamable::Streamable};

/// What carries the messages of a link. All of it is synchronous, so that no caller can be cancelled
/// in the middle of it.
pub(crate) enum Carrier {
    /// The pipes of a child process.
    Stdio(Box<Stdio>),
    /// One POST for each message.
    Streamable(Streamable),
    /// One stream for all answers: the transport of 2024-11-05.
    Sse(Sse),
}

impl Carrier {
    /// Whether each call has a stream of its own, which its caller reads.
    pub(crate) fn is_read_by_callers(&self) -> bool {
        matches!(self, Self::Streamable(_))
    }

    /// Waits until there is room for one more message. Says whether there is.
    pub(crate) async fn ready(&self, core: &Core, limit: Duration) -> bool {
        match self {
            Self::Stdio(stdio) => stdio.ready(core, limit).await,
            Self::Streamable(_) | Self::Sse(_) => true,
        }
    }

    /// Sends a request that is already in the table of what is in flight.
    pub(crate) fn request(&self, core: &Arc<Core>, flight: &Arc<Flight>, prepared: Prepared) {
        match self {
            Self::Stdio(stdio) => stdio.send(Some(flight.number), prepared.text),
            Self::Streamable(http) => http.request(core, flight, prepared),
            Self::Sse(sse) => sse.request(core, flight, prepared.text),
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

    /// Tells the server that nobody waits for this call. It is in flight no longer. Says whether it is
    /// known that nothing of it was sent.
    pub(crate) fn cancel(&self, core: &Arc<Core>, number: u64, reason: &str) -> bool {
        match self {
            Self::Stdio(stdio) => return stdio.cancel(number, reason),
            Self::Streamable(http) => http.cancel(core, number, reason),
            Self::Sse(sse) => sse.message(core, cancellation(number, reason)),
        }
        false
    }

    /// Calls that took too long have to be looked for earlier than before.
    pub(crate) fn rearm(&self) {
        match self {
            Self::Stdio(stdio) => stdio.rearm(),
            Self::Sse(sse) => sse.rearm(),
            // Each call has a timer of its own.
            Self::Streamable(_) => {}
        }
    }

    /// The server has given the link up.
    pub(crate) fn condemned(&self, core: &Arc<Core>) {
        match self {
            Self::Streamable(http) => http.condemned(core),
            // Whoever reads the stream sees to it. A child gives no verdicts.
            Self::Sse(_) | Self::Stdio(_) => {}
        }
    }

    /// Somebody began to listen, or ceased to.
    pub(crate) fn listen(&self, core: &Arc<Core>) {
        if let Self::Streamable(http) = self {
            http.listen(core);
        }
    }

    /// Sends the last message of a handshake, and waits until the server has it where that can be
    /// known.
    pub(crate) async fn tell_first(
        &self,
        core: &Arc<Core>,
        text: Bytes,
        limit: Duration,
    ) -> Result<(), CallError> {
        let told = async {
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
        tokio::time::timeout(limit, told).await.unwrap_or(late)
    }

    /// The last lines of a child.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Stdio(stdio) => stdio.tail().text(),
            Self::Streamable(_) | Self::Sse(_) => String::new(),
        }
    }

    /// The memory of a child.
    pub(crate) fn memory(&self) -> Option<u64> {
        match self {
            Self::Stdio(stdio) => stdio.memory(),
            Self::Streamable(_) | Self::Sse(_) => None,
        }
    }

    /// The pid of a child.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Stdio(stdio) => Some(stdio.pid()),
            Self::Streamable(_) | Self::Sse(_) => None,
        }
    }

    /// The id of the server's session. A secret.
    pub(crate) fn session(&self) -> Option<&str> {
        match self {
            Self::Streamable(http) => Some(http.session()?.as_str()),
            Self::Stdio(_) | Self::Sse(_) => None,
        }
    }

    /// Whether there is something behind it that ends with it.
    pub(crate) fn keeps_state(&self) -> bool {
        match self {
            Self::Streamable(http) => http.session().is_some(),
            Self::Stdio(_) | Self::Sse(_) => true,
        }
    }

    /// Begins to end it. `Core::gone` is raised when it is done.
    pub(crate) fn shut(&self, core: &Arc<Core>, reason: LossReason) {
        match self {
            Self::Stdio(stdio) => stdio.shut(core, reason),
            Self::Streamable(http) => http.shut(core, reason),
            Self::Sse(sse) => sse.shut(core, reason),
        }
    }
}

/// What a server is told about a call that nobody waits for.
pub(crate) fn cancellation(number: u64, reason: &str) -> Bytes {
    let reason = stayput_wire::json::quote(reason);
    let params = format!(r#"{{"requestId":{number},"reason":{reason}}}"#);
    super::prepare::notification("notifications/cancelled", Some(&params))
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio(_) => "stdio",
            Self::Streamable(_) => "Streamable HTTP",
            Self::Sse(_) => "HTTP+SSE",
        })
    }
}
