//! Live connection to one MCP server.

mod answer;
mod call;
mod client_capabilities;
mod client_info;
mod core;
mod driver;
mod end;
mod inbox;
pub(crate) mod list_pages;
mod listener;
mod negotiated_protocol;
mod pending;
mod pending_call;
pub(crate) mod prepare;
mod receive;
mod request_id;
mod server_request;
pub(crate) mod transport;

use stayput_wire::{Era, Message, ParamHeaders};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::Instant;

use stayput_process::{MemoryMeter, ProcessInfo};

use crate::{
    AtCapacity, InitializeResult, Loss, LossReason, Scope, Server, link::listener::LossCallback,
    util::flag::CompletionGuard,
};

/// Line before the stderr of a child, in the detail of a loss that begins with the end of its output.
pub(crate) const CLOSED_OUTPUT: &str = "it closed its output\n";

pub use crate::link::client_info::{ClientInfo, InvalidClientInfo};
pub use crate::link::server_request::ServerRequest;
pub(crate) use crate::link::transport::{LinkTransport, cancellation};
pub use answer::Answer;
pub use call::{Call, CallError, Canceller};
pub use client_capabilities::ClientCapabilities;
pub(crate) use core::{Core, PoolContext};
pub(crate) use inbox::Inbox;
pub use inbox::Incoming;
pub use listener::Listener;
pub(crate) use listener::Listeners;
pub(crate) use negotiated_protocol::{NegotiatedProtocol, marks};
pub(crate) use pending_call::{PendingCall, expiry};
pub(crate) use prepare::{PreparedMessage, Routing, compose, notification, one_line};
pub(crate) use receive::MessageSource;

/// Live stack between a session and one server: a child process or an HTTP client, its reader, and the
/// negotiated protocol. All parts start and end together.
///
/// Requests are JSON-RPC messages that are sent as they were written; only the id and the progress token are
/// replaced, and restored in the answers. A link that has ended is not reused: [`Links`] opens the next one,
/// with the next generation.
///
/// [`Links`]: crate::Links
pub struct Link {
    /// Only field: the data of a call is one pointer away from the link.
    core: Arc<Core>,
}

/// Options of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// Time without an answer or progress after which the call fails. `None` uses the timeout of the server.
    pub limit: Option<Duration>,
    /// Requests that the client of this call can answer.
    pub capabilities: ClientCapabilities,
}

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    /// A client, which gave the request an id.
    Elsewhere,
    /// Stayput itself: the request has no id of its own.
    Here,
    /// The handshake: its answer may name the session, and it is never cancelled on the wire.
    Handshake,
}

impl Link {
    pub(crate) fn new(core: Arc<Core>, initialize_result: InitializeResult) -> Self {
        let first = core.initialize_result.set(initialize_result).is_ok();
        debug_assert!(first, "a core becomes a link once");
        core.shares.fetch_add(1, Ordering::Relaxed);
        Self { core }
    }

    /// Returns another reference to the link. The link is released when all are dropped.
    pub(crate) fn share(&self) -> Self {
        self.core.shares.fetch_add(1, Ordering::Relaxed);
        Self { core: self.core.clone() }
    }

    /// Sends a request, given as a whole message. The call is in flight when this returns.
    ///
    /// # Errors
    /// If the link has ended, or the message is not a request.
    pub async fn send(
        &self,
        request: &Message<'_>,
        options: CallOptions,
    ) -> Result<Call, CallError> {
        self.core.call(request, options, RequestOrigin::Elsewhere).await
    }

    /// Sends a request with this method and these JSON parameters.
    ///
    /// # Errors
    /// As for [`Link::send`].
    pub async fn call(
        &self,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
    ) -> Result<Call, CallError> {
        self.core.call_parts(method, params, options).await
    }

    /// Sends a notification, given as a whole message.
    ///
    /// # Errors
    /// If the message is not a notification.
    pub fn tell(&self, message: &Message<'_>) -> Result<(), CallError> {
        if !matches!(message.kind(), stayput_wire::MessageKind::Notification { .. }) {
            return Err(CallError::Invalid("only a notification can be told".into()));
        }
        self.core.tell(one_line(message.text()));
        Ok(())
    }

    /// Listens for messages of the server outside any call. `capabilities` lists the requests that the listener
    /// can answer.
    ///
    /// For a modern server, `interest` is the `notifications` object of `subscriptions/listen`. A legacy
    /// server has no such filter and ignores `interest`.
    ///
    /// # Errors
    /// If the link has ended, or `interest` is not JSON.
    pub async fn listen(
        &self,
        interest: &str,
        capabilities: ClientCapabilities,
    ) -> Result<Listener, CallError> {
        if self.era() == Era::Modern {
            let params = format!(r#"{{"notifications":{interest}}}"#);
            // The subscription may stay silent for hours.
            let limit = Some(Duration::MAX);
            let options = CallOptions { limit, capabilities };
            let call = self.call("subscriptions/listen", Some(&params), options).await?;
            return Ok(Listener::on_call(call));
        }
        Ok(Listener::on_link(self.core.clone(), capabilities))
    }

    /// Listens for messages of a legacy server outside any call, as [`Link::listen`]. `None` for a modern
    /// server, which needs a request for that. The listener does not keep the link alive.
    #[must_use]
    pub fn listener(&self, capabilities: ClientCapabilities) -> Option<Listener> {
        let legacy = self.era() == Era::Legacy;
        legacy.then(|| Listener::on_link(self.core.clone(), capabilities))
    }

    /// Whether the link was just opened or resumed. Returns `true` once.
    #[must_use]
    pub fn is_new(&self) -> bool {
        let fresh = &self.core.fresh;
        fresh.load(Ordering::Relaxed) && fresh.swap(false, Ordering::Relaxed)
    }

    /// Server info and capabilities from the handshake.
    #[must_use]
    pub fn initialize_result(&self) -> &InitializeResult {
        // Set when the link was created; the default is never used.
        self.core.initialize_result.get_or_init(InitializeResult::nothing)
    }

    /// Records from a page of `tools/list` which arguments a modern server wants as headers.
    pub fn learn_tools(&self, result: &str) {
        if let Some(protocol) = self.core.protocol.get() {
            protocol.learn_tools(result);
        }
    }

    /// Reason why the link has ended, if it has.
    #[must_use]
    pub fn loss(&self) -> Option<Arc<Loss>> {
        self.core.loss()
    }

    /// Waits until the link has ended.
    pub async fn over(&self) -> Arc<Loss> {
        self.core.over.wait().await;
        let unknown = || Arc::new(Loss::new(LossReason::Ended, ""));
        self.core.loss().unwrap_or_else(unknown)
    }

    /// Number of calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    /// Start of the time without calls in flight. `None` if there is one, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.core.quiet_since()
    }

    /// Number of list changes that the server reported since the lists were last fetched on this link.
    #[must_use]
    pub fn lists_changed(&self) -> u64 {
        let Some(counts) = self.core.counted() else { return 0 };
        let known = counts.lists_known.load(Ordering::Relaxed);
        counts.lists_changed.load(Ordering::Relaxed).saturating_sub(known)
    }

    /// Marks this many more list changes as fetched.
    pub(crate) fn lists_learned(&self, changes: u64) {
        self.core.counts().lists_known.fetch_add(changes, Ordering::Relaxed);
    }

    /// Arguments of this tool that are sent as headers, as far as the tools were listed on this link.
    #[must_use]
    pub fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        self.core.protocol.get()?.param_headers(tool)
    }

    /// Counters of dropped messages.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        let counts = self.core.counts();
        LinkCounts {
            late: counts.late.load(Ordering::Relaxed),
            invalid_lines: counts.invalid_lines.load(Ordering::Relaxed),
            unanswerable: counts.unanswerable.load(Ordering::Relaxed),
            unheard: counts.unheard.load(Ordering::Relaxed),
            unsent: counts.unsent.load(Ordering::Relaxed),
        }
    }

    /// Last lines that a child process wrote to stderr, without the server's secrets. Empty for other servers.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        self.core.stderr_tail()
    }

    /// Session id of the server, if the transport has one. It is a secret.
    pub(crate) fn session(&self) -> Option<&str> {
        self.core.transport.session()
    }

    /// Whether the server keeps state behind the link that can be lost. A modern server does not, unless it is a
    /// process that also speaks the legacy era; nor does one without a session id.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        let dual = self.is_process() && self.is_for_modern_clients();
        (self.era() == Era::Legacy || dual) && self.core.transport.keeps_state()
    }

    /// Whether another process can continue behind the server: there is no state, or a session id names it. The state of
    /// a process, and of an HTTP+SSE stream, ends with the link.
    #[must_use]
    pub fn can_move(&self) -> bool {
        !self.keeps_state() || self.session().is_some()
    }

    /// Whether a modern client opened this link to a server that speaks both eras.
    #[must_use]
    pub fn is_for_modern_clients(&self) -> bool {
        self.era() == Era::Modern && self.core.is_for_modern_clients()
    }

    /// Notes that a client of the other era uses the link. Returns `true` once.
    #[must_use]
    pub fn is_first_translation(&self) -> bool {
        !self.core.translated.swap(true, Ordering::Relaxed)
    }

    /// Era that the server is spoken to in. It stays the same for the lifetime of the link.
    #[must_use]
    pub fn era(&self) -> Era {
        self.initialize_result().era()
    }

    pub(crate) fn is_process(&self) -> bool {
        self.core.server.is_process()
    }

    /// See [`Core::assign`].
    pub(crate) fn assign(
        &self,
        server: &Server,
        scope: &Scope,
        completion: CompletionGuard,
    ) -> Result<(), AtCapacity> {
        self.core.assign(server, scope, completion)
    }

    /// See [`Core::settled`].
    pub(crate) fn settled(&self) {
        self.core.settled();
    }

    /// Calls `callback` once when the link ends, or now if it has ended. It may be called under locks of the pool.
    pub(crate) fn on_loss(&self, callback: LossCallback) {
        self.core.on_loss(callback);
    }

    /// Starts to end the link. Calls in flight fail at once.
    pub fn close(&self, reason: LossReason) {
        self.core.leave();
        self.core.transport.begin_close(&self.core, reason);
    }

    /// Pid of the child process. `None` for other servers.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.core.transport.pid()
    }

    /// Memory of the child process and its descendants, in bytes. Blocks: it reads many small files.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.core.transport.memory()
    }

    /// Meter of the same memory, which does not keep the link alive.
    pub(crate) fn memory_meter(&self) -> Option<MemoryMeter> {
        self.core.transport.memory_meter()
    }

    /// Child process and its descendants. Blocks: it reads many small files.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.core.transport.processes()
    }

    /// Whether the link has released everything.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.core.gone.is_raised()
    }

    /// Waits until the link has released everything: process, sockets and tasks.
    pub async fn gone(&self) {
        self.core.gone.wait().await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.core.shares.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close(LossReason::Released);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:?})", self.core)
    }
}

/// Counters of messages that were dropped on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Answers and progress for calls that are no longer in flight.
    pub late: u64,
    /// Lines that were not messages.
    pub invalid_lines: u64,
    /// Requests of the server for which no client was found.
    pub unanswerable: u64,
    /// Notifications without a listener.
    pub unheard: u64,
    /// Messages to the server that need no answer, dropped because too many others were on their way over HTTP.
    pub unsent: u64,
}
