//! A session at one server: the link between them, and what was lost of it.

use std::sync::{Arc, atomic::Ordering};

use stayput_core::{Generation, InUse};
use stayput_upstream::{
    Asking, Attachment, CallError, Delivery, Held, Isolation, LossReason, Place, Shared, Way,
};
use stayput_wire::Era;

use crate::{
    Error, Hub, StateLost,
    ambient::{Ambient, Share},
    events::Event,
    hub::Inner,
    keeper::RecordKeeper,
    servers::Entry,
};

/// A session that has to do with a server, for as long as a call takes.
pub(crate) struct Visit {
    pub(crate) hub: Arc<Inner>,
    pub(crate) entry: Arc<Entry>,
    /// As the agent calls it.
    local: String,
    ambient: Arc<Ambient>,
    session: InUse,
    branch: u64,
    /// What the scope knew of this server when the call began, before others of its calls were told.
    known: Option<Generation>,
    /// What was to be told then.
    pending: Option<Pending>,
}

/// A loss that nobody was told of yet.
#[derive(Clone, Copy)]
struct Pending {
    generation: Generation,
    /// Whether everything of the session was lost, on all servers.
    whole: bool,
}

/// A loss, before it is told.
struct Lost {
    generation: Generation,
    whole: bool,
    reason: Option<LossReason>,
    delivery: Delivery,
    /// What is behind a link that several share from now on.
    next: Option<Shared>,
}

impl Visit {
    /// Refuses what a sub-agent may not use, and opens the session if it is not yet.
    pub(crate) async fn of(hub: &Hub, ambient: &Arc<Ambient>, local: &str) -> Result<Self, Error> {
        let entry = hub.entry(local)?;
        let branch = match ambient.rules.of(local) {
            None => 0,
            Some(Share::Own(branch)) => branch.enter(),
            Some(Share::Denied) => return Err(Error::Denied { server: local.to_owned() }),
        };
        let known = ambient.seen.known(&entry.name, branch);
        let session = ambient.hold.enter().await?;
        let (hub, ambient, local) = (hub.inner.clone(), ambient.clone(), local.to_owned());
        let visit = Self { hub, entry, local, ambient, session, branch, known, pending: None };
        Ok(Self { pending: visit.pending(), ..visit })
    }

    /// The loss that the record has to be told of.
    fn pending(&self) -> Option<Pending> {
        if self.branch != 0 {
            return None;
        }
        let generation = self.session.lost_on(&self.entry.name)?;
        let whole = self.session.record().lost() == Some(generation);
        Some(Pending { generation, whole })
    }

    /// Which part of the session it is.
    pub(crate) fn branch(&self) -> u64 {
        self.branch
    }

    fn place(&self) -> Place {
        Place::new(self.hub.owner.clone(), self.session.id()).branch(self.branch)
    }

    /// The link, if there is one.
    pub(crate) fn found(&self) -> Option<Held> {
        let held = self.hub.links.find(&self.entry.server, &self.place())?;
        self.welcome(&held);
        Some(held)
    }

    /// The link. The first who asks opens it.
    pub(crate) async fn link(&self) -> Result<Held, Error> {
        if let Some(held) = self.found() {
            return Ok(held);
        }
        let place = self.place();
        let failed = |source| Error::ServerFailed { server: self.local.clone(), source };
        let asking = self.asking(&place).await.map_err(failed)?;
        let opened = self.hub.links.open(&self.entry.server, &place, &asking).await;
        let held = opened.map_err(failed)?;
        self.welcome(&held);
        Ok(held)
    }

    /// Says that a link is there, once, and answers what its server asks outside any call.
    fn welcome(&self, held: &Held) {
        if !held.is_new() {
            return;
        }
        self.hub.opened.fetch_add(1, Ordering::Relaxed);
        self.hub.say(Event::Linked {
            session: self.session.id(),
            server: self.local.clone(),
            generation: held.generation(),
        });
        let handlers = self.ambient.hold.handlers();
        let own = held.key().scope().session().is_some();
        if own && handlers.is_some() && held.greeting().era() == Era::Legacy {
            self.hub.home.handle().spawn(handlers.listen(held));
        }
    }

    async fn asking(&self, place: &Place) -> Result<Asking, Arc<stayput_upstream::OpenError>> {
        let hello = self.ambient.hold.handlers().hello();
        let server = &self.entry.server;
        let record = self.session.record();
        let kept = record.attachments.get(server.name());
        let open = kept.map(|kept| Attachment::open(kept, &self.hub.seal));
        // What is kept tells how the server is spoken to, without a word to it.
        let way: Way = match &open {
            Some(Ok(kept)) => kept.way,
            _ => self.hub.links.way(server, place).await?,
        };
        if server.isolation(way.era()) != Isolation::PerSession {
            // What several sessions share is in the record of none.
            return Ok(Asking { hello, ..Asking::default() });
        }
        if self.branch != 0 {
            // It ends with its sub-agent, so nobody comes back to it.
            return Ok(Asking { hello, keeper: None, generation: record.generation });
        }
        // What cannot be read leads nowhere: whatever it led to is lost.
        let unreadable = matches!(open, Some(Err(_)));
        let generation = if unreadable { record.generation.next() } else { record.generation };
        let keeper = RecordKeeper {
            hub: Arc::downgrade(&self.hub),
            session: self.session.session().clone(),
            server: self.entry.name.clone(),
        };
        Ok(Asking { hello, keeper: Some(Arc::new(keeper)), generation })
    }

    /// The generation of the link as this session counts it. Of a link that several share each session
    /// counts its own losses, from the first time it uses it.
    async fn generation(&self, link: &Held) -> Result<Generation, Error> {
        let Some(shared) = Shared::now(&self.hub.life, link) else { return Ok(link.generation()) };
        let name = &*self.entry.name;
        if let Some(seen) = shared.seen_by(&self.session.record(), name) {
            return Ok(seen);
        }
        let session = self.session.session();
        self.hub.sessions.change(session, |record| shared.note(record, name)).await?;
        Ok(shared.seen_by(&session.record(), name).unwrap_or_default())
    }

    /// What a sub-agent has for itself on a link; on one that several share that is nothing.
    fn branch_on(&self, link: &Held) -> u64 {
        if link.key().scope().session().is_some() { self.branch } else { 0 }
    }

    /// A loss that this scope was not told of when the call began comes before the call.
    pub(crate) async fn pending_loss(&self, link: &Held) -> Result<Option<StateLost>, Error> {
        let generation = self.generation(link).await?;
        let (seen, branch) = (&self.ambient.seen, self.branch_on(link));
        let known =
            if branch == self.branch { self.known } else { seen.known(&self.entry.name, 0) };
        let pending = self.pending.or_else(|| self.pending());
        let latest = pending.map_or(generation, |pending| pending.generation.max(generation));
        let lost = known.map_or(pending.is_some(), |known| known < latest);
        seen.note(&self.entry.name, branch, latest);
        if !lost {
            return Ok(None);
        }
        let whole = pending.is_some_and(|pending| pending.whole);
        let reason = link.loss().map(|loss| loss.reason());
        let delivery = Delivery::NotSent;
        let lost = Lost { generation: latest, whole, reason, delivery, next: None };
        Ok(Some(self.lost(lost, branch).await))
    }

    async fn lost(&self, lost: Lost, branch: u64) -> StateLost {
        let Lost { generation, whole, reason, delivery, next } = lost;
        let name = &self.entry.name;
        let reason = match reason {
            Some(reason) if !whole => reason.as_str(),
            // It lives again under its id, or on the name of another one.
            _ if self.session.record().life > 0 => "expired",
            _ => "ended",
        };
        if whole {
            self.ambient.seen.note_all(generation);
        }
        let server = (!whole).then(|| self.local.clone());
        let about = if whole { Arc::from("") } else { name.clone() };
        if self.hub.losses.is_news(self.session.id(), (about, branch), generation) {
            let (session, server) = (self.session.id(), server.clone());
            self.hub.say(Event::Lost { session, server, generation, reason });
        }
        if branch == 0 {
            // Not noted, it is told once more, which does no harm.
            let noted = self.hub.sessions.change(self.session.session(), |record| {
                if let Some(next) = &next {
                    next.note(record, name);
                }
                record.tell(name, generation);
            });
            let _ = noted.await;
        }
        StateLost { server, generation, delivery, reason }
    }

    /// Why a call has no answer. What state was lost, this scope now knows.
    pub(crate) async fn failed(&self, link: &Held, error: CallError) -> Error {
        match error.loss() {
            // What we only let go of may still be there.
            Some(loss) if loss.reason() != LossReason::Released => {
                let (name, branch) = (&self.entry.name, self.branch_on(link));
                let next = Shared::next(&self.hub.life, link);
                let generation = match &next {
                    Some(next) => {
                        let record = self.session.record();
                        let seen = next.seen_by(&record, name);
                        seen.unwrap_or_else(|| record.generation.next())
                    }
                    None => link.generation().next(),
                };
                self.ambient.seen.note(name, branch, generation);
                let (reason, delivery) = (Some(loss.reason()), error.delivery());
                let lost = Lost { generation, whole: false, reason, delivery, next };
                Error::StateLost(self.lost(lost, branch).await)
            }
            _ => Error::CallFailed { server: self.local.clone(), source: error },
        }
    }
}
