//! Session at one server: its link, and the state that was lost there.

use std::sync::Arc;

use bytes::Bytes;
use stayput_core::{ActiveSession, Generation};
use stayput_upstream::{
    Asking, Attachment, CallError, Delivery, Hello, Isolation, LinkOpenError, LinkOwner, Loss,
    LossReason, PooledLink, Server, Shared,
};
use stayput_wire::{Era, Message, meta};

use crate::{
    call::attachment_sink::RecordSink,
    observe::{events::Event, session_extension::SessionExtension, session_stats::SessionStats},
    reply::{
        self, AfterWrite, ReplyText, RequestRef,
        loss::{self, LossNotices, LossReport},
    },
    state::AppState,
};

/// Session in use at one server, for the duration of a call.
pub(super) struct SessionLink {
    pub(super) app: Arc<AppState>,
    pub(super) server: Server,
    pub(super) session: ActiveSession,
    /// Protocol era of the client, which determines the form of errors.
    pub(super) era: Era,
}

impl SessionLink {
    fn place(&self) -> LinkOwner {
        LinkOwner::new(self.session.session().owner().clone(), self.session.id())
    }

    /// Returns the error message if the session is at its limit of concurrent calls.
    pub(super) fn over_limit(&self) -> Option<String> {
        let limit = self.app.rules.calls;
        (self.session.users_at_start() > limit).then(|| {
            format!(
                "Nothing was run: this session has {limit} calls in flight, which is \
                 `limits.calls_per_session`. Wait for one of them to end, and try again in 1 s."
            )
        })
    }

    /// Returns the link if it exists. Tries the link of the previous call first, which nearly always saves the
    /// lookup.
    pub(super) fn found(&self) -> Option<PooledLink> {
        let extension = SessionExtension::of(&self.session);
        if let Some(link) = extension.and_then(|extension| extension.link(&self.server)) {
            return Some(link);
        }
        let session = self.session.session();
        let link = self.app.links.find_of(&self.server, session.owner(), session.id())?;
        if let Some(extension) = extension {
            extension.set_link(&link);
        }
        Some(link)
    }

    /// Opens the link. `hello` is the client information that the server gets.
    pub(super) async fn open(&self, hello: Hello) -> Result<PooledLink, String> {
        let (place, server) = (self.place(), self.app.present(&self.server)?);
        let asking = self.asking(&server, &place, hello).await?;
        let link = self.app.links.open(&server, &place, &asking).await;
        link.map_err(|error| self.describe_open_error(&error))
    }

    /// Returns the reason why there is no link, in words for a client. Details are recorded for the operator.
    fn describe_open_error(&self, error: &LinkOpenError) -> String {
        let text = error.to_string();
        let message = LinkOpenError::without_output(&text);
        self.note_failure(message.to_owned(), &text[message.len()..]);
        self.app.describe_open_error(error)
    }

    fn note_failure(&self, message: String, wrote: &str) {
        if let Some(usage) = SessionStats::of(&self.session) {
            usage.failed(self.server.shared_name(), message, wrote);
        }
    }

    async fn asking(
        &self,
        server: &Server,
        place: &LinkOwner,
        hello: Hello,
    ) -> Result<Asking, String> {
        let record = self.session.record();
        let attachment = record.attachments.get(server.name());
        let attachment = attachment.map(|sealed| Attachment::open(sealed, &self.app.seal));
        // The stored attachment names the protocol, so the server need not be asked.
        let way = match &attachment {
            Some(Ok(attachment)) => attachment.way,
            _ => {
                let way = self.app.links.way(server, place).await;
                way.map_err(|error| self.describe_open_error(&error))?
            }
        };
        if server.isolation(way.era()) != Isolation::PerSession {
            // A shared link is stored in no session's record.
            return Ok(Asking { hello, ..Asking::default() });
        }
        // An unreadable attachment cannot be resumed, so the state behind it counts as lost.
        let unreadable = matches!(attachment, Some(Err(_)));
        let generation = if unreadable { record.generation.next() } else { record.generation };
        let keeper = RecordSink {
            app: self.app.clone(),
            session: self.session.session().clone(),
            server: self.server.name().into(),
        };
        Ok(Asking { hello, keeper: Some(Arc::new(keeper)), generation })
    }

    /// Records which state of a shared link the session depends on from now on. If it depended on an earlier state,
    /// that one is lost and has to be reported.
    pub(super) async fn depend(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
    ) -> Result<(), String> {
        let server = self.server.name();
        let state = Shared::now(&self.app.life, link);
        let Some(state) = state.filter(|_| loss::depends_on_state(asked.method)) else {
            return Ok(());
        };
        if state.seen_by(&self.session.record(), server).is_some() {
            return Ok(());
        }
        let session = self.session.session();
        let change = self.app.sessions.change(session, |record| state.note(record, server));
        Box::pin(change).await.map_err(|error| error.to_string())
    }

    /// Returns the report of an unacknowledged loss. It is the answer to the next request that depends on state.
    pub(super) fn pending_loss(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
    ) -> Option<ReplyText> {
        let generation = self.session.unacknowledged_loss_on(self.server.name())?;
        let server = self.server.name();
        if !loss::depends_on_state(asked.method)
            || self.app.loss_acknowledgements.has(self.session.id(), server, generation)
        {
            return None;
        }
        let loss = link.loss().map(|loss| Loss::clone(loss));
        let reason = loss.as_ref().map(Loss::reason);
        let why = format!("state was lost: {}", loss::reason(reason));
        self.note_failure(why, loss.as_ref().map_or("", Loss::detail));
        let done = self.told(asked, generation, reason, Delivery::NotSent);
        let notices = LossNotices::of(link.greeting(), server, reason);
        Some(done.then(Some(self.noting(generation, loss, None, notices))))
    }

    fn told(
        &self,
        asked: RequestRef<'_>,
        generation: Generation,
        reason: Option<LossReason>,
        delivery: Delivery,
    ) -> ReplyText {
        let report = LossReport {
            server: self.server.name(),
            session: Some(self.session.id().to_string()),
            generation,
            reason: loss::reason(reason),
            delivery,
        };
        ReplyText::new(report.answer(asked, self.era))
    }

    /// Acknowledges a loss when the answer that reports it is written. `next` is the state behind a shared link after
    /// the loss.
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
            // Several concurrent calls may report the same loss.
            let known = session.record().is_loss_acknowledged(server.name(), generation);
            let first = app.loss_acknowledgements.begin(session.id(), server.name(), generation);
            if first && !known {
                let (reason, detail) =
                    (loss.as_ref().map(Loss::reason), loss.as_ref().map(Loss::detail));
                let detail = detail.unwrap_or_default();
                let event = Event::Lost { server: server.name(), reason, generation, detail };
                app.note(session.id(), event);
                app.connections.tell_loss(session.id(), server.name(), &beside);
            }
            runtime.spawn(async move {
                // If the store fails, the loss is reported once more, which is harmless.
                let change = app.sessions.change(&session, |record| {
                    if let Some(next) = &next {
                        next.note(record, server.name());
                    }
                    record.acknowledge_loss(server.name(), generation);
                });
                let _ = change.await;
                app.loss_acknowledgements.end(session.id(), server.name(), generation);
            });
        })
    }

    /// Adds a loss to the result that came after it. An error response has no `_meta`, so the next result reports the
    /// loss.
    pub(super) fn marked(&self, text: Bytes, generation: Generation) -> ReplyText {
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
                let notices =
                    link.map(|it| LossNotices::of(it.greeting(), self.server.name(), None));
                let then = self.noting(generation, None, None, notices.unwrap_or_default());
                ReplyText::new(text).then(Some(then))
            }
            None => ReplyText::new(text),
        }
    }

    /// Returns whether a call that certainly did not run is sent again after a loss.
    pub(super) fn restarts(&self) -> bool {
        self.app.restarting.contains(self.server.name())
    }

    /// Returns the answer to a call that failed.
    pub(super) fn failed(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
        error: &CallError,
    ) -> ReplyText {
        // A request that does not depend on state does not report the loss; the next one that does will. State behind
        // a link that the gateway only released may still exist.
        if let Some(loss) = error.loss()
            && loss::depends_on_state(asked.method)
            && loss.reason() != LossReason::Released
        {
            let reason = Some(loss.reason());
            let next = Shared::next(&self.app.life, link);
            let generation = match next {
                // On a shared link, each session counts its own losses.
                Some(_) => self.session.record().generation.next(),
                None => link.generation().next(),
            };
            let done = self.told(asked, generation, reason, error.delivery());
            let notices = LossNotices::of(link.greeting(), self.server.name(), reason);
            return done.then(Some(self.noting(generation, Some(loss.clone()), next, notices)));
        }
        ReplyText::new(reply::failure(asked, self.era, &error.brief()))
    }
}
