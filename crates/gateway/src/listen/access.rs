//! Ends streams whose client loses access.
//!
//! A request is checked when it arrives, but a stream stays open for hours after that. So access is checked again
//! with every new configuration, and a credential that expires ends its streams at that moment.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use stayput_core::{Clock as _, SystemClock};
use tokio::time::Sleep;

use crate::{
    auth::Principal,
    cluster,
    reply::{Access, GuardedStream, Reply},
    state::{AppState, snapshot::CurrentSnapshot},
};

/// Access of a client to one stream.
struct StreamAccess {
    principal: Principal,
    /// The one server that writes to the stream; `None` if several may.
    server: Option<Arc<str>>,
    /// Whether the stream is for administrators.
    admin: bool,
    current: Arc<CurrentSnapshot>,
    /// Number of the configuration that access was checked against.
    checked: u64,
    /// Ready when there is a newer configuration.
    newer: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Whether `newer` has the waker. Polling it locks a value that all streams share, so it is polled again only
    /// when it is ready. The waker stays valid, because a connection is one task.
    known: bool,
    /// Ready when the credential expires; `None` without an expiry.
    timer: Option<Pin<Box<Sleep>>>,
    lost: bool,
}

/// Wraps a streamed answer so that it ends when the client loses access. The local user never loses access, and the
/// replica that a client is connected to watches over its access.
pub(crate) fn guard(
    app: &AppState,
    principal: &Principal,
    response: Response<Reply>,
) -> Response<Reply> {
    guard_stream(app, principal, response, false)
}

/// Wraps a streamed answer of the admin API: it also ends when the client loses the role.
pub(super) fn guard_admin(
    app: &AppState,
    principal: &Principal,
    response: Response<Reply>,
) -> Response<Reply> {
    guard_stream(app, principal, response, true)
}

fn guard_stream(
    app: &AppState,
    principal: &Principal,
    response: Response<Reply>,
    admin: bool,
) -> Response<Reply> {
    let server = match response.body() {
        Reply::Stream(events) => events.server(),
        Reply::Call(call) => call.server(),
        Reply::Whole(..) | Reply::GuardedStream(_) => return response,
    };
    if principal.is_local() {
        return response;
    }
    if principal.is_forwarded() {
        return cluster::name_server(response, server.as_deref());
    }
    let access = StreamAccess {
        principal: principal.clone(),
        server,
        admin,
        current: app.current.clone(),
        checked: app.number,
        newer: Box::pin(app.current.newer_than(app.number)),
        known: false,
        timer: None,
        lost: false,
    };
    response.map(|stream| {
        Reply::GuardedStream(Box::new(GuardedStream { stream, access: Box::new(access) }))
    })
}

impl Access for StreamAccess {
    /// Ready when access is lost: the credential has expired or is refused by the current configuration, or the
    /// client may no longer use the server.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.lost {
            if self.poll_expired(cx).is_ready() {
                self.lost = true;
                break;
            }
            if self.known && self.current.number() == self.checked {
                return Poll::Pending;
            }
            self.known = true;
            ready!(self.newer.as_mut().poll(cx));
            self.check();
        }
        Poll::Ready(())
    }
}

impl StreamAccess {
    /// Ready when the credential has expired. Reads the clock as well as the timer, because the timer stands still
    /// while the machine sleeps. A silent stream is polled for its keep-alive comments.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.principal.until else { return Poll::Pending };
        loop {
            let left = until.since(SystemClock.now());
            if left.is_zero() {
                return Poll::Ready(());
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
    }

    /// Checks access against the current configuration.
    fn check(&mut self) {
        let app = self.current.get();
        let granted = app.as_ref().and_then(|app| {
            let principal = app.authenticator.recheck(&self.principal, SystemClock.now())?;
            let leads = |server: &Arc<str>| app.leads_to(server, &principal);
            let is_admitted = principal.admin || !self.admin;
            (is_admitted && self.server.as_ref().is_none_or(leads))
                .then_some((app.number, principal))
        });
        match granted {
            Some((number, principal)) => {
                self.checked = number;
                self.newer = Box::pin(self.current.newer_than(number));
                self.known = false;
                self.principal = principal;
                self.timer = None;
            }
            None => self.lost = true,
        }
    }
}

impl fmt::Debug for StreamAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamAccess({:?} to {:?})", self.principal.owner, self.server)
    }
}
