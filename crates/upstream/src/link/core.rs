//! Inner state of a link, shared by its callers, tasks and transport.

use bytes::Bytes;
use stayput_sync::Mutex;
use stayput_wire::{Era, Message};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

use super::{
    Call, CallError, CallOptions, ClientCapabilities, Inbox, LinkTransport, Listeners,
    NegotiatedProtocol, PendingCall, RequestOrigin,
    listener::LossCallback,
    pending::Pending,
    prepare::{self, PreparedMessage},
};
use crate::{
    AtCapacity, Budget, Delivery, InitializeResult, Loss, Scope, Server,
    budget::link_permit::LinkPermit,
    link::request_id,
    util::flag::{CompletionGuard, Flag},
};

/// Data shared by all links of a pool.
#[derive(Debug)]
pub(crate) struct PoolContext {
    pub(crate) runtime: Handle,
    pub(crate) budget: Budget,
    /// Number of list changes reported by any server on any link.
    pub(crate) lists_changed: AtomicU64,
}

/// State of a link, shared by all its users.
pub(crate) struct Core {
    /// Number of `Link` values. The last one dropped releases the link.
    pub(super) shares: AtomicUsize,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) server: Server,
    pub(super) home: Arc<PoolContext>,
    pub(crate) protocol: OnceLock<NegotiatedProtocol>,
    pub(crate) transport: LinkTransport,
    /// Server info and capabilities, set by the handshake.
    pub(super) initialize_result: OnceLock<InitializeResult>,
    /// Cleared by the first call of `Link::is_new`.
    pub(super) fresh: AtomicBool,
    /// Whether a client of the other era has used the link.
    pub(super) translated: AtomicBool,
    /// Whether several sessions may use the link. Then a message without a call may concern any of their
    /// clients, and must not reach the others.
    shared: AtomicBool,
    /// Whether a modern client opened the link to a server that speaks both eras.
    for_modern_clients: AtomicBool,
    /// Whether the next call of a client gets the requests that are held.
    releases_held: AtomicBool,
    pub(crate) listeners: Mutex<Listeners>,
    counts: OnceLock<Box<Counts>>,
    /// Flag that is raised when the link has ended.
    pub(crate) over: Flag,
    /// Flag that is raised when the link has released everything: process, sockets and tasks.
    pub(crate) gone: Flag,
    /// Budget permit, held until the link has released everything.
    permit: Mutex<Option<LinkPermit>>,
}

/// Counters of a link.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Answers to calls that are no longer pending.
    pub(crate) late: AtomicU64,
    /// Lines that were not messages.
    pub(crate) invalid_lines: AtomicU64,
    /// Requests of the server for which no client was found.
    pub(crate) unanswerable: AtomicU64,
    /// Notifications without a listener.
    pub(crate) unheard: AtomicU64,
    /// Number of list changes that the server reported.
    pub(crate) lists_changed: AtomicU64,
    /// Number of these changes that were fetched.
    pub(crate) lists_known: AtomicU64,
    /// Messages without an answer that are on their way over HTTP.
    pub(crate) posting: AtomicUsize,
    /// Messages without an answer that were dropped, because too many others were on their way.
    pub(crate) unsent: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        server: Server,
        transport: LinkTransport,
        home: Arc<PoolContext>,
        permit: LinkPermit,
        shared: bool,
    ) -> Arc<Self> {
        let for_modern_clients = AtomicBool::new(server.preferred_era() == Era::Modern);
        Arc::new(Self {
            server,
            transport,
            home,
            pending: Mutex::default(),
            listeners: Mutex::default(),
            protocol: OnceLock::new(),
            counts: OnceLock::new(),
            over: Flag::default(),
            gone: Flag::default(),
            shares: AtomicUsize::new(0),
            initialize_result: OnceLock::new(),
            fresh: AtomicBool::new(true),
            translated: AtomicBool::new(false),
            shared: AtomicBool::new(shared),
            for_modern_clients,
            releases_held: AtomicBool::new(false),
            permit: Mutex::new(Some(permit)),
        })
    }

    /// Runtime of the tasks and timers, whatever the caller's runtime is.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.home.runtime
    }

    /// Returns the counters, allocated on first use. Most links never need them.
    pub(crate) fn counts(&self) -> &Counts {
        self.counts.get_or_init(Box::default)
    }

    /// Counts a list change that the server reported.
    pub(crate) fn list_changed(&self) {
        self.counts().lists_changed.fetch_add(1, Ordering::Relaxed);
        // After the count of the link, so that a reader of this count sees that one too.
        self.home.lists_changed.fetch_add(1, Ordering::Release);
    }

    /// Last lines that a child wrote to stderr, without secrets.
    pub(crate) fn stderr_tail(&self) -> String {
        self.server.log_redactor().redact(&self.transport.hint()).into_owned()
    }

    /// Returns the counters, if any were allocated.
    pub(crate) fn counted(&self) -> Option<&Counts> {
        self.counts.get().map(|counts| &**counts)
    }

    /// Whether several sessions may use the link.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Whether a modern client opened the link, provided that its server speaks both eras.
    pub(super) fn is_for_modern_clients(&self) -> bool {
        self.for_modern_clients.load(Ordering::Relaxed)
    }

    /// Assigns a link that was opened to probe the server to the scope that uses it from now on. Fails if the owner of
    /// that scope is at its limit.
    pub(crate) fn assign(
        &self,
        server: &Server,
        scope: &Scope,
        completion: CompletionGuard,
    ) -> Result<(), AtCapacity> {
        if let Some(permit) = &mut *self.permit.lock() {
            permit.assign(scope.owner())?;
            permit.follow(completion);
        }
        self.shared.store(scope.session().is_none(), Ordering::Relaxed);
        let for_modern_clients = server.preferred_era() == Era::Modern;
        self.for_modern_clients.store(for_modern_clients, Ordering::Relaxed);
        Ok(())
    }

    /// Holds requests of the server for the client that it is told of, until that client calls or listens. A server may
    /// ask as soon as the handshake is done.
    pub(crate) fn hold_requests(&self, capabilities: ClientCapabilities) {
        if !self.is_shared() && capabilities != ClientCapabilities::default() {
            self.listeners.lock().begin_to_hold(capabilities);
        }
    }

    /// Passes the held requests on to a call or listener of a client with these capabilities.
    pub(super) fn hand_over_held(&self, inbox: &Inbox, capabilities: ClientCapabilities) {
        if !self.releases_held.load(Ordering::Relaxed) {
            return;
        }
        let requests = {
            let mut listeners = self.listeners.lock();
            let requests = listeners.take_held(capabilities);
            self.releases_held.store(listeners.is_holding(), Ordering::Relaxed);
            requests
        };
        for request in requests {
            // If the inbox is full, the request is dropped, which refuses it.
            let _ = inbox.ask(request);
        }
    }

    /// Marks the permit as that of an opened link, which clients use from now on.
    pub(crate) fn settled(&self) {
        self.releases_held.store(self.listeners.lock().is_holding(), Ordering::Relaxed);
        if let Some(permit) = &mut *self.permit.lock() {
            permit.settle();
        }
    }

    /// Frees the permit and raises `gone`.
    pub(crate) fn release_permit(&self) {
        let permit = self.permit.lock().take();
        drop(permit);
        self.gone.raise();
    }

    /// Marks the permit as about to be freed, so that the budget does not evict another link for it.
    pub(crate) fn leave(&self) {
        if let Some(permit) = &*self.permit.lock() {
            permit.leaving();
        }
    }

    /// Sends a request. It is in flight when this returns; the answer comes to the [`Call`].
    pub(crate) async fn call(
        self: &Arc<Self>,
        message: &Message<'_>,
        options: CallOptions,
        origin: RequestOrigin,
    ) -> Result<Call, CallError> {
        let limit = self.ready(options).await?;
        let number = request_id::next();
        let mut prepared = prepare::request(message, number, self.protocol.get())?;
        prepared.handshake = origin == RequestOrigin::Handshake;
        let id = message
            .id()
            .filter(|_| origin == RequestOrigin::Elsewhere)
            .map(stayput_wire::Id::to_buf);
        let pending_call = PendingCall::new(number, id, &mut prepared, options, limit);
        self.admit(pending_call, prepared)
    }

    /// Sends a request that is built from its parts.
    pub(crate) async fn call_parts(
        self: &Arc<Self>,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
    ) -> Result<Call, CallError> {
        let limit = self.ready(options).await?;
        let number = request_id::next();
        let mut prepared = match prepare::plain(method, params, number, self.protocol.get()) {
            Some(prepared) => prepared,
            None => {
                let text = prepare::compose(method, params);
                let message = Message::parse(text.as_bytes());
                let message =
                    message.map_err(|error| CallError::Invalid(error.to_string().into()))?;
                prepare::request(&message, number, self.protocol.get())?
            }
        };
        let pending_call = PendingCall::new(number, None, &mut prepared, options, limit);
        self.admit(pending_call, prepared)
    }

    /// Waits until the transport accepts one more message. Returns the timeout of the call.
    async fn ready(&self, options: CallOptions) -> Result<Duration, CallError> {
        let limit = options.limit.unwrap_or(self.server.options().timeouts.call);
        match self.transport.ready(self, limit).await {
            true => Ok(limit),
            false => Err(not_read_error(limit)),
        }
    }

    /// Registers and sends the call without an await, so that a cancelled caller leaves a complete call or none.
    fn admit(
        self: &Arc<Self>,
        pending_call: Arc<PendingCall>,
        prepared: PreparedMessage,
    ) -> Result<Call, CallError> {
        let earlier = self.pending.lock().add(pending_call.clone())?;
        let call = Call::new(self.clone(), pending_call);
        self.hand_over_held(&call.pending_call.inbox, call.pending_call.capabilities);
        self.transport.request(self, &call.pending_call, prepared);
        if earlier {
            self.transport.rearm();
        }
        Ok(call)
    }

    /// Stores the task that reads the answer of this call.
    pub(crate) fn driven(&self, pending_call: &PendingCall, driver: AbortHandle) {
        pending_call.read_by_task(driver);
        if !self.pending.lock().is_in_flight(pending_call.number) {
            // The link ended before the task was stored: stop it here.
            pending_call.stop_driver();
        }
    }

    /// Sends a message without an answer. It is dropped if the link has ended.
    pub(crate) fn tell(self: &Arc<Self>, text: Bytes) {
        self.transport.message(self, text);
    }

    /// Sends the answer to a request of the server, unless it was cancelled, its call has ended or the link
    /// has ended.
    pub(crate) fn answer_asked(self: &Arc<Self>, question: u64, text: &str) {
        if self.pending.lock().answered(question) {
            self.tell(prepare::one_line(text));
        }
    }

    /// Calls `callback` once when the link ends, or now if it has ended.
    pub(super) fn on_loss(&self, callback: LossCallback) {
        self.listeners.lock().on_loss = Some(callback);
        // The link may have ended before the callback was stored.
        if let Some(loss) = self.loss() {
            self.report_loss(&loss);
        }
    }

    pub(super) fn report_loss(&self, loss: &Loss) {
        let callback = self.listeners.lock().on_loss.take();
        if let Some(callback) = callback {
            callback(loss);
        }
    }

    /// Reason why the link has ended, if it has.
    pub(crate) fn loss(&self) -> Option<Arc<Loss>> {
        self.pending.lock().closed().cloned()
    }

    pub(crate) fn lost(&self, delivery: Delivery) -> Option<CallError> {
        Some(CallError::Lost { loss: self.loss()?, delivery })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.pending.lock().len()
    }

    /// Start of the time without calls in flight. `None` if there is one, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.pending.lock().quiet_since()
    }
}

/// Error for a request that the server did not read.
pub(super) fn not_read_error(limit: Duration) -> CallError {
    let limit = stayput_http::rounded(limit);
    let what = format!(
        "the server did not take the request within {limit:?}, because it does not read; nothing of \
         it was sent"
    );
    CallError::failed(what, Delivery::NotSent)
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, transport) = (self.server.name(), &self.transport);
        write!(f, "Core({server} over {transport:?}, {} in flight)", self.in_flight())
    }
}
