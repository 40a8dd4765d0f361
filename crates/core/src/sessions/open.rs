//! Opening and finding sessions.

use std::sync::Arc;

use super::{
    ATTEMPTS, OpenError, Opened, Origin, Sessions, Wish,
    over::Known,
    table::{Reservation, Room, Watch},
};
use crate::{
    Agent, Connection, EndReason, Expiry, Generation, Handle, HandleHash, Key, Lease, Name, Owner,
    Reading, Record, Seen, Session, SessionId, StoreError, session::InUse,
};

impl Sessions {
    /// Finds the session that is wished for, or creates it.
    ///
    /// One call or fifty at once, here or in several processes: a key leads to one session.
    ///
    /// # Errors
    /// [`OpenError::HeldElsewhere`], [`OpenError::AtCapacity`], [`OpenError::LeaseLost`] or what the
    /// store says.
    pub async fn open(&self, wish: &Wish) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            if let Some((agent, key)) = &wish.name
                && let Some(session) = self.held_by_key(&wish.owner, agent, key)?
            {
                return self.found(session, wish).await;
            }
            let opened = match self.create(wish).await {
                Err(OpenError::Store(StoreError::Taken { by })) => match self.resume(by).await {
                    Ok(session) => return self.found(session, wish).await,
                    Err(error) => Err(error),
                },
                created => created,
            };
            match opened {
                // It ended between being found and being claimed; the key is free now.
                Err(OpenError::Unknown | OpenError::Over(_)) => {}
                opened => return opened,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// The session that was there, with the connection that is wished for.
    async fn found(&self, session: InUse, wish: &Wish) -> Result<Opened, OpenError> {
        if let Some((name, body)) = &wish.connection {
            self.connect(&session, name, body).await?;
        }
        Ok(Opened::kept(session))
    }

    /// Creates the session that is wished for, and finds none.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if a live session has its key, or as [`Sessions::open`].
    pub async fn open_new(&self, wish: &Wish) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            match self.create(wish).await {
                Err(OpenError::Store(StoreError::Taken { by })) => match self.resume(by).await {
                    // Its time had come.
                    Err(OpenError::Unknown | OpenError::Over(_)) => {}
                    _ => return Err(StoreError::Taken { by }.into()),
                },
                created => return created,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Finds the session with this key.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] if there is none, [`OpenError::Over`] if it is just over, or as
    /// [`Sessions::open`].
    pub async fn by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<InUse, OpenError> {
        if let Some(session) = self.held_by_key(owner, agent, key)? {
            return Ok(session);
        }
        Box::pin(self.find_key(owner, agent, key)).await
    }

    async fn find_key(&self, owner: &Owner, agent: &Agent, key: &Key) -> Result<InUse, OpenError> {
        let found = self.store.find(owner, agent, key).await?;
        let record = found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        self.resume(record.id).await
    }

    /// The session that a name leads to, in use, if it is held here and nothing has to be waited for: the way of
    /// nearly every call. Whoever gets nothing asks by the other ways, which also say why. A key is one that is
    /// no agent's.
    pub fn at_hand(&self, owner: &Owner, name: &Name) -> Option<InUse> {
        let now = self.clock.reading();
        self.check_lease(now).ok()?;
        let held = match name {
            Name::Handle(handle) => self.table.by_handle(&handle.hash(owner)),
            Name::Key(key) => self.table.by_key(&key.digest(owner, &Agent::none())),
        };
        enter_at_once(held?, now)
    }

    /// The same for a session that is known from before: nothing is looked up. One that was let go of is no longer it,
    /// and has to be asked for by a name.
    pub fn again(&self, session: Arc<Session>) -> Option<InUse> {
        let now = self.clock.reading();
        self.check_lease(now).ok()?;
        enter_at_once(session, now)
    }

    /// Finds the session that a handle names. A provisional session is one no longer, and
    /// [`Record::named`] says from then on that a handle led to it.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] for an unknown handle and for one of another owner,
    /// [`OpenError::Over`] if the session is over, or as [`Sessions::open`].
    pub async fn by_handle(&self, owner: &Owner, handle: &Handle) -> Result<InUse, OpenError> {
        let (hash, now) = (handle.hash(owner), self.clock.reading());
        self.check_lease(now)?;
        let held = self.table.by_handle(&hash);
        if let Some(session) = held.and_then(|session| enter_at_once(session, now)) {
            return Ok(session);
        }
        // Boxed, so that a call on a held session does not carry the room for all of this.
        Box::pin(self.find_handle(owner, hash)).await
    }

    async fn find_handle(&self, owner: &Owner, hash: HandleHash) -> Result<InUse, OpenError> {
        let found = self.store.find_handle(hash).await?;
        let record = found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        let session = self.resume(record.id).await?;
        let record = session.record();
        if record.provisional || !record.named {
            self.confirm(&session).await?;
        }
        self.table.name(session.session(), hash);
        Ok(session)
    }

    /// Finds a session of `owner` by its id.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] for an unknown id and for one of another owner, or as
    /// [`Sessions::by_handle`].
    pub async fn by_id(&self, owner: &Owner, id: SessionId) -> Result<InUse, OpenError> {
        let now = self.clock.reading();
        self.check_lease(now)?;
        let held = self.table.by_id(id).filter(|session| session.owner() == owner);
        if let Some(session) = held.and_then(|session| enter_at_once(session, now)) {
            return Ok(session);
        }
        Box::pin(self.find_id(owner, id)).await
    }

    async fn find_id(&self, owner: &Owner, id: SessionId) -> Result<InUse, OpenError> {
        let found = self.store.load(id).await?;
        found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        self.resume(id).await
    }

    /// The live sessions of `owner`, held here or not, up to `limit` in the order of their ids,
    /// beginning after `after`. A page that is not full is the last one.
    ///
    /// # Errors
    /// What the store says.
    pub async fn list(
        &self,
        owner: &Owner,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, OpenError> {
        self.listed(Some(owner), after, limit).await
    }

    /// A page of sessions. When those that are held here were used is known better here.
    async fn listed(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, OpenError> {
        let mut page = self.store.list(owner, after, limit).await?;
        for record in &mut page {
            let held = self.table.by_id(record.id).map(|held| held.last_used());
            record.last_used = held.unwrap_or_default().max(record.last_used);
        }
        Ok(page)
    }

    /// The live sessions of all owners, in the order of their ids, beginning after `after`: for whoever runs
    /// the process, and for no client.
    ///
    /// # Errors
    /// What the store says.
    pub async fn list_all(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, OpenError> {
        self.listed(None, after, limit).await
    }

    /// What is known of a session of any owner, be it over: for whoever runs the process, and for no client.
    ///
    /// # Errors
    /// What the store says.
    pub async fn look(&self, id: SessionId) -> Result<Option<Record>, OpenError> {
        Ok(self.store.load(id).await?)
    }

    /// The session with this id, if it is held here. It is not used by that.
    #[must_use]
    pub fn held_by_id(&self, id: SessionId) -> Option<Arc<Session>> {
        self.table.by_id(id)
    }

    /// Lets a session that is over live again under its id, with nothing of its state; the loss is
    /// to be told. A session that lives is found.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] if this owner has no such session, [`StoreError::Taken`] if another
    /// session has its key by now, or as [`Sessions::open`].
    pub async fn revive(&self, owner: &Owner, id: SessionId) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            let found = self.store.load(id).await?;
            let seen = found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
            let revived = if seen.is_live() {
                self.resume(id).await.map(Opened::kept)
            } else {
                self.revive_as_seen(&seen).await
            };
            match revived {
                // Somebody else revived it, or ended it again.
                Err(OpenError::Store(StoreError::Stale) | OpenError::Over(_)) => {}
                revived => return revived,
            }
        }
        Err(StoreError::Stale.into())
    }

    async fn revive_as_seen(&self, seen: &Record) -> Result<Opened, OpenError> {
        let place = self.place(&seen.owner, false).await?;
        let lease = self.lease()?;
        let watch = self.table.watch(seen.id);
        let stray = self.over.stray(seen.id, Known::Before);
        let mut record = seen.clone();
        record.revive(self.clock.now());
        match self.store.replace(&record, Seen::revision(seen), Some(lease)).await {
            Ok(revision) => record.revision = revision,
            Err(error) => {
                if !matches!(error, StoreError::Unavailable { .. }) {
                    stray.settled();
                }
                return Err(error.into());
            }
        }
        record.holder = Some(lease);
        let session = self.keep(record, &watch, place)?;
        stray.settled();
        Ok(Opened::kept(session))
    }

    /// A session held here under this key, in use. The owner is part of the digest.
    fn held_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<InUse>, OpenError> {
        let now = self.clock.reading();
        self.check_lease(now)?;
        let held = self.table.by_key(&key.digest(owner, agent));
        Ok(held.and_then(|session| enter_at_once(session, now)))
    }

    /// Uses a held session. If its time has come it ends now rather than at the next sweep, and if
    /// somebody began to end it and was cancelled, that is finished.
    pub(super) async fn enter(&self, session: &Arc<Session>) -> Result<Option<InUse>, OpenError> {
        let reason = session.close_if_due(self.clock.now()).or_else(|| session.ending());
        match reason {
            Some(reason) => self.finish(session, reason).await.map(|()| None),
            None => Ok(session.clone().enter()),
        }
    }

    async fn create(&self, wish: &Wish) -> Result<Opened, OpenError> {
        let place = self.place(&wish.owner, wish.provisional).await?;
        let settings = self.settings();
        let expiry = wish.expiry.unwrap_or(settings.expiry);
        let mut record = Record::new(wish.owner.clone(), expiry, self.clock.now());
        record.id = wish.id.unwrap_or(record.id);
        if let Some((agent, key)) = &wish.name {
            record = record.keyed(agent.clone(), key.clone());
        }
        if wish.provisional {
            record.provisional = true;
            record.wanted = Some(expiry.into());
            record.expiry = Expiry { idle: Some(settings.provisional), ..expiry };
        }
        record.holder = Some(self.lease()?);
        let watch = self.table.watch(record.id);
        // Who chose the id can come back by it, though whoever waits here may be cancelled.
        let known = if wish.id.is_some() { Known::Before } else { Known::ToNobody };
        let stray = self.over.stray(record.id, known);
        let connection = wish.connection.as_ref().map(|(name, body)| {
            let (name, session) = (name.hash(&wish.owner), record.id);
            Connection { name, session, used: record.created, body: body.clone() }
        });
        match self.store.insert(&record, connection.as_ref()).await {
            Ok(generation) => record.generation = generation,
            Err(error) => {
                if matches!(error, StoreError::Taken { .. }) {
                    stray.settled();
                }
                return Err(error.into());
            }
        }
        let session = self.keep(record, &watch, place)?;
        stray.settled();
        Ok(Opened::new(session))
    }

    /// Takes over a session that the store has, and uses it.
    async fn resume(&self, id: SessionId) -> Result<InUse, OpenError> {
        for _ in 0..ATTEMPTS {
            let session = self.take(id).await?;
            if let Some(session) = self.enter(&session).await? {
                return Ok(session);
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Takes over a session that the store has: claims it and holds it.
    ///
    /// It says nothing about whether its time has come. That is judged in one place, at its gate, so
    /// that nobody ends what somebody else has just come back to.
    pub(super) async fn take(&self, id: SessionId) -> Result<Arc<Session>, OpenError> {
        for _ in 0..ATTEMPTS {
            let lease = self.lease()?;
            if let Some(held) = self.table.by_id(id) {
                return Ok(held);
            }
            let watch = self.table.watch(id);
            let stray = self.over.stray(id, Known::Before);
            match self.store.claim(id, lease).await {
                Ok(record) => {
                    if let Some(session) = self.hold(record, &watch, None)? {
                        stray.settled();
                        return Ok(session);
                    }
                }
                Err(StoreError::HeldBy { holder }) => {
                    stray.settled();
                    if holder.id != self.holder.id || !self.outlived(id, lease).await? {
                        return Err(OpenError::HeldElsewhere { holder });
                    }
                }
                Err(StoreError::Missing) => {
                    stray.settled();
                    match self.store.load(id).await? {
                        None => return Err(OpenError::Unknown),
                        Some(over) if !over.is_live() => return Err(OpenError::Over(over.into())),
                        // Revived between the two looks.
                        Some(_) => {}
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Gives up the lease that an earlier process of our name has on a session. No two that live share
    /// a name, so nobody has to wait until that lease runs out. Says whether it is worth another look.
    async fn outlived(&self, id: SessionId, lease: Lease) -> Result<bool, OpenError> {
        let held = self.store.load(id).await?.and_then(|record| record.holder);
        let Some(held) = held else { return Ok(true) };
        // A later one is ours, renewed meanwhile.
        if held.holder == lease.holder && held.epoch < lease.epoch {
            self.store.leave(held).await?;
        }
        Ok(held.holder == lease.holder)
    }

    /// Holds and uses a record that was made under our lease.
    fn keep(
        &self,
        record: Record,
        watch: &Watch<'_>,
        place: Reservation<'_>,
    ) -> Result<InUse, OpenError> {
        match self.hold(record, watch, Some(place))?.and_then(Session::enter) {
            Some(session) => Ok(session),
            None => Err(OpenError::Unknown),
        }
    }

    /// Holds what the store says is ours; `None` if it was let go of meanwhile.
    ///
    /// The answer may have been on its way for long. Only if our lease is still good now, nobody else
    /// can have taken the session over since.
    fn hold(
        &self,
        record: Record,
        watch: &Watch<'_>,
        place: Option<Reservation<'_>>,
    ) -> Result<Option<Arc<Session>>, OpenError> {
        let lease: Lease = self.lease()?;
        if record.holder != Some(lease) {
            return Err(OpenError::LeaseLost);
        }
        Ok(self.table.hold(record, watch, place, &self.clock).map(|(session, earlier)| {
            if let Some(earlier) = earlier {
                self.tell(&earlier, EndReason::Closed);
            }
            session
        }))
    }

    /// A handle came back: the session is named, and a provisional one is wanted.
    async fn confirm(&self, session: &Session) -> Result<(), OpenError> {
        let otherwise = self.settings().expiry;
        self.change(session, |record| {
            record.named = true;
            if std::mem::take(&mut record.provisional) {
                record.expiry = record.wanted.take().map_or(otherwise, |wanted| *wanted);
            }
        })
        .await
    }

    /// A place for one more session of `owner`, made by ending a provisional one if need be.
    async fn place(&self, owner: &Owner, provisional: bool) -> Result<Reservation<'_>, OpenError> {
        let limits = self.settings().sessions;
        for _ in 0..ATTEMPTS {
            match self.table.reserve(owner, limits, provisional) {
                Room::Reserved(place) => return Ok(place),
                Room::Full(Some(oldest)) => {
                    if oldest.close_if_unused(EndReason::Evicted) {
                        self.finish(&oldest, EndReason::Evicted).await?;
                    }
                }
                Room::Full(None) => break,
            }
        }
        let fewer = limits.per_owner.min(limits.provisional_per_owner);
        Err(OpenError::AtCapacity { limit: if provisional { fewer } else { limits.per_owner } })
    }
}

/// Uses a held session, if there is nothing to be waited for: the way of nearly every call.
fn enter_at_once(session: Arc<Session>, now: Reading) -> Option<InUse> {
    session.refuses(now.wall).map_or_else(|| session.enter(), |_| None)
}

impl Opened {
    /// A session that was there before.
    fn kept(session: InUse) -> Self {
        Self::with(session, Origin::Kept)
    }

    /// A session that was just made.
    fn new(session: InUse) -> Self {
        Self::with(session, Origin::Fresh)
    }

    /// A loss that was not told yet comes before everything else.
    fn with(session: InUse, otherwise: Origin) -> Self {
        let origin =
            session.lost().map_or(otherwise, |generation: Generation| Origin::Lost(generation));
        Self { session, origin }
    }
}
