//! Sessions that were not there before.

use std::{sync::Arc, time::Duration};

use stayput_core::{
    Agent, Connection, EndReason, Expiry, Generation, HandleHash, Key, OpenError, Owner, Record,
    StoreError,
};

use super::{ATTEMPTS, Shared, Use, table::Name};

/// How many records are read at once.
const PAGE: usize = 256;

/// How long it is believed that an owner has no place for another session.
const FULL: Duration = Duration::from_secs(1);

impl Shared {
    /// A new session without a name. Nobody asked for a provisional one: it ends soon if nobody comes
    /// back to it.
    pub(crate) async fn make(
        self: &Arc<Self>,
        owner: &Owner,
        provisional: bool,
    ) -> Result<Use, OpenError> {
        let record = self.blank(owner, provisional);
        self.insert(record, None).await
    }

    /// A new session in the place of one that is over; it knows of that, if something was lost.
    pub(crate) async fn make_after(
        self: &Arc<Self>,
        owner: &Owner,
        generation: Generation,
    ) -> Result<Use, OpenError> {
        let mut record = self.blank(owner, false);
        record.generation = generation;
        self.insert(record, None).await
    }

    /// The session of a key, found or made.
    pub(crate) async fn keyed(
        self: &Arc<Self>,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Use, OpenError> {
        for _ in 0..ATTEMPTS {
            if let Some(found) = self.find(owner, agent, key).await? {
                return Ok(found);
            }
            let record = self.blank(owner, false).keyed(agent.clone(), key.clone());
            let name = Name::Key(key.digest(owner, agent));
            match self.insert(record, Some(name)).await {
                // Somebody else was faster.
                Err(OpenError::Store(StoreError::Taken { .. })) => {}
                made => return made,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Lets a new connection lead to a new session, with what its maker wants to keep.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        owner: &Owner,
        name: HandleHash,
        body: Vec<u8>,
    ) -> Result<(), OpenError> {
        let made = self.make(owner, true).await?;
        self.lead(name, &made, body).await
    }

    /// Lets a connection lead to a session.
    pub(crate) async fn lead(
        &self,
        name: HandleHash,
        to: &Use,
        body: Vec<u8>,
    ) -> Result<(), OpenError> {
        let used = self.now();
        let unused = Connection::unused(used, self.settings.expiry);
        let connection = Connection { name, session: to.held().id(), used, body };
        self.store.put_connection(&connection, unused, None).await?;
        self.remember(to.held(), name);
        Ok(())
    }

    /// Lets a connection lead to another session.
    pub(crate) async fn lead_to(&self, name: HandleHash, to: &Use) -> Result<(), OpenError> {
        let known = self.store.connection(name).await?.ok_or(OpenError::Unknown)?;
        self.lead(name, to, known.body).await
    }

    /// The session that a connection leads to now. Where the one of before is over, it leads to a new one,
    /// which knows that something was lost.
    pub(crate) async fn connected(
        self: &Arc<Self>,
        owner: &Owner,
        name: HandleHash,
    ) -> Result<Use, OpenError> {
        if let Some(used) = self.remembered(Name::Connection(name)) {
            return Ok(used);
        }
        let record = self.led(name).await?;
        let record = record.filter(|it| it.owner == *owner).ok_or(OpenError::Unknown)?;
        let over = match self.admit(record, None).await {
            Ok(used) if used.held().record().provisional => {
                // Asked for by now: somebody wants to keep something in it.
                self.confirmed_by_use(&used).await?;
                self.remember(used.held(), name);
                return Ok(used);
            }
            Ok(used) => {
                self.remember(used.held(), name);
                return Ok(used);
            }
            Err(OpenError::Over(over)) => over,
            Err(error) => return Err(error),
        };
        let closed = over.ended.is_some_and(|it| it.reason == EndReason::Closed);
        let lost = !over.provisional && !closed;
        let generation = if lost { over.generation.next() } else { Generation::default() };
        let made = self.make_after(owner, generation).await?;
        self.lead_to(name, &made).await?;
        Ok(made)
    }

    async fn confirmed_by_use(&self, used: &Use) -> Result<(), OpenError> {
        let expiry = self.settings.expiry;
        self.change(used.held().id(), |record| {
            if std::mem::take(&mut record.provisional) {
                record.expiry = expiry;
            }
        })
        .await
        .map(drop)
    }

    fn blank(&self, owner: &Owner, provisional: bool) -> Record {
        let mut record = Record::new(owner.clone(), self.settings.expiry, self.now());
        if provisional {
            let idle = self.settings.expiry.idle;
            let soon = self.settings.provisional;
            record.provisional = true;
            record.wanted = Some(record.expiry.into());
            record.expiry =
                Expiry { idle: idle.map_or(Some(soon), |it| Some(it.min(soon))), ..record.expiry };
        }
        record
    }

    async fn insert(
        self: &Arc<Self>,
        mut record: Record,
        name: Option<Name>,
    ) -> Result<Use, OpenError> {
        self.place(&record.owner).await?;
        match self.store.insert(&record, None).await {
            Ok(generation) => {
                record.generation = generation;
                Ok(Use::of(self, self.table.hold(record, name), true))
            }
            Err(error) => {
                self.table.one_less(&record.owner);
                Err(error.into())
            }
        }
    }

    /// A place for one more session of an owner, made by ending one that nobody asked for if need be.
    async fn place(self: &Arc<Self>, owner: &Owner) -> Result<(), OpenError> {
        let limit = self.settings.per_owner;
        if self.table.one_more(owner, limit) {
            return Ok(());
        }
        let at_capacity = OpenError::AtCapacity { limit };
        if self.table.is_full(owner, self.now()) {
            return Err(at_capacity);
        }
        // Others may have ended some: only the store knows.
        let (mut live, mut after, mut oldest) = (0, None, None::<Record>);
        loop {
            let page = self.store.list(Some(owner), after, PAGE).await?;
            live += page.len();
            after = page.last().map(|record| record.id);
            let more = page.len() == PAGE;
            let unwanted = page.into_iter().filter(|it| it.provisional);
            let unwanted = unwanted.filter(|it| !self.table.is_in_use(it.id));
            oldest = oldest.into_iter().chain(unwanted).min_by_key(|it| it.last_used);
            if !more {
                break;
            }
        }
        if live >= limit {
            let Some(oldest) = oldest else {
                self.table.counted(owner, live, self.now().after(FULL));
                return Err(at_capacity);
            };
            self.end(oldest.id, EndReason::Evicted).await?;
            live -= 1;
        }
        self.table.counted(owner, live + 1, self.now());
        Ok(())
    }
}
