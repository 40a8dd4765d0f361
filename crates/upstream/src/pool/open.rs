//! Opening of a link, once for all concurrent callers.

use std::sync::Arc;

use stayput_core::{Generation, Owner, SessionId};
use stayput_http::Worker;
use stayput_wire::Era;
use tracing::Instrument as _;

use super::{LinkOpenOptions, Links, PooledLink};
use crate::{
    Attachment, Cost, Delivery, EraChoice, Expansion, Identity, Isolation, Link, LinkKey,
    LinkOpenError, LinkOwner, Loss, LossReason, Profile, Scope, Server, ServerProtocol,
    budget::link_permit::LinkPermit,
    open::{
        opener::{LinkResource, OpenRequest},
        started_child::StartedChild,
    },
    pool::{
        pool_entry::{EntryStep, PoolEntry},
        pooled_link::PinGuard,
        probed_links::WantedLink,
        profiles::ProfileRequest,
    },
    server::link_key::{LinkKeyRef, ScopeRef},
    util::flag::CompletionGuard,
};

impl Links {
    /// Returns the link of `link_owner` to `server`. The first caller opens it; concurrent callers wait for the
    /// same attempt. A caller that is cancelled does not cancel the attempt.
    ///
    /// # Errors
    /// If the link cannot be opened. All callers that waited for the same attempt get the same error.
    pub async fn open(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        options: &LinkOpenOptions,
    ) -> Result<PooledLink, Arc<LinkOpenError>> {
        let isolation = match self.settled(server, link_owner) {
            Some(isolation) => isolation,
            None => self.isolation(server, link_owner, options).await?,
        };
        // Stay on this pool entry: once it has ended, the session or the configuration it was made for has ended too.
        let pin = self.pin_entry(&LinkKey::for_owner(server, isolation, link_owner), server).await;
        let entry: &Arc<PoolEntry> = &pin;
        let mut waited = None;
        let (link, generation, loss) = loop {
            if self.is_closed() {
                return Err(Arc::new(ended(server)));
            }
            let changed = entry.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match entry.enter(waited) {
                EntryStep::Live { link, generation, loss } => break (link, generation, loss),
                EntryStep::Failed(error) => return Err(error),
                EntryStep::Wait(attempt) => waited = Some(attempt),
                EntryStep::Open(attempt, completion) => {
                    waited = Some(attempt);
                    let (links, entry) = (self.clone(), entry.clone());
                    let (server, options) = (server.clone(), options.clone());
                    OpenAttempt { links, entry, attempt, server, options, completion }.start();
                }
            }
            changed.await;
        };
        Ok(PooledLink::new(pin, link, generation, loss))
    }

    /// Returns the live link of `link_owner` to `server`, if there is one. Never waits.
    #[must_use]
    pub fn find(&self, server: &Server, link_owner: &LinkOwner) -> Option<PooledLink> {
        let LinkOwner { owner, session, branch } = link_owner;
        self.find_in(server, owner, (*session, *branch))
    }

    /// Returns the live link of the session itself (branch 0) of this owner.
    #[must_use]
    pub fn find_of(
        &self,
        server: &Server,
        owner: &Owner,
        session: SessionId,
    ) -> Option<PooledLink> {
        self.find_in(server, owner, (session, 0))
    }

    fn find_in(
        &self,
        server: &Server,
        owner: &Owner,
        (session, branch): (SessionId, u64),
    ) -> Option<PooledLink> {
        let all = [
            ScopeRef::Session { owner, session, branch },
            ScopeRef::Owner(owner),
            ScopeRef::Shared,
        ];
        let chosen = chosen(server);
        let mut all =
            all.into_iter().filter(|it| chosen.is_none_or(|it_is| it_is == it.isolation()));
        all.find_map(|scope| self.0.table.find(&LinkKeyRef { server, scope })?.hold())
    }

    /// Returns the isolation if it is configured or follows from an existing pool entry.
    fn settled(&self, server: &Server, link_owner: &LinkOwner) -> Option<Isolation> {
        chosen(server).or_else(|| {
            let entries = self.0.table.entries_for(server, link_owner);
            entries.first().map(|entry| match entry.key.scope() {
                Scope::Session { .. } => Isolation::PerSession,
                Scope::Owner(_) => Isolation::PerOwner,
                Scope::Shared => Isolation::Shared,
            })
        })
    }

    /// Returns the isolation of a server whose era has to be learned first.
    async fn isolation(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        options: &LinkOpenOptions,
    ) -> Result<Isolation, Arc<LinkOpenError>> {
        let visit = self.0.table.register(link_owner.session);
        tokio::select! {
            biased;
            // The session ended: the result would not be for this session.
            () = visit.over() => Err(Arc::new(ended(server))),
            isolation = self.learned_isolation(server, link_owner, options) => isolation,
        }
    }

    /// Returns the isolation by the profile. A saved legacy attachment of the same identity says it without a
    /// request.
    async fn learned_isolation(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        options: &LinkOpenOptions,
    ) -> Result<Isolation, Arc<LinkOpenError>> {
        if let Some(sink) = &options.sink
            && let Some(kept) = sink.load().await.map_err(|error| Arc::new(error.into()))?
            && kept.protocol.era() == Era::Legacy
        {
            let isolation = server.isolation(Era::Legacy);
            let scope = Scope::new(isolation, link_owner);
            let expansion = self.0.opener.folders.expansion(server, &scope).await;
            let expansion = expansion.map_err(|error| Arc::new(error.into()))?;
            if server.identity(&expansion) == kept.identity {
                return Ok(isolation);
            }
        }
        self.isolation_of(server, link_owner, &options.client_info).await
    }

    /// Returns the pool entry of a link. If its session is ending, waits for that end first.
    async fn pin_entry(&self, key: &LinkKey, server: &Server) -> PinGuard {
        loop {
            match self.0.table.pin_entry(key, server, &self.0.opener.budget) {
                Ok(entry) => return entry,
                Err(ending) => ending.wait().await,
            }
        }
    }
}

/// One attempt to open a link.
struct OpenAttempt {
    links: Links,
    entry: Arc<PoolEntry>,
    attempt: u64,
    server: Server,
    options: LinkOpenOptions,
    completion: CompletionGuard,
}

/// Generation, loss and resume data that a new link starts with.
struct LinkStart {
    generation: Generation,
    loss: Option<Arc<Loss>>,
    /// Server-side session to resume.
    resume: Option<Attachment>,
}

impl Drop for OpenAttempt {
    /// Fails the attempt if the task was aborted or panicked, so that its waiters are woken.
    fn drop(&mut self) {
        self.entry.failed(self.attempt, Arc::new(ended(&self.server)));
    }
}

impl OpenAttempt {
    /// Opens the link in its own task.
    fn start(self) {
        let (entry, attempt) = (self.entry.clone(), self.attempt);
        let runtime = Worker::runtime_or(&self.links.0.opener.runtime);
        let task = runtime.spawn(self.run().in_current_span());
        entry.opening(attempt, task.abort_handle());
    }

    async fn run(self) {
        let (server, session) = (self.server.name(), self.entry.key.scope().session());
        let session = session.map(tracing::field::display);
        match self.open().await {
            Ok((link, attachment, loss)) => {
                let (generation, era) = (attachment.generation, link.era().name());
                tracing::debug!(server, session, %generation, era, "link opened");
                let opened = link.share();
                if self.entry.opened(self.attempt, link, &attachment, loss) {
                    self.links.watch_loss(&self.entry, &opened, &attachment);
                }
            }
            Err(error) => {
                tracing::debug!(server, session, error = error.brief(), "link not opened");
                self.entry.failed(self.attempt, error);
            }
        }
    }

    async fn open(&self) -> Result<(Link, Attachment, Option<Arc<Loss>>), Arc<LinkOpenError>> {
        if let Some(gone) = self.entry.after() {
            gone.wait().await;
        }
        let opener = &self.links.0.opener;
        let scope = self.entry.key.scope();
        // Before the values are filled in: the directory of the spare becomes that of the session.
        let spare = self.spare().await;
        let expansion = opener.expansion(&self.server, scope, Some(&self.completion)).await?;
        let identity = self.server.identity(&expansion);
        let beginning = self.beginning(identity).await?;
        let client_info = self.options.client_info.on_link_of(scope);
        let plan = OpenRequest { server: &self.server, scope, client_info: &client_info };
        let (link, protocol) = match &beginning.resume {
            Some(kept) => (opener.resume(plan, self.permit().await?, kept).await?, kept.protocol),
            None => self.begin(plan, &expansion, spare).await?,
        };
        let attachment = Attachment::from_link(&link, (beginning.generation, protocol), identity);
        if let Some(sink) = &self.options.sink {
            sink.save(&attachment).await.map_err(LinkOpenError::from)?;
        }
        Ok((link, attachment, beginning.loss))
    }

    /// Derives generation, loss and resume data from the last link of this process, or from the saved
    /// attachment of another process.
    async fn beginning(&self, identity: Identity) -> Result<LinkStart, LinkOpenError> {
        let (last, loss) = self.entry.before();
        if let Some(last) = last {
            return Ok(next_start(last, loss, identity));
        }
        let kept = match &self.options.sink {
            Some(sink) => sink.load().await?,
            None => None,
        };
        let Some(kept) = kept else {
            return Ok(LinkStart { generation: self.options.generation, loss: None, resume: None });
        };
        // A child process ended with the process that held it, whether or not its configuration is the same now. It
        // also differs when that process had other session directories. It did not end if this process has it: then
        // another client of the session has another configuration of the server.
        let is_of_earlier = kept.is_process && !self.has_other_configuration();
        let reason = if is_of_earlier && kept.is_stopped {
            LossReason::Stopped
        } else if kept.identity == identity || is_of_earlier {
            LossReason::Released
        } else {
            LossReason::Reconfigured
        };
        Ok(next_start(kept, Some(Arc::new(Loss::new(reason, ""))), identity))
    }

    /// Whether this process has links of the same session to a server of this name with another configuration.
    fn has_other_configuration(&self) -> bool {
        let own = &self.entry.key;
        let is_other = |key: &LinkKey| {
            key.server() == own.server()
                && key.scope() == own.scope()
                && key.configuration() != own.configuration()
        };
        !self.links.0.table.all_where(is_other).is_empty()
    }

    /// Opens a link without a session to resume, with the transport and era of the server.
    async fn begin(
        &self,
        plan: OpenRequest<'_>,
        expansion: &Expansion,
        mut spare: Option<StartedChild>,
    ) -> Result<(Link, ServerProtocol), Arc<LinkOpenError>> {
        if let Some(profile) = self.unasked(expansion) {
            match self.open_as(plan, &profile, spare.take()).await {
                // The server refused the plain legacy handshake. It may still be a legacy server with another
                // transport: probe it.
                Err(LinkOpenError::Http { delivery: Delivery::Refused, .. })
                    if !self.server.is_process() => {}
                opened => return Ok(opened?),
            }
        }
        let (links, server, scope) = (&self.links, &self.server, plan.scope);
        let asker = ProfileRequest { links, server, scope, opener: Some(plan.client_info) };
        let profile = links.0.profiles.any_or_learn(asker).await?;
        let era = profile.era();
        let wanted = WantedLink { server, scope, era, client_info: plan.client_info };
        if let Some(link) = links.0.probed.take(wanted, &self.completion) {
            return Ok((link, profile.protocol()));
        }
        Ok(self.open_as(plan, &profile, spare).await?)
    }

    async fn open_as(
        &self,
        plan: OpenRequest<'_>,
        profile: &Profile,
        spare: Option<StartedChild>,
    ) -> Result<(Link, ServerProtocol), LinkOpenError> {
        let opener = &self.links.0.opener;
        let link = match spare {
            None => {
                opener.open(plan, profile, LinkResource::LinkPermit(self.permit().await?)).await?
            }
            Some(spare) => match opener.open(plan, profile, LinkResource::Spare(spare)).await {
                // The spare exited while it waited. A new process may still work.
                Err(LinkOpenError::Exited { .. }) => {
                    opener
                        .open(plan, profile, LinkResource::LinkPermit(self.permit().await?))
                        .await?
                }
                opened => opened?,
            },
        };
        Ok((link, profile.protocol()))
    }

    /// Returns an empty profile for a server that is configured as legacy and has none yet. It needs no
    /// probe: the `initialize` result comes with the link.
    fn unasked(&self, expansion: &Expansion) -> Option<Profile> {
        if self.server.options().era != EraChoice::Legacy || self.server.is_sse() {
            return None;
        }
        let known = self.links.0.profiles.known(self.server.profile_identity(expansion));
        known.is_none().then(|| Profile::unasked(ServerProtocol::Legacy))
    }

    /// Takes a spare process with its budget permit, if there is one. Its directory becomes that of the session, which
    /// must have nothing in its own.
    async fn spare(&self) -> Option<StartedChild> {
        let (scope, spares) = (self.entry.key.scope(), &self.links.0.spares);
        if self.server.options().warm.count == 0 {
            return None;
        }
        if !self.server.uses_session_dir() {
            let mut spare = spares.take(&self.links, &self.server, scope)?;
            spare.permit_mut()?.follow(self.completion.clone());
            return Some(spare);
        }
        let (folders, server) = (self.links.0.opener.folders.clone(), self.server.clone());
        let (links, scope) = (self.links.clone(), scope.clone());
        let completion = self.completion.clone();
        // If the attempt is aborted, callers that wait for its end also wait for the adoption.
        let adopting = tokio::task::spawn_blocking(move || {
            if !folders.can_adopt(&scope, server.name()) {
                return None;
            }
            let mut spare = links.0.spares.take(&links, &server, &scope)?;
            spare.permit_mut()?.follow(completion.clone());
            let adopted = spare.take_dir()?.adopt(&scope);
            drop(completion);
            adopted.ok().map(|()| spare)
        });
        adopting.await.ok().flatten()
    }

    /// Waits for a budget permit.
    async fn permit(&self) -> Result<LinkPermit, LinkOpenError> {
        let scope = self.entry.key.scope();
        let cost = Cost { process: self.server.is_process() };
        let budget = &self.links.0.opener.budget;
        let permit = budget.admit(scope.owner(), cost, &self.links).await?;
        Ok(LinkPermit::new(permit, self.completion.clone()))
    }
}

/// Derives the start of the next link from the attachment of the last one.
fn next_start(last: Attachment, loss: Option<Arc<Loss>>, identity: Identity) -> LinkStart {
    let same = last.identity == identity;
    let dropped = loss.as_ref().is_none_or(|loss| loss.leaves_state());
    if same && dropped && last.can_resume() {
        let generation = last.generation;
        return LinkStart { generation, loss: None, resume: Some(last) };
    }
    if same && dropped && last.is_stateless() {
        return LinkStart { generation: last.generation, loss: None, resume: None };
    }
    LinkStart { generation: last.generation.next(), loss, resume: None }
}

/// Returns the isolation if the configuration determines it.
fn chosen(server: &Server) -> Option<Isolation> {
    match (server.options().isolation, server.options().era) {
        (Some(_), _) => Some(server.isolation(Era::Legacy)),
        (None, EraChoice::Legacy) => Some(server.isolation(Era::Legacy)),
        (None, EraChoice::Modern) => Some(server.isolation(Era::Modern)),
        (None, EraChoice::Auto) => None,
    }
}

/// Scope whose credentials a probe of the server uses.
pub(super) fn probe_scope(server: &Server, link_owner: &LinkOwner) -> Scope {
    Scope::new(chosen(server).unwrap_or(Isolation::PerSession), link_owner)
}

pub(super) fn ended(server: &Server) -> LinkOpenError {
    LinkOpenError::Ended { server: server.name().to_owned() }
}
