//! Pending losses of state, and their reports to the owner of a call.

use std::sync::Arc;

use bytes::Bytes;
use stayput_core::{Generation, Session};
use stayput_engine::NextState;
use stayput_upstream::{CallError, Delivery, Loss, LossReason, PooledLink};
use stayput_wire::{Era, Message, meta};

use super::owner::{CallOwner, OwnerKind, SessionlessCall};
use crate::{
    identify::ChosenSession,
    observe::events::Event,
    reply::{
        self, AfterWrite, ReplyText, RequestRef,
        loss::{self, LossNotices, LossReport},
    },
    state::shared_generations::{EntryGeneration, SharedUser},
};

impl CallOwner {
    /// Returns the generation of a loss that the session has not acknowledged.
    pub(super) fn unacknowledged_loss(&self) -> Option<Generation> {
        self.session()?.unacknowledged_loss_on(self.server.name())
    }

    /// Waits until it is known whether a report of a loss that another replica passes on was written.
    pub(super) async fn settle_reports(&self, link: &PooledLink) {
        if let OwnerKind::Sessionless(call) = &self.kind {
            return self.settle_shared_reports(call, link).await;
        }
        let (Some(session), Some(generation)) = (self.session(), self.unacknowledged_loss()) else {
            return;
        };
        let acknowledged = &self.app.loss_acknowledgements;
        if let Some(cluster) = &self.app.cluster
            && !acknowledged.has(session.id(), self.server.name(), generation)
        {
            // Boxed because it is rare: otherwise the future of every call would be as large.
            Box::pin(cluster.receipts.wait_for(session.id())).await;
        }
    }

    /// Waits for the same for a user of a claimed process.
    async fn settle_shared_reports(&self, call: &SessionlessCall, link: &PooledLink) {
        let (Some(used), Some(cluster)) = (&call.server_use, &self.app.cluster) else { return };
        let entry = call.entry_generation(link, link.generation());
        if call.keeps_state(link)
            && self.app.generations.lost(&used.user, self.server.name(), entry)
        {
            Box::pin(cluster.receipts.wait_for(used.claim.id())).await;
        }
    }

    /// Returns the report of a loss that the owner does not know of. It is the answer to the next request that depends
    /// on state.
    pub(super) fn pending_loss(
        &self,
        link: &PooledLink,
        request: RequestRef<'_>,
    ) -> Option<ReplyText> {
        if !loss::depends_on_state(request.method) {
            return None;
        }
        let (app, server) = (&self.app, self.server.name());
        let (generation, then) = match &self.kind {
            OwnerKind::Session(ChosenSession { session, .. }) => {
                let generation = session.unacknowledged_loss_on(server)?;
                if app.loss_acknowledgements.has(session.id(), server, generation) {
                    return None;
                }
                let loss = link.loss().map(|loss| Loss::clone(loss));
                let reason = loss.as_ref().map(Loss::reason);
                let why = format!("state was lost: {}", loss::reason(reason));
                self.note_failure(why, loss.as_ref().map_or("", Loss::detail));
                let notices = LossNotices::new(link.initialize_result(), server, reason);
                let next = NextState::own(generation);
                (generation, self.acknowledgement(session.session(), (next, loss), notices))
            }
            // It is not known which of several clients without a session gets the report, so every answer carries its
            // generation.
            OwnerKind::Sessionless(call) => {
                let (user, entry) = (call.user(), call.entry_generation(link, link.generation()));
                if !call.keeps_state(link) || !app.generations.lost(&user, server, entry) {
                    return None;
                }
                (link.generation(), self.shared_acknowledgement(call, (user, entry)))
            }
        };
        let reason = link.loss().map(|loss| loss.reason());
        Some(self.report(request, generation, reason, Delivery::NotSent).then(Some(then)))
    }

    /// Returns the answer to a call that failed.
    pub(super) fn failed(
        &self,
        link: &PooledLink,
        request: RequestRef<'_>,
        error: &CallError,
    ) -> ReplyText {
        let is_stateless = match &self.kind {
            OwnerKind::Session(_) => false,
            OwnerKind::Sessionless(call) if call.server_use.is_some() => !link.keeps_state(),
            OwnerKind::Sessionless(call) => call.era == Era::Modern,
        };
        let depends = loss::depends_on_state(request.method) && !is_stateless;
        // A request that does not depend on state does not report the loss; the next one that does will. State behind
        // a link that the gateway only released may still exist.
        let loss = error.loss().filter(|it| depends && it.reason() != LossReason::Released);
        let Some(loss) = loss else {
            let sentence = match error.loss() {
                Some(_) => loss::closed(self.server.name(), error.delivery()),
                None => error.brief(),
            };
            return ReplyText::new(reply::failure(request, self.era, &sentence));
        };
        let (server, reason) = (self.server.name(), Some(loss.reason()));
        let (generation, then) = match &self.kind {
            OwnerKind::Session(ChosenSession { session, .. }) => {
                let next = self.app.engine.state_after_loss(session.session(), server, link);
                let notices = LossNotices::new(link.initialize_result(), server, reason);
                let (generation, loss) = (next.generation, Some(loss.clone()));
                (generation, Some(self.acknowledgement(session.session(), (next, loss), notices)))
            }
            // Shared state is lost for all its users. The report is recorded for the user, not for a session.
            OwnerKind::Sessionless(call) => {
                let generation = link.generation().next();
                let (user, entry) = (call.user(), call.entry_generation(link, generation));
                match call.server_use {
                    Some(_) => (generation, Some(self.shared_acknowledgement(call, (user, entry)))),
                    None => {
                        self.app.generations.acknowledge(&user, server, entry);
                        (generation, None)
                    }
                }
            }
        };
        self.report(request, generation, reason, error.delivery()).then(then)
    }

    /// Records that a user of a shared link knows of a loss, when the answer that reports it is written. For a claimed
    /// process that is stored, so that the next holder does not report it again.
    fn shared_acknowledgement(
        &self,
        call: &SessionlessCall,
        (user, entry): (SharedUser, EntryGeneration),
    ) -> AfterWrite {
        let (app, server, used) =
            (self.app.clone(), self.server.shared_name(), call.server_use.clone());
        let runtime = tokio::runtime::Handle::current();
        let claim = used.as_ref().map(|used| used.claim.id());
        AfterWrite::new(claim, move || {
            app.generations.acknowledge(&user, &server, entry);
            if let Some(used) = used {
                // If the store fails, the loss is reported once more, which is harmless.
                runtime.spawn(async move { app.write_generation(&used, entry.1).await });
            }
        })
    }

    fn report(
        &self,
        request: RequestRef<'_>,
        generation: Generation,
        reason: Option<LossReason>,
        delivery: Delivery,
    ) -> ReplyText {
        let session = self.session().map(|session| session.id().to_string());
        let reason = match reason {
            Some(LossReason::Released) if self.app.cluster.is_some() => loss::HOLDER_DIED,
            reason => loss::reason(reason),
        };
        let server = self.server.name();
        let report = LossReport { server, session, generation, reason, delivery };
        ReplyText::new(report.answer(request, self.era))
    }

    /// Adds a loss to the result that came after it. An error response has no `_meta`, so the next result reports the
    /// loss.
    pub(super) fn add_loss_to_result(&self, text: Bytes, generation: Generation) -> ReplyText {
        let OwnerKind::Session(ChosenSession { session, .. }) = &self.kind else {
            return ReplyText::new(text);
        };
        let marked = Message::parse(&text).ok().and_then(|answer| {
            answer.result()?;
            let state = loss::state(Some(&session.id().to_string()), generation);
            let mut edits = answer.edit();
            edits.set(&["result", meta::META, meta::STATE], &state);
            Some(Bytes::from(edits.apply().ok()?.into_owned()))
        });
        let Some(marked) = marked else { return ReplyText::new(text) };
        let notices = self
            .find_link()
            .map(|it| LossNotices::new(it.initialize_result(), self.server.name(), None));
        let notices = notices.unwrap_or_default();
        let next = NextState::own(generation);
        let then = self.acknowledgement(session.session(), (next, None), notices);
        ReplyText::new(marked).then(Some(then))
    }

    /// Acknowledges a loss when the answer that reports it is written. `next` is the state after the loss.
    fn acknowledgement(
        &self,
        session: &Arc<Session>,
        (next, loss): (NextState, Option<Loss>),
        beside: LossNotices,
    ) -> AfterWrite {
        let (app, session, generation) = (self.app.clone(), session.clone(), next.generation);
        let (runtime, server) = (tokio::runtime::Handle::current(), self.server.clone());
        AfterWrite::new(Some(session.id()), move || {
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
                let _ = app.engine.acknowledge_loss(&session, server.name(), &next).await;
                app.loss_acknowledgements.end(session.id(), server.name(), generation);
            });
        })
    }
}
