//! Session on one server: opens the link between them, and reports losses of its state.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use stayput_core::{ActiveSession, Agent, Generation};
use stayput_engine::NextState;
use stayput_upstream::{
    AttachmentSink, CallError, Delivery, LinkOpenError, LinkOwner, LossReason, PooledLink,
};
use stayput_wire::Era;

use super::{
    id_keeper::{KeeperSink, KeptLink},
    scope::TaskScope,
};
use crate::{
    Error, Event, Hub, StateLost,
    events::name_of,
    hub::{HubInner, HubServer},
};

/// Longest time for which a call waits for the backoff of a server that failed. A longer one fails the call, which the
/// agent can repeat after [`Error::retry_after`].
const MAX_BACKOFF_WAIT: Duration = Duration::from_secs(5);

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
    /// Loss of the link, if it was lost in this process.
    link: Option<Arc<stayput_upstream::Loss>>,
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
        scope.rules.confirm(hub).await?;
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

    fn hub(&self) -> Hub {
        Hub { inner: self.hub.clone(), agent: Agent::none() }
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

    /// Returns the link, and opens it if necessary. Waits while the server backs off, up to [`MAX_BACKOFF_WAIT`].
    pub(crate) async fn open(&self) -> Result<PooledLink, Error> {
        if let Some(link) = self.find() {
            return Ok(link);
        }
        let (place, mut waited) = (self.place(), Duration::ZERO);
        loop {
            let client = self.scope.guard.handlers().client_info();
            let session = (self.session.session(), &place);
            let opening =
                self.hub
                    .engine
                    .open_link_with(session, &self.entry.server, client, |it| self.keeping_ids(it));
            let error = match opening.await {
                Ok(link) => {
                    self.announce(&link);
                    return Ok(link);
                }
                Err(error) => error,
            };
            match *error {
                LinkOpenError::BackingOff { pause, .. }
                    if waited + pause <= MAX_BACKOFF_WAIT
                        && !self.hub.is_not_at_gateway(&error) =>
                {
                    waited += pause;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(self.hub().gateway_failure(&self.local_name, error)),
            }
        }
    }

    /// Returns the sink of a link, with the keeper of session ids around it if there is one.
    fn keeping_ids(&self, record: Arc<dyn AttachmentSink>) -> Arc<dyn AttachmentSink> {
        match self.scope.guard.id_keeper() {
            Some(keeper) => Arc::new(KeeperSink { keeper, link: self.kept_link(), record }),
            None => record,
        }
    }

    fn kept_link(&self) -> KeptLink {
        KeptLink::new(&self.entry.server, &self.session.record())
    }

    /// Removes the kept session id of a session that the server does not know any more.
    async fn clear_kept_id(&self, reason: LossReason) {
        let keeper = self.scope.guard.id_keeper().filter(|_| reason == LossReason::SessionUnknown);
        if let Some(keeper) = keeper
            && let Err(reason) = keeper.clear(&self.kept_link()).await
        {
            tracing::warn!(
                server = &*self.entry.name,
                reason,
                "the kept session id was not removed"
            );
        }
    }

    /// Sends the event of a new link, and starts to answer the server's requests outside of calls.
    fn announce(&self, link: &PooledLink) {
        if !link.is_new() {
            return;
        }
        self.hub.links_opened.fetch_add(1, Ordering::Relaxed);
        self.hub.send_event(Event::Linked {
            session: self.session.id(),
            name: name_of(&self.session.record()),
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
        let (link, delivery) = (link.loss().cloned(), Delivery::NotSent);
        let next = NextState::own(latest);
        let loss = Loss { whole_session, link, delivery, next };
        Ok(Some(self.report(loss, branch).await))
    }

    /// Sends the event of a loss that a gateway reported.
    pub(crate) fn report_of_gateway(&self, lost: StateLost) -> StateLost {
        self.send_lost(&lost);
        lost
    }

    /// Sends the event of a tool call, if there is a subscriber.
    pub(crate) fn send_called(
        &self,
        tool: Option<&str>,
        duration: Duration,
        error: Option<&Error>,
    ) {
        if let Some(tool) = tool.filter(|_| self.hub.events.receiver_count() > 0) {
            self.hub.send_event(Event::Called {
                session: self.session.id(),
                name: name_of(&self.session.record()),
                server: self.local_name.clone(),
                tool: tool.to_owned(),
                duration,
                error: error.map(Error::kind),
            });
        }
    }

    fn send_lost(&self, lost: &StateLost) {
        self.hub.send_event(Event::Lost {
            session: self.session.id(),
            name: name_of(&self.session.record()),
            server: lost.server.clone(),
            generation: lost.generation,
            reason: lost.reason,
            exit_status: lost.exit_status(),
            detail: lost.detail().to_owned(),
        });
    }

    /// Sends the event of a loss, once, and acknowledges the loss in the record.
    async fn report(&self, loss: Loss, branch: u64) -> StateLost {
        let Loss { whole_session, link, delivery, next } = loss;
        let link = link.filter(|_| !whole_session);
        let generation = next.generation;
        let name = &self.entry.name;
        let reason = match &link {
            Some(loss) => loss.reason().as_str(),
            // Only expiry leaves a generation to the session that is revived, or that takes the name.
            None if whole_session || self.session.record().incarnation > 0 => "expired",
            None => "ended",
        };
        if whole_session {
            self.scope.generations.record_all(generation);
        }
        let server = (!whole_session).then(|| self.local_name.clone());
        let subject = if whole_session { Arc::from("") } else { name.clone() };
        let lost = StateLost { server, generation, delivery, reason, link };
        if self.hub.losses.record(self.session.id(), (subject, branch), generation) {
            self.send_lost(&lost);
        }
        if branch == 0 {
            let acknowledging =
                self.hub.engine.acknowledge_loss(self.session.session(), name, &next);
            // If this fails, the loss is reported once more, which does no harm.
            let _ = acknowledging.await;
        }
        lost
    }

    /// Converts the error of a call. A loss of state is reported to this scope.
    pub(crate) async fn convert_error(&self, link: &PooledLink, error: CallError) -> Error {
        match error.loss() {
            // The state behind a released link can still exist.
            Some(loss) if loss.reason() != LossReason::Released => {
                let (name, branch) = (&self.entry.name, self.branch_on(link));
                let next = self.hub.engine.state_after_loss(self.session.session(), name, link);
                self.scope.generations.record(name, branch, next.generation);
                self.clear_kept_id(loss.reason()).await;
                let (link, delivery) = (Some(Arc::new(loss.clone())), error.delivery());
                let loss = Loss { whole_session: false, link, delivery, next };
                Error::StateLost(self.report(loss, branch).await)
            }
            _ => Error::CallFailed { server: self.local_name.clone(), source: error },
        }
    }
}
