//! Admission control for links.

mod ledger;
mod limits;
pub(crate) mod link_permit;

use std::{
    fmt,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use stayput_core::Owner;
use tokio::sync::{Notify, oneshot};

use self::ledger::{Grant, Ledger, PermitOwner, Ticket};
use stayput_sync::Mutex;

pub use self::limits::{
    AtCapacity, BudgetUsage, Cost, Limits, Obstacle, PerOwner, Recycle, RecycleFilter,
};

/// Limits the number of links and child processes, and queues requests above a limit.
///
/// At a limit, the least recently used idle link is ended; otherwise the request waits. Owners are served
/// round-robin, the requests of one owner in order of arrival. An owner at its own limit does not block the
/// others. A clone refers to the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    ledger: Mutex<Ledger<oneshot::Sender<Permit>>>,
    /// Number of waiting requests, readable without the lock: every call that ends reads it.
    waiting: AtomicUsize,
    idle: Notify,
}

impl Budget {
    /// Creates an unused budget.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let ledger = Mutex::new(Ledger::new(limits));
        Self(Arc::new(Inner { ledger, waiting: AtomicUsize::new(0), idle: Notify::new() }))
    }

    /// Waits for a permit for one more link of `owner`, or of a shared link if `None`.
    ///
    /// At a limit it asks `recycle` to end an idle link, now and after each [`Budget::idle`], and waits for
    /// at most [`Limits::wait`]. If the future is dropped, the request leaves the queue, and a permit that it
    /// was given goes to the next one.
    ///
    /// # Errors
    /// If no permit became free in time, or the limit is zero.
    pub async fn admit(
        &self,
        owner: Option<&Owner>,
        cost: Cost,
        recycle: &dyn Recycle,
    ) -> Result<Permit, AtCapacity> {
        let (mut waiting, mut given, wait) = match self.take_or_join(owner, cost) {
            Admission::Now(permit) => return Ok(permit),
            Admission::Never(error) => return Err(error),
            Admission::Later(waiting, given, wait) => (waiting, given, wait),
        };
        let timeout = tokio::time::sleep(wait);
        tokio::pin!(timeout);
        loop {
            // Enabled before the recycle request, so that no idle notification is missed.
            let idle = self.0.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            waiting.ask(recycle);
            tokio::select! {
                biased;
                // The sender stays in the queue as long as this request, so that the channel is never closed.
                Ok(permit) = &mut given => return Ok(permit),
                () = &mut timeout => break,
                () = idle => {}
            }
        }
        given.close();
        given.try_recv().map_err(|_| AtCapacity::new(waiting.obstacle))
    }

    /// Returns a permit if one is free and no request waits.
    #[must_use]
    pub fn try_admit(&self, owner: Option<&Owner>, cost: Cost) -> Option<Permit> {
        let payer = owner.cloned();
        let mut ledger = self.0.lock();
        if ledger.used().waiting > 0 || ledger.obstacle(&payer, cost, false).is_some() {
            return None;
        }
        ledger.take(&payer, cost);
        drop(ledger);
        Some(self.0.permit(payer, cost))
    }

    fn take_or_join(&self, owner: Option<&Owner>, cost: Cost) -> Admission {
        let payer = owner.cloned();
        let mut ledger = self.0.lock();
        let Some(obstacle) = ledger.obstacle(&payer, cost, false) else {
            ledger.take(&payer, cost);
            drop(ledger);
            return Admission::Now(self.0.permit(payer, cost));
        };
        if obstacle.is_closed() {
            return Admission::Never(AtCapacity::new(obstacle));
        }
        let (give, given) = oneshot::channel();
        let ticket = ledger.join(payer, cost, give);
        let wait = ledger.limits().wait;
        self.0.count(&ledger);
        drop(ledger);
        Admission::Later(QueuedRequest { budget: self.0.clone(), ticket, obstacle }, given, wait)
    }

    /// Notifies waiting requests that a link became idle. Cheap if none waits.
    pub fn idle(&self) {
        if self.is_awaited() {
            self.0.idle.notify_waiters();
        }
    }

    /// Whether any request waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Sets the memory, in bytes, of so many children. Children that are started later count with the average until
    /// the next sample. Above [`Limits::memory`] a process is admitted only after another one has ended.
    pub fn set_memory(&self, used: u64, processes: usize) {
        let mut ledger = self.0.lock();
        let grants = ledger.measured(used, processes);
        self.0.hand_out(ledger, grants);
    }

    /// Replaces the limits. Existing links are not ended.
    pub fn set_limits(&self, limits: Limits) {
        let mut ledger = self.0.lock();
        let grants = ledger.limit(limits);
        self.0.hand_out(ledger, grants);
    }

    /// Current use.
    #[must_use]
    pub fn used(&self) -> BudgetUsage {
        self.0.lock().used()
    }
}

/// Immediate outcome of a request.
enum Admission {
    Now(Permit),
    Later(QueuedRequest, oneshot::Receiver<Permit>, std::time::Duration),
    Never(AtCapacity),
}

type LedgerGuard<'a> = MutexGuard<'a, Ledger<oneshot::Sender<Permit>>>;

impl Inner {
    fn lock(&self) -> LedgerGuard<'_> {
        self.ledger.lock()
    }

    fn count(&self, ledger: &Ledger<oneshot::Sender<Permit>>) {
        self.waiting.store(ledger.used().waiting, Ordering::SeqCst);
    }

    fn permit(self: &Arc<Self>, payer: PermitOwner, cost: Cost) -> Permit {
        Permit { budget: self.clone(), payer, cost, leaving: AtomicBool::new(false) }
    }

    /// Sends the permits to served requests, and wakes the waiting ones that should ask again.
    fn hand_out(
        self: &Arc<Self>,
        ledger: LedgerGuard<'_>,
        grants: Vec<Grant<oneshot::Sender<Permit>>>,
    ) {
        self.count(&ledger);
        let should_ask = ledger.should_ask();
        // Unlock first: a permit whose receiver is gone is dropped here, and its drop takes the lock.
        drop(ledger);
        for Grant { payer, cost, to } in grants {
            drop(to.send(self.permit(payer, cost)));
        }
        if should_ask {
            self.idle.notify_waiters();
        }
    }
}

/// Queued request. On drop it leaves the queue.
struct QueuedRequest {
    budget: Arc<Inner>,
    ticket: Ticket,
    /// Limit that blocked the request at the last check.
    obstacle: Obstacle,
}

impl QueuedRequest {
    /// Asks for an idle link to be ended, unless enough permits are about to be freed.
    fn ask(&mut self, recycle: &dyn Recycle) {
        let begun = self.budget.lock().begin_to_ask(&self.ticket);
        let Some(obstacle) = begun else { return };
        self.obstacle = obstacle;
        let mut asking = RecycleGuard { waiting: self, found: false };
        let owner = self.ticket.payer.as_ref().filter(|_| obstacle.is_of_owner());
        asking.found =
            recycle.recycle(RecycleFilter { owner, process: obstacle.is_of_processes() });
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let mut ledger = self.budget.lock();
        ledger.quit(&self.ticket);
        self.budget.count(&ledger);
    }
}

/// Guard that ends the recycle request even on a panic.
struct RecycleGuard<'a> {
    waiting: &'a QueuedRequest,
    found: bool,
}

impl Drop for RecycleGuard<'_> {
    fn drop(&mut self) {
        let QueuedRequest { budget, ticket, obstacle } = self.waiting;
        budget.lock().end_to_ask(ticket, *obstacle, self.found);
    }
}

/// Permit for one link. It is held until the link and its process are gone. Its drop frees the capacity, for
/// the next waiting request first.
#[must_use = "the place is free again as soon as the permit is dropped"]
pub struct Permit {
    budget: Arc<Inner>,
    payer: PermitOwner,
    cost: Cost,
    leaving: AtomicBool,
}

impl Permit {
    /// Marks the permit as about to be freed, whatever ends the link. The budget then does not end another
    /// link for the same request.
    pub fn leaving(&self) {
        let mut ledger = self.budget.lock();
        if !self.leaving.swap(true, Ordering::Relaxed) {
            ledger.leave_soon(&self.payer, self.cost);
        }
    }

    /// Transfers the permit of a spare to `owner`, or to all owners.
    ///
    /// # Errors
    /// If the owner is at its limit. The permit then stays as it was.
    pub fn assign(&mut self, owner: Option<&Owner>) -> Result<(), AtCapacity> {
        if self.payer.as_ref() == owner {
            return Ok(());
        }
        let (to, leaving) = (owner.cloned(), *self.leaving.get_mut());
        let mut ledger = self.budget.lock();
        let assigned = ledger.assign(&self.payer, &to, self.cost, leaving);
        let grants = assigned.map_err(AtCapacity::new)?;
        self.budget.hand_out(ledger, grants);
        self.payer = to;
        Ok(())
    }

    /// Owner of the permit. `None` for spares and shared links.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.payer.as_ref()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut ledger = self.budget.lock();
        let leaving = *self.leaving.get_mut();
        let grants = ledger.give_back(&self.payer, self.cost, leaving);
        self.budget.hand_out(ledger, grants);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({:?})", self.used())
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payer, cost, .. } = self;
        f.debug_struct("Permit").field("owner", payer).field("cost", cost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Recycle for Nothing {
        fn recycle(&self, _: RecycleFilter<'_>) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn owner_without_permits_is_removed_from_the_ledger() {
        let budget = Budget::new(Limits { processes: 1, ..Limits::default() });
        let process = Cost { process: true };
        let owners: Vec<_> =
            (0..3).map(|n| Owner::verified("i", &n.to_string()).unwrap()).collect();
        let permit = budget.admit(Some(&owners[0]), process, &Nothing).await.unwrap();
        assert!(budget.admit(Some(&owners[1]), process, &Nothing).await.is_err());
        assert_eq!(budget.0.lock().payers(), 1, "one who gave up is still there");
        permit.leaving();
        let mut spare = budget.admit(None, Cost { process: false }, &Nothing).await.unwrap();
        spare.assign(Some(&owners[2])).unwrap();
        assert_eq!(budget.0.lock().payers(), 2);
        drop((permit, spare));
        assert_eq!(budget.0.lock().payers(), 0);
        assert_eq!(budget.0.waiting.load(Ordering::SeqCst), 0);
    }
}
