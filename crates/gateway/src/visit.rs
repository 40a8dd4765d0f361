//! A session at one server: the link between them, and what was lost of it.

use std::sync::Arc;

use stayput_core::{Generation, InUse};
use stayput_upstream::{
    Asking, Attachment, CallError, Delivery, Held, Hello, Isolation, LossReason, Place, Server,
};
use stayput_wire::Era;

use crate::{
    event::Event,
    forward::Done,
    house::House,
    keeper::RecordKeeper,
    losses::{self, Told},
    reply::{self, Then},
};

/// A session that has to do with a server, for as long as a call takes.
pub(crate) struct Visit {
    pub(crate) house: Arc<House>,
    pub(crate) server: Server,
    pub(crate) session: InUse,
    /// What the server is told of the client, if a link has to be opened.
    pub(crate) hello: Hello,
    /// How the client is spoken to.
    pub(crate) era: Era,
}

/// The request that an answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Its id as it was written.
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
}

impl Visit {
    fn place(&self) -> Place {
        Place::new(self.session.session().owner().clone(), self.session.id())
    }

    /// The link, if there is one.
    pub(crate) fn found(&self) -> Option<Held> {
        self.house.links.find(&self.server, &self.place())
    }

    /// Opens the link.
    pub(crate) async fn open(&self) -> Result<Held, String> {
        let place = self.place();
        let asking = self.asking(&place).await?;
        let held = self.house.links.open(&self.server, &place, &asking).await;
        held.map_err(|error| self.house.blame(&error))
    }

    async fn asking(&self, place: &Place) -> Result<Asking, String> {
        let hello = self.hello.clone();
        let way = self.house.links.way(&self.server, place).await;
        let era = way.map_err(|error| self.house.blame(&error))?.era();
        if self.server.isolation(era) != Isolation::PerSession {
            // What several sessions share is in the record of none.
            return Ok(Asking { hello, ..Asking::default() });
        }
        let record = self.session.record();
        let kept = record.attachments.get(self.server.name());
        // What cannot be read leads nowhere: whatever it led to is lost.
        let unreadable = kept.is_some_and(|it| Attachment::open(it, &self.house.seal).is_err());
        let generation = if unreadable { record.generation.next() } else { record.generation };
        let keeper = RecordKeeper {
            house: self.house.clone(),
            session: self.session.session().clone(),
            server: self.server.name().into(),
        };
        Ok(Asking { hello, keeper: Some(Arc::new(keeper)), generation })
    }

    /// A loss that the client has not been told of comes before everything that depends on state.
    pub(crate) fn pending_loss(&self, link: &Held, asked: Asked<'_>) -> Option<Done> {
        let generation = self.session.lost_on(self.server.name())?;
        let server = self.server.name();
        if !losses::depends_on_state(asked.method)
            || self.house.telling.has(self.session.id(), server, generation)
        {
            return None;
        }
        let reason = link.loss().map(|loss| loss.reason());
        Some(self.told(asked, generation, reason, Delivery::NotSent))
    }

    fn told(
        &self,
        asked: Asked<'_>,
        generation: Generation,
        reason: Option<LossReason>,
        delivery: Delivery,
    ) -> Done {
        let told = Told {
            server: self.server.name(),
            session: Some(self.session.id().to_string()),
            generation,
            reason: losses::reason(reason),
            delivery,
        };
        let text = told.answer(asked, self.era).into();
        let (house, session) = (self.house.clone(), self.session.session().clone());
        let (runtime, server) = (tokio::runtime::Handle::current(), self.server.clone());
        let then: Then = Box::new(move || {
            // Several calls may tell of one loss.
            let known = session.record().has_told(server.name(), generation);
            if house.telling.begin(session.id(), server.name(), generation) && !known {
                let lost = Event::Lost { server: server.name(), reason, generation };
                house.note(session.id(), lost);
            }
            runtime.spawn(async move {
                // Not noted, it is told once more, which does no harm.
                let _ = house.sessions.told_on(&session, server.name(), generation).await;
                house.telling.end(session.id(), server.name(), generation);
            });
        });
        Done { text, then: Some(then) }
    }

    /// What is answered to a call that failed.
    pub(crate) fn failed(&self, link: &Held, asked: Asked<'_>, error: &CallError) -> Done {
        // What does not depend on state says nothing about it: the next one that does will be told. And
        // what we only let go of may still be there.
        if let Some(loss) = error.loss()
            && losses::depends_on_state(asked.method)
            && loss.reason() != LossReason::Released
        {
            let (next, reason) = (link.generation().next(), Some(loss.reason()));
            return self.told(asked, next, reason, error.delivery());
        }
        Done::new(reply::failure(asked, self.era, &error.to_string()))
    }
}
