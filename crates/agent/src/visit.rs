//! A session at one server: the link between them, and what was lost of it.

use std::sync::Arc;

use stayput_core::{Generation, InUse};
use stayput_upstream::{
    Asking, Attachment, CallError, Delivery, Held, Isolation, LossReason, Place, Server,
};

use crate::{
    Error, Hub, StateLost,
    ambient::{Ambient, Share},
    events::Event,
    hub::Inner,
    keeper::RecordKeeper,
};

/// A session that has to do with a server, for as long as a call takes.
pub(crate) struct Visit {
    pub(crate) hub: Arc<Inner>,
    pub(crate) server: Server,
    /// As the agent calls it.
    local: String,
    ambient: Arc<Ambient>,
    session: InUse,
    branch: u64,
}

impl Visit {
    /// Refuses what a sub-agent may not use, and opens the session if it is not yet.
    pub(crate) async fn of(hub: &Hub, ambient: &Arc<Ambient>, local: &str) -> Result<Self, Error> {
        let server = hub.server(local)?;
        let branch = match ambient.rules.of(local) {
            None => 0,
            Some(Share::Own(branch)) => {
                branch.uses(&server);
                branch.number
            }
            Some(Share::Denied) => return Err(Error::Denied { server: local.to_owned() }),
        };
        let session = ambient.hold.enter().await?;
        let (hub, ambient, local) = (hub.inner.clone(), ambient.clone(), local.to_owned());
        Ok(Self { hub, server, local, ambient, session, branch })
    }

    fn place(&self) -> Place {
        Place::new(self.hub.owner.clone(), self.session.id()).branch(self.branch)
    }

    /// The link, if there is one.
    pub(crate) fn found(&self) -> Option<Held> {
        self.hub.links.find(&self.server, &self.place())
    }

    /// The link. The first who asks opens it.
    pub(crate) async fn link(&self) -> Result<Held, Error> {
        if let Some(held) = self.found() {
            return Ok(held);
        }
        let place = self.place();
        let failed = |source| Error::ServerFailed { server: self.local.clone(), source };
        let asking = self.asking(&place).await.map_err(failed)?;
        let held = self.hub.links.open(&self.server, &place, &asking).await.map_err(failed)?;
        self.hub.say(Event::Linked {
            session: self.session.id(),
            server: self.local.clone(),
            generation: held.generation(),
        });
        Ok(held)
    }

    async fn asking(&self, place: &Place) -> Result<Asking, Arc<stayput_upstream::OpenError>> {
        let hello = self.hub.handlers.hello();
        let era = self.hub.links.way(&self.server, place).await?.era();
        let record = self.session.record();
        if self.server.isolation(era) != Isolation::PerSession {
            // What several sessions share is in the record of none.
            return Ok(Asking { hello, ..Asking::default() });
        }
        if self.branch != 0 {
            // It ends with its sub-agent, so nobody comes back to it.
            return Ok(Asking { hello, keeper: None, generation: record.generation });
        }
        let kept = record.attachments.get(self.server.name());
        // What cannot be read leads nowhere: whatever it led to is lost.
        let unreadable = kept.is_some_and(|it| Attachment::open(it, &self.hub.seal).is_err());
        let generation = if unreadable { record.generation.next() } else { record.generation };
        let keeper = RecordKeeper {
            hub: Arc::downgrade(&self.hub),
            session: self.session.session().clone(),
            server: self.server.name().into(),
        };
        Ok(Asking { hello, keeper: Some(Arc::new(keeper)), generation })
    }

    /// A loss that this scope was not told of comes before its next call.
    pub(crate) async fn pending_loss(&self, link: &Held) -> Option<StateLost> {
        let name: Arc<str> = self.server.name().into();
        let seen = &self.ambient.seen;
        let pending = (self.branch == 0).then(|| self.session.lost_on(&name)).flatten();
        let untold = pending.filter(|generation| !seen.knows(&name, 0, *generation));
        // Whatever was known before, from now on it is this one.
        let later = seen.meets(&name, self.branch, link.generation());
        let generation = untold.or_else(|| later.then(|| link.generation()))?;
        seen.meets(&name, self.branch, generation);
        let reason = link.loss().map(|loss| loss.reason());
        Some(self.lost(generation, reason, Delivery::NotSent).await)
    }

    async fn lost(
        &self,
        generation: Generation,
        reason: Option<LossReason>,
        delivery: Delivery,
    ) -> StateLost {
        let lost = StateLost { server: self.local.clone(), generation, delivery, reason };
        self.hub.say(Event::Lost {
            session: self.session.id(),
            server: self.local.clone(),
            generation,
            reason: lost.reason(),
        });
        if self.branch == 0 {
            let (session, server) = (self.session.session(), self.server.name());
            // Not noted, it is told once more, which does no harm.
            let _ = self.hub.sessions.told_on(session, server, generation).await;
        }
        lost
    }

    /// Why a call has no answer. What state was lost, this scope now knows.
    pub(crate) async fn failed(&self, link: &Held, error: CallError) -> Error {
        match error.loss() {
            // What we only let go of may still be there.
            Some(loss) if loss.reason() != LossReason::Released => {
                let generation = link.generation().next();
                let name: Arc<str> = self.server.name().into();
                self.ambient.seen.meets(&name, self.branch, generation);
                let reason = Some(loss.reason());
                Error::StateLost(self.lost(generation, reason, error.delivery()).await)
            }
            _ => Error::CallFailed { server: self.local.clone(), source: error },
        }
    }
}
