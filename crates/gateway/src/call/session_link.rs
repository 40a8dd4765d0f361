//! A session at one server: the link between them, and what was lost of it.

use std::sync::Arc;

use bytes::Bytes;
use stayput_core::{ActiveSession, Generation};
use stayput_upstream::{
    Asking, Attachment, CallError, Delivery, Held, Hello, Isolation, Loss, LossReason, OpenError,
    Place, Server, Shared,
};
use stayput_wire::{Era, Message, meta};

use crate::{
    call::attachment_sink::RecordKeeper,
    observe::{events::Event, session_stats::SessionStats},
    reply::{
        self, AfterWrite, ReplyText, RequestRef,
        loss::{self, LossNotices, LossReport},
    },
    state::AppState,
};

/// A session that has to do with a server, for as long as a call takes.
pub(crate) struct SessionLink {
    pub(crate) app: Arc<AppState>,
    pub(crate) server: Server,
    pub(crate) session: ActiveSession,
    /// How the client is spoken to.
    pub(crate) era: Era,
}

impl SessionLink {
    fn place(&self) -> Place {
        Place::new(self.session.session().owner().clone(), self.session.id())
    }

    /// Why there is no room for one more call on the session.
    pub(crate) fn busy(&self) -> Option<String> {
        let limit = self.app.rules.calls;
        (self.session.users_at_start() > limit).then(|| {
            self.app.metrics.refused("busy");
            format!(
                "Nothing was run: this session has {limit} calls in flight, which is \
                 `limits.calls_per_session`. Wait for one of them to end, and try again in 1 s."
            )
        })
    }

    /// The link, if there is one. Nearly always it is the one that was used before, and nothing is looked up.
    pub(crate) fn found(&self) -> Option<Held> {
        let usage = SessionStats::of(&self.session);
        if let Some(link) = usage.and_then(|usage| usage.link(&self.server)) {
            return Some(link);
        }
        let session = self.session.session();
        let link = self.app.links.find_of(&self.server, session.owner(), session.id())?;
        if let Some(usage) = usage {
            usage.linked(&link);
        }
        Some(link)
    }

    /// Opens the link. The server is told this of the client.
    pub(crate) async fn open(&self, hello: &Hello) -> Result<Held, String> {
        let (place, server) = (self.place(), self.app.present(&self.server)?);
        let asking = self.asking(&server, &place, hello.clone()).await?;
        let held = self.app.links.open(&server, &place, &asking).await;
        held.map_err(|error| self.blame(&error))
    }

    /// Why there is no link, in words for a client; whoever runs the gateway is told more.
    fn blame(&self, error: &OpenError) -> String {
        let whole = error.to_string();
        let message = OpenError::without_output(&whole);
        self.note_failure(message.to_owned(), &whole[message.len()..]);
        self.app.blame(error)
    }

    fn note_failure(&self, message: String, wrote: &str) {
        if let Some(usage) = SessionStats::of(&self.session) {
            usage.failed(self.server.shared_name(), message, wrote);
        }
    }

    async fn asking(&self, server: &Server, place: &Place, hello: Hello) -> Result<Asking, String> {
        let record = self.session.record();
        let kept = record.attachments.get(server.name());
        let kept = kept.map(|kept| Attachment::open(kept, &self.app.seal));
        // What is kept tells how the server is spoken to, without a word to it.
        let way = match &kept {
            Some(Ok(kept)) => kept.way,
            _ => {
                let way = self.app.links.way(server, place).await;
                way.map_err(|error| self.blame(&error))?
            }
        };
        if server.isolation(way.era()) != Isolation::PerSession {
            // What several sessions share is in the record of none.
            return Ok(Asking { hello, ..Asking::default() });
        }
        // What cannot be read leads nowhere: whatever it led to is lost.
        let unreadable = matches!(kept, Some(Err(_)));
        let generation = if unreadable { record.generation.next() } else { record.generation };
        let keeper = RecordKeeper {
            app: self.app.clone(),
            session: self.session.session().clone(),
            server: self.server.name().into(),
        };
        Ok(Asking { hello, keeper: Some(Arc::new(keeper)), generation })
    }

    /// Notes which state of a link that several share the session depends on from now on. If it depended
    /// on another one, that is lost, and has to be told.
    pub(crate) async fn depend(&self, link: &Held, asked: RequestRef<'_>) -> Result<(), String> {
        let server = self.server.name();
        let seen = Shared::now(&self.app.life, link);
        let Some(seen) = seen.filter(|_| loss::depends_on_state(asked.method)) else {
            return Ok(());
        };
        if seen.seen_by(&self.session.record(), server).is_some() {
            return Ok(());
        }
        let session = self.session.session();
        let noted = self.app.sessions.change(session, |record| seen.note(record, server));
        Box::pin(noted).await.map_err(|error| error.to_string())
    }

    /// A loss that the client has not been told of comes before everything that depends on state.
    pub(crate) fn pending_loss(&self, link: &Held, asked: RequestRef<'_>) -> Option<ReplyText> {
        let generation = self.session.unacknowledged_loss_on(self.server.name())?;
        let server = self.server.name();
        if !loss::depends_on_state(asked.method)
            || self.app.telling.has(self.session.id(), server, generation)
        {
            return None;
        }
        let loss = link.loss().map(|loss| Loss::clone(loss));
        let reason = loss.as_ref().map(Loss::reason);
        let why = format!("state was lost: {}", loss::reason(reason));
        self.note_failure(why, loss.as_ref().map_or("", Loss::detail));
        let done = self.told(asked, generation, reason, Delivery::NotSent);
        let beside = LossNotices::of(link.greeting(), server, reason);
        Some(ReplyText { then: Some(self.noting(generation, loss, None, beside)), ..done })
    }

    fn told(
        &self,
        asked: RequestRef<'_>,
        generation: Generation,
        reason: Option<LossReason>,
        delivery: Delivery,
    ) -> ReplyText {
        let told = LossReport {
            server: self.server.name(),
            session: Some(self.session.id().to_string()),
            generation,
            reason: loss::reason(reason),
            delivery,
        };
        ReplyText::new(told.answer(asked, self.era))
    }

    /// Notes that a loss was told, when the answer that tells it is written. `next` is what is behind a link
    /// that several share after it.
    fn noting(
        &self,
        generation: Generation,
        loss: Option<Loss>,
        next: Option<Shared>,
        beside: LossNotices,
    ) -> AfterWrite {
        let (app, session) = (self.app.clone(), self.session.session().clone());
        let (runtime, server) = (tokio::runtime::Handle::current(), self.server.clone());
        Box::new(move || {
            // Several calls may tell of one loss.
            let known = session.record().is_loss_acknowledged(server.name(), generation);
            let first = app.telling.begin(session.id(), server.name(), generation);
            if first && !known {
                let (reason, detail) =
                    (loss.as_ref().map(Loss::reason), loss.as_ref().map(Loss::detail));
                let detail = detail.unwrap_or_default();
                let lost = Event::Lost { server: server.name(), reason, generation, detail };
                app.note(session.id(), lost);
                app.connections.tell_loss(session.id(), server.name(), &beside);
            }
            runtime.spawn(async move {
                // Not noted, it is told once more, which does no harm.
                let noted = app.sessions.change(&session, |record| {
                    if let Some(next) = &next {
                        next.note(record, server.name());
                    }
                    record.acknowledge_loss(server.name(), generation);
                });
                let _ = noted.await;
                app.telling.end(session.id(), server.name(), generation);
            });
        })
    }

    /// An answer that came after a loss, marked with it. An error has no place for that: the loss is told by
    /// the next one.
    pub(crate) fn marked(&self, text: Bytes, generation: Generation) -> ReplyText {
        let marked = Message::parse(&text).ok().and_then(|answer| {
            answer.result()?;
            let state = loss::state(Some(&self.session.id().to_string()), generation);
            let mut edits = answer.edit();
            edits.set(&["result", meta::META, meta::STATE], &state);
            Some(Bytes::from(edits.apply().ok()?.into_owned()))
        });
        match marked {
            Some(text) => {
                let link = self.found();
                let beside =
                    link.map(|it| LossNotices::of(it.greeting(), self.server.name(), None));
                let then = self.noting(generation, None, None, beside.unwrap_or_default());
                ReplyText { text, then: Some(then) }
            }
            None => ReplyText::new(text),
        }
    }

    /// Whether a call that surely did not run is sent once more after a loss.
    pub(crate) fn restarts(&self) -> bool {
        self.app.restarting.contains(self.server.name())
    }

    /// What is answered to a call that failed.
    pub(crate) fn failed(
        &self,
        link: &Held,
        asked: RequestRef<'_>,
        error: &CallError,
    ) -> ReplyText {
        // What does not depend on state says nothing about it: the next one that does will be told. And
        // what we only let go of may still be there.
        if let Some(loss) = error.loss()
            && loss::depends_on_state(asked.method)
            && loss.reason() != LossReason::Released
        {
            let reason = Some(loss.reason());
            let next = Shared::next(&self.app.life, link);
            let generation = match next {
                // The session counts its own losses on what it shares.
                Some(_) => self.session.record().generation.next(),
                None => link.generation().next(),
            };
            let done = self.told(asked, generation, reason, error.delivery());
            let beside = LossNotices::of(link.greeting(), self.server.name(), reason);
            return ReplyText {
                then: Some(self.noting(generation, Some(loss.clone()), next, beside)),
                ..done
            };
        }
        ReplyText::new(reply::failure(asked, self.era, &error.brief()))
    }
}
