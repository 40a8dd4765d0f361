//! Admission: who gets the next link, and who waits.

mod ledger;
mod limits;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use stayput_core::Owner;
use tokio::sync::{Notify, oneshot};

use self::ledger::{Grant, Ledger, Payer, Ticket};
pub use self::limits::{AtCapacity, Cost, Limits, Obstacle, PerOwner, Recycle, Used, Wanted};

/// How many links and child processes there are, and who gets the next one.
///
/// At a cap the least recently used idle link is ended, else one waits in line. Owners are served in
/// turn, and within an owner who came first is served first; an owner that has all it may have holds
/// up nobody else. A clone is the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    ledger: Mutex<Ledger<oneshot::Sender<Permit>>>,
    /// How many are in line, to be read without the lock: a call that ends looks here.
    waiting: AtomicUsize,
    idle: Notify,
}

impl Budget {
    /// A budget with nothing taken.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let ledger = Mutex::new(Ledger::new(limits));
        Self(Arc::new(Inner { ledger, waiting: AtomicUsize::new(0), idle: Notify::new() }))
    }

    /// A place for one more link of `owner`, or of nobody if all share it.
    ///
    /// At a cap it asks `recycle` for an idle link to end, now and whenever [`Budget::idle`] says that
    /// there may be one, and waits in line for at most [`Limits::wait`]. Dropped, it leaves the line,
    /// and what it was given goes to the next.
    ///
    /// # Errors
    /// If no place became free in time, or there can never be one.
    pub async fn admit(
        &self,
        owner: Option<&Owner>,
        cost: Cost,
        recycle: &dyn Recycle,
    ) -> Result<Permit, AtCapacity> {
        let (mut waiting, mut given, wait) = match self.take_or_join(owner, cost) {
            Taken::Now(permit) => return Ok(permit),
            Taken::Never(error) => return Err(error),
            Taken::Later(waiting, given, wait) => (waiting, given, wait),
        };
        let patience = tokio::time::sleep(wait);
        tokio::pin!(patience);
        loop {
            // Listening begins before the question: what becomes idle in between is not missed.
            let idle = self.0.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            waiting.ask(recycle);
            tokio::select! {
                biased;
                // The other end is in the line for as long as this one is, so there is an answer.
                Ok(permit) = &mut given => return Ok(permit),
                () = &mut patience => break,
                () = idle => {}
            }
        }
        given.close();
        given.try_recv().map_err(|_| AtCapacity::new(waiting.obstacle))
    }

    /// A place for one more link, if one is free now and nobody waits for it.
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

    fn take_or_join(&self, owner: Option<&Owner>, cost: Cost) -> Taken {
        let payer = owner.cloned();
        let mut ledger = self.0.lock();
        let Some(obstacle) = ledger.obstacle(&payer, cost, false) else {
            ledger.take(&payer, cost);
            drop(ledger);
            return Taken::Now(self.0.permit(payer, cost));
        };
        if obstacle.is_closed() {
            return Taken::Never(AtCapacity::new(obstacle));
        }
        let (give, given) = oneshot::channel();
        let ticket = ledger.join(payer, cost, give);
        let wait = ledger.limits().wait;
        self.0.count(&ledger);
        drop(ledger);
        Taken::Later(Waiting { budget: self.0.clone(), ticket, obstacle }, given, wait)
    }

    /// A link has become idle: those in line may ask for it. Costs next to nothing if nobody waits.
    pub fn idle(&self) {
        if self.is_awaited() {
            self.0.idle.notify_waiters();
        }
    }

    /// Whether anybody waits for room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// The bytes that all children use now. Above [`Limits::memory`] a process is admitted only for
    /// one that goes.
    pub fn set_memory(&self, used: u64) {
        let mut ledger = self.0.lock();
        let grants = ledger.measured(used);
        self.0.hand_out(ledger, grants);
    }

    /// How much there may be from now on. Nothing is ended for it.
    pub fn set_limits(&self, limits: Limits) {
        let mut ledger = self.0.lock();
        let grants = ledger.limit(limits);
        self.0.hand_out(ledger, grants);
    }

    /// How much there is now.
    #[must_use]
    pub fn used(&self) -> Used {
        self.0.lock().used()
    }
}

/// What became of a wish at once.
enum Taken {
    Now(Permit),
    Later(Waiting, oneshot::Receiver<Permit>, std::time::Duration),
    Never(AtCapacity),
}

type Line<'a> = MutexGuard<'a, Ledger<oneshot::Sender<Permit>>>;

impl Inner {
    fn lock(&self) -> Line<'_> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, ledger: &Ledger<oneshot::Sender<Permit>>) {
        self.waiting.store(ledger.used().waiting, Ordering::SeqCst);
    }

    fn permit(self: &Arc<Self>, payer: Payer, cost: Cost) -> Permit {
        Permit { budget: self.clone(), payer, cost, leaving: AtomicBool::new(false) }
    }

    /// Tells those who were served, and those who should ask again.
    fn hand_out(self: &Arc<Self>, ledger: Line<'_>, grants: Vec<Grant<oneshot::Sender<Permit>>>) {
        self.count(&ledger);
        let should_ask = ledger.should_ask();
        // A permit whose receiver has gone is dropped, goes to the next, and needs the lock for it.
        drop(ledger);
        for Grant { payer, cost, to } in grants {
            drop(to.send(self.permit(payer, cost)));
        }
        if should_ask {
            self.idle.notify_waiters();
        }
    }
}

/// One who is in line. Dropped, it is not any more.
struct Waiting {
    budget: Arc<Inner>,
    ticket: Ticket,
    /// What stood in the way when it was looked at last.
    obstacle: Obstacle,
}

impl Waiting {
    /// Asks for an idle link to be ended, if not enough are on their way out already.
    fn ask(&mut self, recycle: &dyn Recycle) {
        let begun = self.budget.lock().begin_to_ask(&self.ticket);
        let Some(obstacle) = begun else { return };
        self.obstacle = obstacle;
        let mut asking = Asking { waiting: self, found: false };
        let owner = self.ticket.payer.as_ref().filter(|_| obstacle.is_of_owner());
        asking.found = recycle.recycle(Wanted { owner, process: obstacle.is_of_processes() });
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut ledger = self.budget.lock();
        ledger.quit(&self.ticket);
        self.budget.count(&ledger);
    }
}

/// Asking ends, even if whoever is asked panics.
struct Asking<'a> {
    waiting: &'a Waiting,
    found: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Waiting { budget, ticket, obstacle } = self.waiting;
        budget.lock().end_to_ask(ticket, *obstacle, self.found);
    }
}

/// A place for one link. It is kept for as long as the link and its process are there, and dropped
/// when they are gone: then the place is free, for the next in line first.
#[must_use = "the place is free again as soon as the permit is dropped"]
pub struct Permit {
    budget: Arc<Inner>,
    payer: Payer,
    cost: Cost,
    leaving: AtomicBool,
}

impl Permit {
    /// The link is being ended, for whatever reason: its place comes back soon, and nothing else has to
    /// be recycled for whoever waits for it.
    pub fn leaving(&self) {
        let mut ledger = self.budget.lock();
        if !self.leaving.swap(true, Ordering::Relaxed) {
            ledger.leave_soon(&self.payer, self.cost);
        }
    }

    /// Gives the place to `owner`, who takes over a link that was opened in advance for nobody.
    ///
    /// # Errors
    /// If the owner has all it may have; the place then stays whose it was.
    pub fn assign(&mut self, owner: &Owner) -> Result<(), AtCapacity> {
        if self.payer.as_ref() == Some(owner) {
            return Ok(());
        }
        let (to, leaving) = (Some(owner.clone()), *self.leaving.get_mut());
        let mut ledger = self.budget.lock();
        let assigned = ledger.assign(&self.payer, &to, self.cost, leaving);
        let grants = assigned.map_err(AtCapacity::new)?;
        self.budget.hand_out(ledger, grants);
        self.payer = to;
        Ok(())
    }

    /// Whose place it is, if it is anybody's.
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
        fn recycle(&self, _: Wanted<'_>) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_with_nothing_is_forgotten() {
        let budget = Budget::new(Limits { processes: 1, ..Limits::default() });
        let process = Cost { process: true };
        let owners: Vec<_> =
            (0..3).map(|n| Owner::verified("i", &n.to_string()).unwrap()).collect();
        let permit = budget.admit(Some(&owners[0]), process, &Nothing).await.unwrap();
        assert!(budget.admit(Some(&owners[1]), process, &Nothing).await.is_err());
        assert_eq!(budget.0.lock().payers(), 1, "one who gave up is still there");
        permit.leaving();
        let mut spare = budget.admit(None, Cost { process: false }, &Nothing).await.unwrap();
        spare.assign(&owners[2]).unwrap();
        assert_eq!(budget.0.lock().payers(), 2);
        drop((permit, spare));
        assert_eq!(budget.0.lock().payers(), 0);
        assert_eq!(budget.0.waiting.load(Ordering::SeqCst), 0);
    }
}
