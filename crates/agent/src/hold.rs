//! A session in somebody's hands.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use stayput_core::{EndReason, InUse, OpenError, SessionId, Wish};
use tokio::sync::OnceCell;

use crate::{Error, hub::Inner, lists::Asked, seen::Seen};

/// A session that somebody has: a name that was opened, or a run. It opens at the first call.
pub(crate) struct Hold {
    pub(crate) hub: Arc<Inner>,
    pub(crate) id: SessionId,
    pub(crate) seen: Arc<Seen>,
    /// The lists that its servers were asked for.
    pub(crate) asked: Asked,
    /// What opens it; none if it was opened already.
    wish: Option<Wish>,
    opened: OnceCell<()>,
    /// Whether it ends with whoever has it.
    ends: AtomicBool,
    /// Set when the run that it was for is over: who still has its scope gets nothing more.
    over: AtomicBool,
}

impl Hold {
    /// A session that was opened, and goes on when nobody has it.
    pub(crate) fn opened(hub: Arc<Inner>, id: SessionId) -> Arc<Self> {
        Self::knowing(hub, id, Arc::default())
    }

    /// The same for who knows of its losses.
    pub(crate) fn knowing(hub: Arc<Inner>, id: SessionId, seen: Arc<Seen>) -> Arc<Self> {
        Arc::new(Self {
            hub,
            id,
            seen,
            asked: Asked::default(),
            wish: None,
            opened: OnceCell::new_with(Some(())),
            ends: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// A session of its own, opened at the first call, which ends with whoever has it.
    pub(crate) fn own(hub: Arc<Inner>) -> Arc<Self> {
        let id = SessionId::generate(hub.now());
        let wish = Wish::new(hub.owner.clone()).id(id);
        Arc::new(Self {
            hub,
            id,
            seen: Arc::default(),
            asked: Asked::default(),
            wish: Some(wish),
            opened: OnceCell::new(),
            ends: AtomicBool::new(true),
            over: AtomicBool::new(false),
        })
    }

    pub(crate) fn hub_id(&self) -> u64 {
        self.hub.id
    }

    /// The session, in use. One that expired begins anew, and its loss is told.
    pub(crate) async fn enter(&self) -> Result<InUse, Error> {
        let hub = &self.hub;
        hub.check_open()?;
        self.check_live()?;
        self.opened
            .get_or_try_init(async || match &self.wish {
                Some(wish) => hub.sessions.open(wish).await.map(drop),
                None => Ok(()),
            })
            .await?;
        if let Err(over) = self.check_live() {
            // The run ended meanwhile, and did not know of this.
            let _ = end(hub.clone(), self.id).await;
            return Err(over);
        }
        match hub.sessions.by_id(&hub.owner, self.id).await {
            Err(OpenError::Over(over)) => {
                let closed = over.ended.is_none_or(|it| it.reason == EndReason::Closed);
                if closed {
                    return Err(Error::Ended { session: self.id });
                }
                // What is left of its former life goes before the next one begins.
                let _ = hub.links.end(self.id).await;
                Ok(hub.sessions.revive(&hub.owner, self.id).await?.session)
            }
            Err(OpenError::Unknown) => Err(Error::Ended { session: self.id }),
            found => Ok(found?),
        }
    }

    /// Ends the session and everything behind it, and waits until nothing is left.
    pub(crate) async fn end(&self) -> Result<(), Error> {
        self.ends.store(false, Ordering::Relaxed);
        end(self.hub.clone(), self.id).await
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
        // What was never opened has nothing to end.
        if self.ends.swap(false, Ordering::Relaxed) && self.opened.initialized() {
            let (hub, id) = (self.hub.clone(), self.id);
            // Whatever goes wrong here, the session idles out.
            self.hub.home.handle().spawn(async move { end(hub, id).await });
        }
    }

    /// The end of a run: what was never opened has nothing to end.
    pub(crate) async fn finish(&self) -> Result<(), Error> {
        self.over.store(true, Ordering::SeqCst);
        if self.opened.initialized() { self.end().await } else { Ok(()) }
    }
}

/// Ends a session, whoever has it.
pub(crate) async fn end(hub: Arc<Inner>, id: SessionId) -> Result<(), Error> {
    let found = match hub.sessions.by_id(&hub.owner, id).await {
        Ok(found) => Some(found.session().clone()),
        Err(OpenError::Over(_) | OpenError::Unknown) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(session) = &found {
        hub.sessions.end(session).await?;
    }
    let _ = hub.links.end(id).await;
    if found.is_some() {
        hub.say(crate::events::Event::Ended { session: id });
    }
    Ok(())
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
