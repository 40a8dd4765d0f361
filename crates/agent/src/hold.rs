//! A session in somebody's hands.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{EndReason, InUse, OpenError, SessionId, StoreError, Wish};
use tokio::sync::OnceCell;

use crate::{Error, Handlers, hub::Inner, lists::Asked, seen::Seen};

/// How long a session that another process has is waited for: a process that was killed has it for as
/// long as its lease lasts.
const TAKEOVER: Duration = Duration::from_secs(20);

/// How often it is looked whether it has come free.
const PAUSE: Duration = Duration::from_millis(250);

/// A session that somebody has: a name that was opened, or a run. It opens at the first call.
pub(crate) struct Hold {
    pub(crate) hub: Arc<Inner>,
    pub(crate) id: SessionId,
    pub(crate) seen: Arc<Seen>,
    /// The lists that its servers were asked for.
    pub(crate) asked: Asked,
    /// Who answers what its servers ask, if not who does so for the whole hub.
    handlers: RwLock<Option<Arc<Handlers>>>,
    /// What opens it; none if it was opened already.
    wish: Option<Wish>,
    /// Somebody began to open it, and may have been cancelled.
    begun: AtomicBool,
    opened: OnceCell<()>,
    /// Whether it ends with whoever has it.
    ends: AtomicBool,
    /// Set when the run that it was for is over: who still has its scope gets nothing more.
    over: AtomicBool,
}

impl Hold {
    fn new(hub: Arc<Inner>, id: SessionId, wish: Option<Wish>) -> Self {
        let opened = OnceCell::new_with(wish.is_none().then_some(()));
        Self {
            hub,
            id,
            seen: Arc::default(),
            asked: Asked::default(),
            handlers: RwLock::default(),
            ends: AtomicBool::new(wish.is_some()),
            begun: AtomicBool::new(wish.is_none()),
            wish,
            opened,
            over: AtomicBool::new(false),
        }
    }

    /// A session that was opened, and goes on when nobody has it.
    pub(crate) fn opened(hub: Arc<Inner>, id: SessionId) -> Arc<Self> {
        Arc::new(Self::new(hub, id, None))
    }

    /// The same for who knows of its losses.
    pub(crate) fn knowing(hub: Arc<Inner>, id: SessionId, seen: Arc<Seen>) -> Arc<Self> {
        let mut hold = Self::new(hub, id, None);
        hold.seen = seen;
        Arc::new(hold)
    }

    /// A session of its own, opened at the first call, which ends with whoever has it.
    pub(crate) fn own(hub: Arc<Inner>) -> Arc<Self> {
        let id = SessionId::generate(hub.now());
        let wish = Wish::new(hub.owner.clone()).id(id);
        Arc::new(Self::new(hub, id, Some(wish)))
    }

    pub(crate) fn hub_id(&self) -> u64 {
        self.hub.id
    }

    /// Who answers what its servers ask.
    pub(crate) fn handlers(&self) -> Arc<Handlers> {
        let own = self.handlers.read().unwrap_or_else(PoisonError::into_inner);
        own.as_ref().unwrap_or(&self.hub.handlers).clone()
    }

    pub(crate) fn set_handlers(&self, handlers: Handlers) {
        let all = Arc::new(handlers.or(&self.hub.handlers));
        *self.handlers.write().unwrap_or_else(PoisonError::into_inner) = Some(all);
    }

    /// The session, in use. One that expired begins anew, and its loss is told.
    pub(crate) async fn enter(&self) -> Result<InUse, Error> {
        let hub = &self.hub;
        hub.check_open()?;
        self.check_live()?;
        self.opened
            .get_or_try_init(async || match &self.wish {
                Some(wish) => {
                    self.begun.store(true, Ordering::SeqCst);
                    hub.sessions.open(wish).await.map(drop)
                }
                None => Ok(()),
            })
            .await?;
        if let Err(over) = self.check_live() {
            // The run ended meanwhile, and did not know of this.
            let _ = end(hub.clone(), self.id, Trace::None).await;
            return Err(over);
        }
        match hub.sessions.by_id(&hub.owner, self.id).await {
            Err(OpenError::HeldElsewhere { .. } | OpenError::LeaseLost) => {
                patiently(|| hub.sessions.by_id(&hub.owner, self.id)).await.map_err(Error::from)
            }
            Err(OpenError::Over(over)) => {
                let closed = over.ended.is_none_or(|it| it.reason == EndReason::Closed);
                if closed {
                    return Err(Error::Ended { session: self.id });
                }
                // What is left of its former life goes before the next one begins.
                let _ = hub.links.end(self.id).await;
                match hub.sessions.revive(&hub.owner, self.id).await {
                    // Its name leads to another one by now.
                    Err(OpenError::Store(StoreError::Taken { .. })) => {
                        Err(Error::Ended { session: self.id })
                    }
                    revived => Ok(revived?.session),
                }
            }
            Err(OpenError::Unknown) => Err(Error::Ended { session: self.id }),
            found => Ok(found?),
        }
    }

    /// Ends the session and everything behind it, and waits until nothing is left. Dropped, it goes on.
    pub(crate) async fn end(&self) -> Result<(), Error> {
        self.hub.check_here()?;
        self.ends.store(false, Ordering::Relaxed);
        let ending = self.hub.home.handle().spawn(end(self.hub.clone(), self.id, self.trace()));
        // Whoever has the runtime has ended it, and everything with it.
        ending.await.unwrap_or(Err(Error::Closed))
    }

    /// Of what nobody else can find, nothing has to be remembered.
    fn trace(&self) -> Trace {
        if self.wish.is_some() { Trace::None } else { Trace::Tombstone }
    }

    fn check_live(&self) -> Result<(), Error> {
        match self.over.load(Ordering::SeqCst) {
            true => Err(Error::Ended { session: self.id }),
            false => Ok(()),
        }
    }

    /// The run is over, and nobody waits for its end.
    pub(crate) fn abandon(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.end_later();
    }

    fn end_later(&self) {
        // What nobody began to open has nothing to end.
        let begun = self.begun.load(Ordering::SeqCst) && self.hub.home.is_here();
        if self.ends.swap(false, Ordering::Relaxed) && begun {
            // Whatever goes wrong here, the session idles out.
            self.hub.home.handle().spawn(end(self.hub.clone(), self.id, self.trace()));
        }
    }

    /// The end of a run: what nobody began to open has nothing to end.
    pub(crate) async fn finish(&self) -> Result<(), Error> {
        self.over.store(true, Ordering::SeqCst);
        if self.begun.load(Ordering::SeqCst) { self.end().await } else { Ok(()) }
    }
}

/// What is left of a session that was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Its name and its generation, so that who comes back is told.
    Tombstone,
    None,
}

/// Ends a session, whoever has it.
pub(crate) async fn end(hub: Arc<Inner>, id: SessionId, trace: Trace) -> Result<(), Error> {
    let found = match hub.sessions.by_id(&hub.owner, id).await {
        Ok(found) => Some(found.session().clone()),
        Err(OpenError::Over(_) | OpenError::Unknown) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(session) = &found {
        match trace {
            Trace::Tombstone => hub.sessions.end(session).await?,
            Trace::None => hub.sessions.forget(session).await?,
        }
    }
    let _ = hub.links.end(id).await;
    if found.is_some() {
        hub.say_ended(id);
    }
    Ok(())
}

/// What `attempt` gives. A session that another process has is waited for, and so is a lease that this one lost
/// because it stood still: it has another one with the next renewal.
pub(crate) async fn patiently<T, A>(attempt: impl Fn() -> A) -> Result<T, OpenError>
where
    A: Future<Output = Result<T, OpenError>>,
{
    let mut waited = Duration::ZERO;
    loop {
        match attempt().await {
            Err(OpenError::HeldElsewhere { .. } | OpenError::LeaseLost) if waited < TAKEOVER => {
                tokio::time::sleep(PAUSE).await;
                waited += PAUSE;
            }
            found => return found,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end_later();
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({})", self.id)
    }
}
