//! Ends of calls, and the end of the link.
//!
//! | method | ends | the caller gets | the server gets |
//! |---|---|---|---|
//! | [`Core::take_call`] | one call | its answer, from the code that took it | nothing |
//! | [`Core::cancel`] | one call | nothing: it asked for the end | a cancellation |
//! | [`Core::give_up`] | one call | an error | a cancellation |
//! | [`Core::fail`] | one call | an error | nothing |
//! | [`Core::expire`] | all calls that took too long | a timeout | a cancellation |
//! | [`Core::fail_all`] | all calls | the same error | nothing |
//! | [`Core::close`] | the link and all calls | the loss | nothing |
//! | [`Core::end_unknown_session`] | the link | the answer that is on its way | nothing |
//! | [`Core::fail_rest`] | all calls that got no answer after that | the loss | nothing |
//!
//! Each call is removed from the table of pending calls by exactly one of them.

use std::sync::Arc;

use tokio::time::Instant;

use super::{CallError, Core, PendingCall, core::not_read_error, pending::Pending};
use crate::{Delivery, Loss, LossReason};

impl Core {
    /// Removes calls from the table. If none is left, notifies the budget that the link may be idle.
    fn withdraw<T>(&self, take: impl FnOnce(&mut Pending) -> T) -> T {
        let (taken, idle) = {
            let mut pending = self.pending.lock();
            (take(&mut pending), pending.len() == 0)
        };
        if idle {
            self.home.budget.idle();
        }
        taken
    }

    /// Removes a call from the table.
    pub(crate) fn take_call(&self, number: u64) -> Option<Arc<PendingCall>> {
        self.withdraw(|pending| pending.take(number))
    }

    /// Removes a call if it is in the table, which it usually is not any more.
    pub(crate) fn take_if_in_flight(&self, number: u64) -> Option<Arc<PendingCall>> {
        let in_flight = self.pending.lock().is_in_flight(number);
        if in_flight { self.take_call(number) } else { None }
    }

    /// Ends all calls in flight with the same error.
    pub(crate) fn fail_all(&self, error: &CallError) {
        for pending_call in self.withdraw(Pending::drain) {
            pending_call.inbox.end(Err(error.clone()));
        }
    }

    /// Cancels a call, because its caller does not need the answer any more.
    pub(crate) fn cancel(self: &Arc<Self>, number: u64) {
        if let Some(pending_call) =
            self.withdraw(|pending| pending.give_up(number, self.is_shared()))
        {
            let _ = self.stop(&pending_call, "the caller does not need the answer any more");
        }
    }

    /// Ends a call with an error and cancels it at the server.
    pub(crate) fn give_up(self: &Arc<Self>, number: u64, error: CallError) {
        if let Some(pending_call) =
            self.withdraw(|pending| pending.give_up(number, self.is_shared()))
        {
            let reason = error.to_string();
            pending_call.inbox.end(Err(error));
            let _ = self.stop(&pending_call, &reason);
        }
    }

    /// Ends a call with an error without a message to the server.
    pub(crate) fn fail(&self, number: u64, error: CallError) {
        let may_run = self.is_shared() && error.delivery().may_have_run();
        if let Some(pending_call) = self.withdraw(|pending| pending.give_up(number, may_run)) {
            pending_call.inbox.end(Err(error));
        }
    }

    /// Cancels the call at the server, if it is not a handshake. Returns whether nothing of it was sent.
    fn stop(self: &Arc<Self>, pending_call: &PendingCall, reason: &str) -> bool {
        let unsent =
            !pending_call.is_handshake && self.transport.cancel(self, pending_call.number, reason);
        if unsent {
            self.pending.lock().settle(pending_call.number);
        }
        pending_call.stop_driver();
        unsent
    }

    /// Ends the calls whose timeout expired.
    pub(crate) fn expire(self: &Arc<Self>) {
        for pending_call in
            self.withdraw(|pending| pending.expire(Instant::now(), self.is_shared()))
        {
            let unsent = self.stop(&pending_call, "it took too long");
            let limit = pending_call.limit;
            let error = if unsent { not_read_error(limit) } else { CallError::TimedOut { limit } };
            pending_call.inbox.end(Err(error));
        }
    }

    /// Ends the link. Returns whether it was still live.
    ///
    /// Calls in flight fail at once. `not_sent` tells for which of them no byte was written.
    pub(crate) fn close(&self, loss: Loss, not_sent: &dyn Fn(u64) -> bool) -> bool {
        let loss = Arc::new(loss);
        let failed = {
            let mut pending = self.pending.lock();
            if !pending.close(&loss) {
                return false;
            }
            pending.drain()
        };
        self.trace_loss(&loss, failed.len());
        self.leave();
        self.over.raise();
        for pending_call in failed {
            let unsent = not_sent(pending_call.number);
            let delivery = if unsent { Delivery::NotSent } else { Delivery::Unknown };
            pending_call.inbox.end(Err(CallError::Lost { loss: loss.clone(), delivery }));
            pending_call.stop_driver();
        }
        self.end_listeners(&loss);
        true
    }

    /// Ends the link because the server does not know the session. Calls in flight may wait for their own
    /// answer for a moment: it is more precise than an unknown delivery.
    pub(crate) fn end_unknown_session(self: &Arc<Self>, detail: &str) -> Arc<Loss> {
        let loss = Arc::new(Loss::new(LossReason::SessionUnknown, detail));
        let mut pending = self.pending.lock();
        let first = pending.close(&loss);
        let loss = pending.closed().cloned().unwrap_or(loss);
        drop(pending);
        self.over.raise();
        self.end_listeners(&loss);
        if first {
            self.trace_loss(&loss, 0);
            self.transport.on_session_unknown(self);
        }
        loss
    }

    /// Ends the remaining calls of a link that has ended.
    pub(crate) fn fail_rest(&self) {
        let Some(error) = self.lost(Delivery::Unknown) else { return };
        for pending_call in self.withdraw(Pending::drain) {
            pending_call.inbox.end(Err(error.clone()));
            pending_call.stop_driver();
        }
    }

    /// Emits the end of the link. The detail is the end of the child's stderr, without configured secrets.
    fn trace_loss(&self, loss: &Loss, calls: usize) {
        let (server, reason) = (self.server.name(), loss.reason().as_str());
        tracing::debug!(server, reason, calls, detail = loss.detail(), "link ended: {loss}");
    }

    fn end_listeners(&self, loss: &Arc<Loss>) {
        self.report_loss(loss);
        let (listeners, held) = {
            let mut listeners = self.listeners.lock();
            (listeners.drain(), listeners.drop_held())
        };
        drop(held);
        for inbox in listeners {
            inbox.end(Err(CallError::Lost { loss: loss.clone(), delivery: Delivery::NotSent }));
        }
    }
}
