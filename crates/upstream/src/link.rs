//! A live connection to one MCP server.

mod answer;
mod asked;
mod call;
mod carrier;
mod core;
mod declares;
mod driver;
mod flight;
mod hello;
mod inbox;
mod listener;
mod number;
mod pending;
pub(crate) mod prepare;
mod receive;
mod terms;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use stayput_wire::{Message, ParamHeaders};
use tokio::time::Instant;

pub use answer::Answer;
pub use asked::Asked;
pub use call::{Call, CallError, Canceller};
pub(crate) use carrier::{Carrier, cancellation};
pub(crate) use core::{Core, Home};
pub use declares::Declares;
pub(crate) use flight::{Flight, expiry};
pub use hello::{Hello, InvalidHello};
pub(crate) use inbox::Inbox;
pub use inbox::Incoming;
pub use listener::Listener;
pub(crate) use listener::Listeners;
pub(crate) use prepare::{Prepared, Routing, compose, notification, one_line};
pub(crate) use receive::Via;
pub use terms::Greeting;
pub(crate) use terms::{Terms, marks};

use crate::{Loss, LossReason};

/// The whole live stack from a session to one server: a child process or an HTTP client, whoever reads
/// it, and what was agreed. It lives and dies as one piece.
///
/// What is sent is a message of JSON-RPC as its maker wrote it; only its id and its progress token are
/// replaced on the way, and put back into what comes. A link that is over stays over: [`Links`] opens
/// the next one, on the next generation.
///
/// [`Links`]: crate::Links
pub struct Link {
    /// The only thing in it: who has a link in hand is one step from what a call needs.
    core: Arc<Core>,
}

/// How a call is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// The time without an answer and without progress after which it fails; the server's own if
    /// none is given.
    pub limit: Option<Duration>,
    /// What the client behind this call can be asked.
    pub declares: Declares,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// From somebody who gave it an id.
    Elsewhere,
    /// From here: it has no id of its own.
    Here,
    /// From here, to open a link: its answer may name the session, and it is never cancelled on the
    /// wire.
    Handshake,
}

impl Link {
    pub(crate) fn new(core: Arc<Core>, greeting: Greeting) -> Self {
        let first = core.greeting.set(greeting).is_ok();
        debug_assert!(first, "a core becomes a link once");
        core.shares.fetch_add(1, Ordering::Relaxed);
        Self { core }
    }

    /// The same link for somebody else: it is let go of when all have dropped it.
    pub(crate) fn share(&self) -> Self {
        self.core.shares.fetch_add(1, Ordering::Relaxed);
        Self { core: self.core.clone() }
    }

    /// Sends a request, a whole message. It is in flight when this returns.
    ///
    /// # Errors
    /// If the link is over, or the message is no request.
    pub async fn send(
        &self,
        request: &Message<'_>,
        options: CallOptions,
    ) -> Result<Call, CallError> {
        self.core.call(request, options, Made::Elsewhere).await
    }

    /// Sends a request made from its method and its parameters, which are JSON.
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

    /// Tells the server something: a whole message that asks for no answer.
    ///
    /// # Errors
    /// If it is no notification.
    pub fn tell(&self, message: &Message<'_>) -> Result<(), CallError> {
        if !matches!(message.kind(), stayput_wire::MessageKind::Notification { .. }) {
            return Err(CallError::Invalid("only a notification can be told".into()));
        }
        self.core.tell(one_line(message.text()));
        Ok(())
    }

    /// Hears what the server says outside any call. `declares` says what may be asked there.
    ///
    /// A modern server is asked for what it should tell; `interest` is the `notifications` object of
    /// `subscriptions/listen`. On a legacy server it has no meaning: it tells what it wants.
    ///
    /// # Errors
    /// If the link is over, or `interest` is not JSON.
    pub async fn listen(&self, interest: &str, declares: Declares) -> Result<Listener, CallError> {
        if self.greeting().era() == stayput_wire::Era::Modern {
            let params = format!(r#"{{"notifications":{interest}}}"#);
            // Nothing may come for hours.
            let limit = Some(Duration::MAX);
            let options = CallOptions { limit, declares };
            let call = self.call("subscriptions/listen", Some(&params), options).await?;
            return Ok(Listener::on_call(call));
        }
        Ok(Listener::on_link(self.core.clone(), declares))
    }

    /// Hears what a legacy server says outside any call, as [`Link::listen`]; `None` for a modern one, which
    /// has to be asked for it. What hears it does not keep the link.
    #[must_use]
    pub fn listener(&self, declares: Declares) -> Option<Listener> {
        let legacy = self.greeting().era() == stayput_wire::Era::Legacy;
        legacy.then(|| Listener::on_link(self.core.clone(), declares))
    }

    /// Whether it was just opened, or taken up again. Only the first who asks is told so.
    #[must_use]
    pub fn is_new(&self) -> bool {
        let fresh = &self.core.fresh;
        fresh.load(Ordering::Relaxed) && fresh.swap(false, Ordering::Relaxed)
    }

    /// What the server said of itself.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        // It was set when the link was made.
        self.core.greeting.get_or_init(Greeting::nothing)
    }

    /// Learns from a page of `tools/list` which arguments a modern server wants as headers.
    pub fn learn_tools(&self, result: &str) {
        if let Some(terms) = self.core.terms.get() {
            terms.learn_tools(result);
        }
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn loss(&self) -> Option<Arc<Loss>> {
        self.core.loss()
    }

    /// Waits until it is over.
    pub async fn over(&self) -> Arc<Loss> {
        self.core.over.wait().await;
        let unknown = || Arc::new(Loss::new(LossReason::Ended, ""));
        self.core.loss().unwrap_or_else(unknown)
    }

    /// How many calls are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    /// Since when nothing is in flight; none if something is, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.core.quiet_since()
    }

    /// How often the server said that one of its lists changed, since they were last learned on this link.
    #[must_use]
    pub fn lists_changed(&self) -> u64 {
        let Some(counts) = self.core.counted() else { return 0 };
        let known = counts.lists_known.load(Ordering::Relaxed);
        counts.lists_changed.load(Ordering::Relaxed).saturating_sub(known)
    }

    /// The lists are known as they are after this many more changes.
    pub(crate) fn lists_learned(&self, changes: u64) {
        self.core.counts().lists_known.fetch_add(changes, Ordering::Relaxed);
    }

    /// Which arguments of this tool travel as headers, as far as the tools were listed on this link.
    #[must_use]
    pub fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        self.core.terms.get()?.param_headers(tool)
    }

    /// What happened on it that nobody was told of.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        let counts = self.core.counts();
        LinkCounts {
            late: counts.late.load(Ordering::Relaxed),
            rubbish: counts.rubbish.load(Ordering::Relaxed),
            unanswerable: counts.unanswerable.load(Ordering::Relaxed),
            unheard: counts.unheard.load(Ordering::Relaxed),
        }
    }

    /// The last lines that a child process wrote to its standard error, without the server's secrets;
    /// nothing for other servers.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.core.last_words()
    }

    /// The id that the server gave its session, if this transport has one. A secret.
    pub(crate) fn session(&self) -> Option<&str> {
        self.core.carrier.session()
    }

    /// Whether the server keeps something behind it that can get lost: a modern one does not, nor one that
    /// gave no session.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        self.greeting().era() == stayput_wire::Era::Legacy && self.core.carrier.keeps_state()
    }

    pub(crate) fn is_process(&self) -> bool {
        self.core.server.is_process()
    }

    /// See [`Core::settled`].
    pub(crate) fn settled(&self) {
        self.core.settled();
    }

    /// Begins to end it. Whatever is in flight fails at once.
    pub fn close(&self, reason: LossReason) {
        self.core.leave();
        self.core.carrier.shut(&self.core, reason);
    }

    /// The pid of a child process; nothing for other servers.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.core.carrier.pid()
    }

    /// The bytes of memory that a child process and all that descends from it use. It reads many
    /// small files: to be called where that may block.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.core.carrier.memory()
    }

    /// Whether nothing of it is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.core.gone.is_raised()
    }

    /// Waits until nothing of it is left: no process, no socket, no task.
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

/// What happened on a link that nobody was told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Answers and progress for calls that were forgotten.
    pub late: u64,
    /// Lines that were no messages.
    pub rubbish: u64,
    /// Questions of the server that nobody could be found for.
    pub unanswerable: u64,
    /// Notifications that nobody listened to.
    pub unheard: u64,
}
