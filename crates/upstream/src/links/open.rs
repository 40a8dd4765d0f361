//! Opening a link, once for all who ask.

use std::sync::Arc;

use stayput_core::{Generation, Owner, SessionId};
use stayput_wire::Era;

use super::{
    Asking, Held, Links,
    held::Pin,
    slot::{Entered, Slot},
};
use crate::{
    Attachment, Cost, Delivery, EraChoice, Expansion, Hello, Identity, Isolation, Link, LinkKey,
    Loss, LossReason, OpenError, Place, Profile, Scope, Server, Way,
    flag::Trace,
    lane,
    opener::{Base, Plan},
    place::{ScopeRef, Sought},
    profiles::Asker,
    seat::Seat,
    started::Started,
};

impl Links {
    /// The link of `place` to `server`. The first who asks opens it, all who ask meanwhile get the same
    /// one, and who is cancelled leaves the others waiting.
    ///
    /// # Errors
    /// If it cannot be opened. All who waited for the same attempt get the same error.
    pub async fn open(
        &self,
        server: &Server,
        place: &Place,
        asking: &Asking,
    ) -> Result<Held, Arc<OpenError>> {
        let isolation = match self.settled(server, place) {
            Some(isolation) => isolation,
            None => self.isolation(server, place, asking).await?,
        };
        // This slot and no other: once it has ended, so has whatever it was for.
        let pin = self.slot(&LinkKey::of(server, isolation, place), server).await;
        let slot: &Arc<Slot> = &pin;
        let mut waited = None;
        let (link, generation, loss) = loop {
            if self.is_closed() {
                return Err(Arc::new(ended(server)));
            }
            let changed = slot.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match slot.enter(waited) {
                Entered::Live { link, generation, loss } => break (link, generation, loss),
                Entered::Failed(error) => return Err(error),
                Entered::Wait(attempt) => waited = Some(attempt),
                Entered::Open(attempt, trace) => {
                    waited = Some(attempt);
                    let (links, slot) = (self.clone(), slot.clone());
                    let (server, asking) = (server.clone(), asking.clone());
                    Opening { links, slot, attempt, server, asking, trace }.start();
                }
            }
            changed.await;
        };
        Ok(Held::new(pin, link, generation, loss))
    }

    /// The live link of `place` to `server`, if there is one. Nothing is waited for.
    #[must_use]
    pub fn find(&self, server: &Server, place: &Place) -> Option<Held> {
        let Place { owner, session, branch } = place;
        self.find_in(server, owner, (*session, *branch))
    }

    /// The same for the session itself, of this owner.
    #[must_use]
    pub fn find_of(&self, server: &Server, owner: &Owner, session: SessionId) -> Option<Held> {
        self.find_in(server, owner, (session, 0))
    }

    fn find_in(
        &self,
        server: &Server,
        owner: &Owner,
        (session, branch): (SessionId, u64),
    ) -> Option<Held> {
        let all = [
            ScopeRef::Session { owner, session, branch },
            ScopeRef::Owner(owner),
            ScopeRef::Shared,
        ];
        let chosen = chosen(server);
        let mut all =
            all.into_iter().filter(|it| chosen.is_none_or(|it_is| it_is == it.isolation()));
        all.find_map(|scope| self.0.table.find(&Sought { server, scope })?.hold())
    }

    /// Who shares a link, if that is known: by choice, or because there is one.
    fn settled(&self, server: &Server, place: &Place) -> Option<Isolation> {
        chosen(server).or_else(|| {
            let slots = self.0.table.of_place(server, place);
            slots.first().map(|slot| match slot.key.scope() {
                Scope::Session { .. } => Isolation::PerSession,
                Scope::Owner(_) => Isolation::PerOwner,
                Scope::Shared => Isolation::Shared,
            })
        })
    }

    /// Who shares the links to a server that has to be asked for it.
    async fn isolation(
        &self,
        server: &Server,
        place: &Place,
        asking: &Asking,
    ) -> Result<Isolation, Arc<OpenError>> {
        let visit = self.0.table.visit(place.session);
        tokio::select! {
            biased;
            // Whatever is learned then is not for this session.
            () = visit.over() => Err(Arc::new(ended(server))),
            era = self.era(server, place, asking) => Ok(server.isolation(era?)),
        }
    }

    /// The era of a server. What was kept of a link tells it as well as the server would, and without
    /// a word to it.
    async fn era(
        &self,
        server: &Server,
        place: &Place,
        asking: &Asking,
    ) -> Result<Era, Arc<OpenError>> {
        if let Some(keeper) = &asking.keeper
            && let Some(kept) = keeper.load().await.map_err(|error| Arc::new(error.into()))?
        {
            let era = kept.way.era();
            let scope = Scope::of(server.isolation(era), place);
            let expansion = self.0.opener.folders.expansion(server, &scope).await;
            let expansion = expansion.map_err(|error| Arc::new(error.into()))?;
            if server.identity(&expansion) == kept.identity {
                return Ok(era);
            }
        }
        Ok(self.way(server, place).await?.era())
    }

    /// The slot of a link. If its session just ends, the next one begins when that is done.
    async fn slot(&self, key: &LinkKey, server: &Server) -> Pin {
        loop {
            match self.0.table.slot(key, server, &self.0.opener.budget) {
                Ok(slot) => return slot,
                Err(ending) => ending.wait().await,
            }
        }
    }
}

/// One attempt to open a link.
struct Opening {
    links: Links,
    slot: Arc<Slot>,
    attempt: u64,
    server: Server,
    asking: Asking,
    trace: Trace,
}

/// What a link that is opened begins with.
struct Beginning {
    generation: Generation,
    loss: Option<Arc<Loss>>,
    /// A session on the server to go on with.
    resume: Option<Attachment>,
}

impl Drop for Opening {
    /// Whatever becomes of the task, nobody waits for it for ever.
    fn drop(&mut self) {
        self.slot.failed(self.attempt, Arc::new(ended(&self.server)));
    }
}

impl Opening {
    /// Opens the link in a task of its own.
    fn start(self) {
        let (slot, attempt) = (self.slot.clone(), self.attempt);
        let runtime = lane::runtime(&self.links.0.opener.runtime);
        let task = runtime.spawn(self.run());
        slot.opening(attempt, task.abort_handle());
    }

    async fn run(self) {
        match self.open().await {
            Ok((link, attachment, loss)) => {
                self.slot.opened(self.attempt, link, &attachment, loss);
            }
            Err(error) => self.slot.failed(self.attempt, error),
        }
    }

    async fn open(&self) -> Result<(Link, Attachment, Option<Arc<Loss>>), Arc<OpenError>> {
        if let Some(gone) = self.slot.after() {
            gone.wait().await;
        }
        let opener = &self.links.0.opener;
        let scope = self.slot.key.scope();
        let expansion = opener.expansion(&self.server, scope, Some(&self.trace)).await?;
        let identity = self.server.identity(&expansion);
        let beginning = self.beginning(identity).await?;
        let hello = self.hello(scope);
        let plan = Plan { server: &self.server, scope, hello: &hello };
        let (link, way) = match &beginning.resume {
            Some(kept) => (opener.resume(plan, self.seat().await?, kept).await?, kept.way),
            None => self.begin(plan, &expansion).await?,
        };
        let attachment = Attachment::of(&link, (beginning.generation, way), identity);
        if let Some(keeper) = &self.asking.keeper {
            keeper.save(&attachment).await.map_err(OpenError::from)?;
        }
        Ok((link, attachment, beginning.loss))
    }

    /// Where the last link left off: in this process, or in another one.
    async fn beginning(&self, identity: Identity) -> Result<Beginning, OpenError> {
        let (last, loss) = self.slot.before();
        if let Some(last) = last {
            return Ok(go_on(last, loss, identity));
        }
        let kept = match &self.asking.keeper {
            Some(keeper) => keeper.load().await?,
            None => None,
        };
        let Some(kept) = kept else {
            return Ok(Beginning { generation: self.asking.generation, loss: None, resume: None });
        };
        let reason =
            if kept.identity == identity { LossReason::Released } else { LossReason::Reconfigured };
        Ok(go_on(kept, Some(Arc::new(Loss::new(reason, ""))), identity))
    }

    /// Opens a link that goes on with nothing, in the way that the server is spoken to.
    async fn begin(
        &self,
        plan: Plan<'_>,
        expansion: &Expansion,
    ) -> Result<(Link, Way), Arc<OpenError>> {
        if let Some(profile) = self.unasked(expansion) {
            match self.open_as(plan, &profile).await {
                // There is something else at this URL, which may be a legacy server all the same.
                Err(OpenError::Http { delivery: Delivery::Refused, .. })
                    if !self.server.is_process() => {}
                opened => return Ok(opened?),
            }
        }
        let asker = Asker { links: &self.links, server: &self.server, scope: plan.scope };
        let profile = self.links.0.profiles.spoken(asker).await?;
        Ok(self.open_as(plan, &profile).await?)
    }

    async fn open_as(&self, plan: Plan<'_>, profile: &Profile) -> Result<(Link, Way), OpenError> {
        let opener = &self.links.0.opener;
        let link = match self.spare() {
            None => opener.open(plan, profile, Base::Seat(self.seat().await?)).await?,
            Some(spare) => match opener.open(plan, profile, Base::Spare(spare)).await {
                // It died while it waited. That says nothing of a fresh one.
                Err(OpenError::Exited { .. }) => {
                    opener.open(plan, profile, Base::Seat(self.seat().await?)).await?
                }
                opened => opened?,
            },
        };
        Ok((link, profile.way()))
    }

    /// Spoken to without asking, a legacy server needs no profile: its greeting comes with the link.
    fn unasked(&self, expansion: &Expansion) -> Option<Profile> {
        if self.server.options().era != EraChoice::Legacy || self.server.is_sse() {
            return None;
        }
        let known = self.links.0.profiles.known(self.server.profile_identity(expansion));
        known.is_none().then(|| Profile::unasked(Way::Legacy))
    }

    /// A process that is already running, if there is one, with its place in the budget.
    fn spare(&self) -> Option<Started> {
        let scope = self.slot.key.scope();
        let mut spare = self.links.0.spares.take(&self.links, &self.server, scope)?;
        spare.seat_mut()?.follow(self.trace.clone());
        Some(spare)
    }

    /// A place in the budget.
    async fn seat(&self) -> Result<Seat, OpenError> {
        let scope = self.slot.key.scope();
        let cost = Cost { process: self.server.is_process() };
        let budget = &self.links.0.opener.budget;
        let permit = budget.admit(scope.owner(), cost, &self.links).await?;
        Ok(Seat::new(permit, self.trace.clone()))
    }

    /// A link that several sessions share declares nothing: nobody could tell whom to ask.
    fn hello(&self, scope: &Scope) -> Hello {
        match scope {
            Scope::Session { .. } => self.asking.hello.clone(),
            Scope::Owner(_) | Scope::Shared => self.asking.hello.without_capabilities(),
        }
    }
}

/// What follows on a link that left this behind.
fn go_on(last: Attachment, loss: Option<Arc<Loss>>, identity: Identity) -> Beginning {
    let same = last.identity == identity;
    let dropped = loss.as_ref().is_none_or(|loss| loss.leaves_state());
    if same && dropped && last.can_resume() {
        let generation = last.generation;
        return Beginning { generation, loss: None, resume: Some(last) };
    }
    if same && dropped && last.is_stateless() {
        return Beginning { generation: last.generation, loss: None, resume: None };
    }
    Beginning { generation: last.generation.next(), loss, resume: None }
}

/// Who shares a link, if that is known without asking the server.
fn chosen(server: &Server) -> Option<Isolation> {
    match (server.options().isolation, server.options().era) {
        (Some(isolation), _) => Some(isolation),
        (None, EraChoice::Legacy) => Some(server.isolation(Era::Legacy)),
        (None, EraChoice::Modern) => Some(server.isolation(Era::Modern)),
        (None, EraChoice::Auto) => None,
    }
}

/// In whose name a server is asked how it is spoken to.
pub(super) fn probe_scope(server: &Server, place: &Place) -> Scope {
    Scope::of(chosen(server).unwrap_or(Isolation::PerSession), place)
}

pub(super) fn ended(server: &Server) -> OpenError {
    OpenError::Ended { server: server.name().to_owned() }
}
