//! The end of a hub, and what is over before it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use stayput_core::{Agent, EndReason, OpenError, Owner, Session, SessionId, Sessions};
use stayput_upstream::Links;
use tokio::{runtime::Handle, time::Instant};

use crate::{
    Hub,
    events::Event,
    hub::{Auto, Inner},
};

/// How a hub was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Links that were opened in the life of the hub.
    pub opened: u64,
    /// Sessions that were live.
    pub sessions: usize,
    /// Links that were live.
    pub links: usize,
    /// Links that did not go in time, and were killed.
    pub killed: usize,
}

/// The automatic sessions, one for each agent that wants one.
pub(crate) type Automatics = Arc<Mutex<BTreeMap<Agent, Auto>>>;

/// What is let go of at the end.
#[derive(Clone)]
pub(crate) struct Closing {
    pub(crate) owner: Owner,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) links: Links,
    pub(crate) automatics: Automatics,
    /// Whether the store outlives this process: then named sessions go on, in whichever process asks for
    /// them next.
    pub(crate) lasting: bool,
}

impl Closing {
    /// Ends what nobody can come back to, and lets go of the rest, under one deadline.
    pub(crate) async fn close(self, limit: Duration) -> Report {
        let end = Instant::now() + limit;
        let automatics = std::mem::take(&mut *lock(&self.automatics));
        let automatic = |id: SessionId| automatics.values().any(|it| it.id == id);
        let held = self.sessions.held();
        let links = self.links.status().iter().filter(|link| link.generation.is_some()).count();
        let over = held.iter().filter(|session| {
            !self.lasting || session.record().key.is_none() || automatic(session.id())
        });
        let ending: Vec<_> = over.map(|session| self.begin_end(session)).collect();
        let mut killed = 0;
        for one in ending {
            // All were told at once, so to wait for one after the other takes no longer.
            killed += usize::from(tokio::time::timeout_at(end, one).await.is_err());
        }
        let left = end.saturating_duration_since(Instant::now());
        let closed = self.links.close(left.max(Duration::from_millis(100))).await;
        let _ = self.sessions.close().await;
        Report { opened: 0, sessions: held.len(), links, killed: killed + closed.left }
    }

    fn begin_end(&self, session: &Arc<Session>) -> tokio::task::JoinHandle<()> {
        let (all, session) = (self.clone(), session.clone());
        Handle::current().spawn(async move {
            let _ = all.sessions.end(&session).await;
            let _ = all.links.end(session.id()).await;
        })
    }

    /// Keeps the lease. Of what was lost with it, that which nobody else has taken is taken up again with its
    /// links; the rest is let go of, for it lives elsewhere.
    pub(crate) async fn renew(&self) {
        let _ = self.sessions.renew().await;
        for lost in self.sessions.lost() {
            let again = self.sessions.by_id(&self.owner, lost.id()).await;
            let same = |now: &Session| now.record().attachments == lost.record().attachments;
            match again {
                Ok(again) if same(again.session()) => {}
                // The store cannot be asked: the next call will.
                Err(OpenError::Store(_) | OpenError::LeaseLost) => {}
                _ => self.links.release(lost.id()).await,
            }
        }
    }
}

impl Inner {
    /// Closes what is over. To be called from time to time.
    pub(crate) async fn tick(&self) {
        let Closing { sessions, links, .. } = &self.closing;
        let _ = sessions.write_back().await;
        for record in sessions.sweep().await.ended {
            // Who closes one on purpose tells of it.
            if record.ended.is_none_or(|ended| ended.reason != EndReason::Closed) {
                self.say_ended(record.id);
            }
            // What lives again is not what ended.
            let held = sessions.held_by_id(record.id);
            if held.is_none_or(|it| it.record().life == record.life) {
                let _ = links.end(record.id).await;
            }
        }
    }

    pub(crate) fn say_ended(&self, session: SessionId) {
        self.losses.forget(session);
        self.say(Event::Ended { session });
    }
}

impl Hub {
    /// Closes the hub: lets go of everything under one deadline, and says what there was. Further use is an
    /// error.
    ///
    /// Sessions that are kept in memory end, and so do unnamed and automatic ones. Named sessions in a store
    /// that outlives this process are released: the next process that asks for one by its name goes on
    /// with it, on HTTP servers without a loss. [`Session::end`](crate::Session::end) ends those, too.
    pub async fn close(&self, limit: Duration) -> Report {
        if !self.inner.home.is_here() || self.inner.closed.swap(true, Ordering::Relaxed) {
            return Report::default();
        }
        let opened = self.inner.opened.load(Ordering::Relaxed);
        let closing = self.inner.closing.clone().close(limit);
        // In a task of its own: dropped, it goes on.
        let report = self.inner.home.handle().spawn(closing).await;
        Report { opened, ..report.unwrap_or_default() }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
