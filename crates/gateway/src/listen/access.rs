//! Streams that end when their client loses access.
//!
//! A request is checked when it comes. A stream stays open for hours after that, so what was checked is checked
//! again whenever another configuration holds, and a credential that expires ends its streams at that moment.

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
    reply::{Access, Guarded, Reply},
    state::{AppState, snapshot::CurrentSnapshot},
};

/// The access of a client to what it reads.
struct StreamAccess {
    principal: Principal,
    /// The one server that speaks on the stream; none if several may.
    server: Option<Arc<str>>,
    latest: Arc<CurrentSnapshot>,
    /// The number of the configuration that access was checked against.
    checked: u64,
    /// Ready when there is a newer one.
    newer: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Whether that knows whom to wake. It locks what all streams share, so it is polled again only when it is
    /// ready; a connection is one task and stays the one to wake.
    known: bool,
    /// Ready when the credential expires, if it does.
    timer: Option<Pin<Box<Sleep>>>,
    lost: bool,
}

/// Ends the stream of an answer, if it is one, when the client loses access. The user of this machine keeps it.
pub(crate) fn guard(
    app: &AppState,
    principal: &Principal,
    response: Response<Reply>,
) -> Response<Reply> {
    let server = match response.body() {
        Reply::Stream(events) => events.server(),
        Reply::Call(call) => call.server(),
        Reply::Whole(..) | Reply::Guarded(_) => return response,
    };
    if principal.is_local() {
        return response;
    }
    let access = StreamAccess {
        principal: principal.clone(),
        server,
        latest: app.latest.clone(),
        checked: app.number,
        newer: Box::pin(app.latest.newer_than(app.number)),
        known: false,
        timer: None,
        lost: false,
    };
    response.map(|stream| Reply::Guarded(Box::new(Guarded { stream, access: Box::new(access) })))
}

impl Access for StreamAccess {
    /// Ready when access is lost: the credential has expired or is refused by the configuration that holds now,
    /// or the server is not there for this client any more.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.lost {
            if self.poll_expired(cx).is_ready() {
                self.lost = true;
                break;
            }
            if self.known && self.latest.number() == self.checked {
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
    /// Ready when the credential has expired. The clock is read as well as the timer, which stands still while
    /// the machine sleeps: a silent stream is polled for its signs of life.
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

    /// Checks access against the configuration that holds now.
    fn check(&mut self) {
        let app = self.latest.get();
        let granted = app.as_ref().and_then(|app| {
            let principal = app.owners.recheck(&self.principal, SystemClock.now())?;
            let leads = |server: &Arc<str>| app.leads_to(server, &principal);
            self.server.as_ref().is_none_or(leads).then_some((app.number, principal))
        });
        match granted {
            Some((number, principal)) => {
                self.checked = number;
                self.newer = Box::pin(self.latest.newer_than(number));
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
