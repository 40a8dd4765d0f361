//! Session on one server: opens the link between them, and reports losses of its state.

use std::sync::{Arc, atomic::Ordering};

use stayput_core::{ActiveSession, Generation};
use stayput_engine::NextState;
use stayput_upstream::{CallError, Delivery, LinkOwner, LossReason, PooledLink};
use stayput_wire::Era;

use super::scope::TaskScope;
use crate::{
    Error, Event, Hub, StateLost,
    hub::{HubInner, HubServer},
};

/// Session on one server, for the duration of a call.
pub(crate) struct SessionLink {
    pub(crate) hub: Arc<HubInner>,
    pub(crate) entry: Arc<HubServer>,
    /// Name of the server as the agent uses it.
    local_name: String,
    scope: Arc<TaskScope>,
    session: ActiveSession,
    branch: u64,
    /// Generation that the scope knew when the call began, before concurrent calls reported a loss.
    known: Option<Generation>,
    /// Loss that was unacknowledged when the call began.
    pending: Option<PendingLoss>,
}

/// Loss that was not reported yet.
#[derive(Clone, Copy)]
struct PendingLoss {
    generation: Generation,
    /// Whether the state on all servers of the session was lost.
    whole_session: bool,
}

/// Loss to report.
struct Loss {
    whole_session: bool,
    reason: Option<LossReason>,
    delivery: Delivery,
    /// State that follows.
    next: NextState,
}

impl SessionLink {
    /// Opens the session if it is not open yet. Refuses a server that is denied to the sub-agent.
    pub(crate) async fn new(
        hub: &Hub,
        scope: &Arc<TaskScope>,
        server: &str,
    ) -> Result<Self, Error> {
        let entry = hub.entry(server)?;
        let branch = scope.rules.branch(server, &scope.guard, &scope.generations)?;
        let known = scope.generations.get(&entry.name, branch);
        let session = scope.guard.acquire().await?;
        let (hub, scope, local_name) = (hub.inner.clone(), scope.clone(), server.to_owned());
        let link = Self { hub, entry, local_name, scope, session, branch, known, pending: None };
        Ok(Self { pending: link.unacknowledged_loss(), ..link })
    }

    /// Returns the loss that the record says is not acknowledged yet.
    fn unacknowledged_loss(&self) -> Option<PendingLoss> {
        if self.branch != 0 {
            return None;
        }
        let generation = self.session.unacknowledged_loss_on(&self.entry.name)?;
        let whole_session = self.session.record().unacknowledged_loss() == Some(generation);
        Some(PendingLoss { generation, whole_session })
    }

    pub(crate) fn branch(&self) -> u64 {
        self.branch
    }

    fn place(&self) -> LinkOwner {
        LinkOwner::new(self.hub.owner.clone(), self.session.id()).branch(self.branch)
    }

    /// Returns the link if it is open.
    pub(crate) fn find(&self) -> Option<PooledLink> {
        let link = self.hub.links.find(&self.entry.server, &self.place())?;
        self.announce(&link);
        Some(link)
    }

    /// Returns the link, and opens it if necessary.
    pub(crate) async fn open(&self) -> Result<PooledLink, Error> {
        if let Some(link) = self.find() {
            return Ok(link);
        }
        let place = self.place();
        let client = self.scope.guard.handlers().client_info();
        let opening =
            self.hub.engine.open_link((self.session.session(), &place), &self.entry.server, client);
        let failed = |source| Error::ServerFailed { server: self.local_name.clone(), source };
        let link = opening.await.map_err(failed)?;
        self.announce(&link);
        Ok(link)
    }

    /// Sends the event of a new link, and starts to answer the server's requests outside of calls.
    fn announce(&self, link: &PooledLink) {
        if !link.is_new() {
            return;
        }
        self.hub.links_opened.fetch_add(1, Ordering::Relaxed);
        self.hub.send_event(Event::Linked {
            session: self.session.id(),
            server: self.local_name.clone(),
            generation: link.generation(),
        });
        let handlers = self.scope.guard.handlers();
        let is_own = link.key().scope().session().is_some();
        if is_own && handlers.is_some() && link.initialize_result().era() == Era::Legacy {
            self.hub.thread.handle().spawn(handlers.listen(link));
        }
    }

    /// Generation of the link as this session counts it. On a shared link each session counts its own losses, from
    /// its first use on.
    async fn generation(&self, link: &PooledLink) -> Result<Generation, Error> {
        let engine = &self.hub.engine;
        let shared =
            engine.note_shared_state(self.session.session(), &self.entry.name, link).await?;
        Ok(shared.unwrap_or(link.generation()))
    }

    /// Branch on this link. A shared link has no branches.
    fn branch_on(&self, link: &PooledLink) -> u64 {
        if link.key().scope().session().is_some() { self.branch } else { 0 }
    }

    /// Reports a loss that the scope did not know when the call began. The call must not be sent then.
    pub(crate) async fn take_pending_loss(
        &self,
        link: &PooledLink,
    ) -> Result<Option<StateLost>, Error> {
        let generation = self.generation(link).await?;
        let (generations, branch) = (&self.scope.generations, self.branch_on(link));
        let known =
            if branch == self.branch { self.known } else { generations.get(&self.entry.name, 0) };
        let pending = self.pending.or_else(|| self.unacknowledged_loss());
        let latest = pending.map_or(generation, |pending| pending.generation.max(generation));
        let is_lost = known.map_or(pending.is_some(), |known| known < latest);
        generations.record(&self.entry.name, branch, latest);
        if !is_lost {
            return Ok(None);
        }
        let whole_session = pending.is_some_and(|pending| pending.whole_session);
        let reason = link.loss().map(|loss| loss.reason());
        let delivery = Delivery::NotSent;
        let next = NextState::own(latest);
        let loss = Loss { whole_session, reason, delivery, next };
        Ok(Some(self.report(loss, branch).await))
    }

    /// Sends the event of a loss, once, and acknowledges the loss in the record.
    async fn report(&self, loss: Loss, branch: u64) -> StateLost {
        let Loss { whole_session, reason, delivery, next } = loss;
        let generation = next.generation;
        let name = &self.entry.name;
        let reason = match reason {
            Some(reason) if !whole_session => reason.as_str(),
            // A revived session has a higher incarnation.
            _ if self.session.record().incarnation > 0 => "expired",
            _ => "ended",
        };
        if whole_session {
            self.scope.generations.record_all(generation);
        }
        let server = (!whole_session).then(|| self.local_name.clone());
        let subject = if whole_session { Arc::from("") } else { name.clone() };
        if self.hub.losses.record(self.session.id(), (subject, branch), generation) {
            let (session, server) = (self.session.id(), server.clone());
            self.hub.send_event(Event::Lost { session, server, generation, reason });
        }
        if branch == 0 {
            let acknowledging =
                self.hub.engine.acknowledge_loss(self.session.session(), name, &next);
            // If this fails, the loss is reported once more, which does no harm.
            let _ = acknowledging.await;
        }
        StateLost { server, generation, delivery, reason }
    }

    /// Converts the error of a call. A loss of state is reported to this scope.
    pub(crate) async fn convert_error(&self, link: &PooledLink, error: CallError) -> Error {
        match error.loss() {
            // The state behind a released link can still exist.
            Some(loss) if loss.reason() != LossReason::Released => {
                let (name, branch) = (&self.entry.name, self.branch_on(link));
                let next = self.hub.engine.state_after_loss(self.session.session(), name, link);
                self.scope.generations.record(name, branch, next.generation);
                let (reason, delivery) = (Some(loss.reason()), error.delivery());
                let loss = Loss { whole_session: false, reason, delivery, next };
                Error::StateLost(self.report(loss, branch).await)
            }
            _ => Error::CallFailed { server: self.local_name.clone(), source: error },
        }
    }
}
