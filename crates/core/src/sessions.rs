//! All sessions of one process: opened, found, kept, ended.

mod connections;
mod open;
mod over;
mod sweep;
mod table;

use std::{
    sync::{Arc, PoisonError, RwLock, atomic::AtomicBool},
    time::Duration,
};

use crate::lease::Until;
use crate::session::InUse;
use crate::{
    Agent, Blame, Clock, EndReason, Ended, Expiry, Generation, Handle, Holder, Key, Lease, Owner,
    Reading, Record, Retry, Seen, Session, SessionId, SessionLimits, State, StateLimits, Store,
    StoreError, Tenure,
};
use over::{Alone, Over};
pub use sweep::{Renewed, Swept};
use table::Table;

/// All sessions that one process holds, on top of a store.
///
/// A session is read from the store once and then held: finding a held session touches no database
/// and waits for nobody. Times of use are written back in batches by [`Sessions::write_back`].
///
/// Nothing here runs by itself. Whoever owns it calls [`Sessions::renew`], [`Sessions::write_back`] and
/// [`Sessions::sweep`] from time to time, and closes what `sweep` says is over.
#[derive(Debug)]
pub struct Sessions {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    holder: Holder,
    settings: RwLock<Settings>,
    tenure: RwLock<Tenure>,
    until: Until,
    table: Table,
    over: Over,
    renewing: Alone,
    closed: AtomicBool,
}

/// How sessions are kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When a session ends by itself, where its opener says nothing else.
    /// Defaults to 30 minutes idle and 24 hours in all.
    pub expiry: Expiry,
    /// The idle time of a provisional session. Defaults to 2 minutes.
    pub provisional: Duration,
    /// How long a session that is over is remembered. Defaults to 7 days.
    pub retention: Duration,
    /// How long the process's lease runs without being renewed. Defaults to 30 seconds.
    /// [`Duration::MAX`] suits a store that ends with the process, and no other: from a store that
    /// outlives a killed process, such a lease keeps everybody else out for ever.
    pub lease: Duration,
    /// How many sessions there may be.
    pub sessions: SessionLimits,
    /// How large the state of a session may be.
    pub state: StateLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            expiry: Expiry::default(),
            provisional: Duration::from_secs(2 * 60),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            lease: Duration::from_secs(30),
            sessions: SessionLimits::default(),
            state: StateLimits::default(),
        }
    }
}

/// Which session to open, and how.
#[derive(Clone, Debug)]
#[must_use]
pub struct Wish {
    owner: Owner,
    name: Option<(Agent, Key)>,
    expiry: Option<Expiry>,
    provisional: bool,
    id: Option<SessionId>,
    connection: Option<(Handle, Vec<u8>)>,
}

impl Wish {
    /// A new session of `owner`, without a key.
    pub fn new(owner: Owner) -> Self {
        Self { owner, name: None, expiry: None, provisional: false, id: None, connection: None }
    }

    /// The session of `owner` with this key, found or created.
    pub fn keyed(owner: Owner, agent: Agent, key: Key) -> Self {
        Self { name: Some((agent, key)), ..Self::new(owner) }
    }

    /// Ends by this rule if it is created. Defaults to [`Settings::expiry`].
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Has this id if it is created, for who had to know it before.
    pub fn id(mut self, id: SessionId) -> Self {
        self.id = Some(id);
        self
    }

    /// A connection leads to it when it is open, as if [`Sessions::connect`] had been called: one that is created is
    /// kept with its connection in one step.
    pub fn connected(mut self, name: Handle, body: Vec<u8>) -> Self {
        self.connection = Some((name, body));
        self
    }

    /// Created without being asked for: it ends soon, unless its handle comes back.
    pub fn provisional(mut self) -> Self {
        self.provisional = true;
        self
    }
}

/// A session that was opened, in use by whoever asked for it.
#[derive(Debug)]
#[must_use]
pub struct Opened {
    /// The session.
    pub session: InUse,
    /// Where it comes from.
    pub origin: Origin,
}

/// Whether what a client remembers of a session can still be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is new, and nobody had its key before.
    Fresh,
    /// It is the session of before.
    Kept,
    /// All state of before is gone, and its client has not been told yet, see [`Sessions::told`].
    Lost(Generation),
}

/// Why there is no session to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such session for this owner: unknown and foreign look the same.
    #[error("there is no such session; open a new one")]
    Unknown,
    /// It is over, and this owner may know why.
    #[error("{}", over(.0))]
    Over(Box<Record>),
    /// Another process holds it. Forward to that one.
    #[error("the session is held by {}", .holder.id)]
    HeldElsewhere {
        /// Who holds it.
        holder: Holder,
    },
    /// The owner has as many sessions as it may have, and all of them are wanted.
    #[error(
        "the owner has {limit} live sessions, as many as are allowed; end one or try again later"
    )]
    AtCapacity {
        /// The limit.
        limit: usize,
    },
    /// This process has lost its lease and may not use its sessions until it has renewed it.
    #[error("this process lost its lease on the store; try again in a moment")]
    LeaseLost,
    /// The store said no, or nothing.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unknown | Self::Over(_) | Self::AtCapacity { .. } => Blame::Caller,
            Self::HeldElsewhere { .. } | Self::LeaseLost => Blame::Here,
            Self::Store(error) => error.blame(),
        }
    }

    /// Whether it helps to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unknown | Self::Over(_) => Retry::Never,
            // A holder that is gone has it until its lease runs out.
            Self::HeldElsewhere { .. } | Self::AtCapacity { .. } | Self::LeaseLost => Retry::Later,
            Self::Store(error) => error.retry(),
        }
    }
}

/// What its owner is told of a session that is over.
fn over(record: &Record) -> String {
    let span = |span: Option<Duration>| match span.unwrap_or_default().as_secs() {
        secs if secs >= 60 && secs % 60 == 0 => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    };
    let why = match record.ended.map(|ended| ended.reason) {
        Some(EndReason::Idle) => format!("expired after {} idle", span(record.expiry.idle)),
        Some(EndReason::Age) => {
            format!("expired at its full age of {}", span(record.expiry.absolute))
        }
        Some(EndReason::Evicted) => "made room for another one at a limit".to_owned(),
        _ => "was ended".to_owned(),
    };
    format!("session {} {why}; its state is gone, open a new one", record.id)
}

/// How often a change begins again when others write first.
const ATTEMPTS: u32 = 16;

impl Sessions {
    /// Sessions on `store`, held in the name of `holder`. Takes a lease.
    ///
    /// # Errors
    /// What the store says.
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        holder: Holder,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        let asked = clock.reading();
        let lease = store.hold(&holder, settings.lease).await?;
        let tenure = Tenure::new(lease, asked, settings.lease);
        let (until, tenure) = (Until::of(&tenure), RwLock::new(tenure));
        let table = Table::default();
        table.set_lease(lease);
        let (over, renewing, closed) = (Over::default(), Alone::default(), AtomicBool::new(false));
        let settings = RwLock::new(settings);
        Ok(Self { store, clock, holder, settings, tenure, until, table, over, renewing, closed })
    }

    /// How sessions are kept.
    #[must_use]
    pub fn settings(&self) -> Settings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How sessions that begin from now on end by themselves, and how many there may be. Those that are there
    /// stay as they are.
    pub fn adjust(&self, expiry: Expiry, sessions: SessionLimits) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        (settings.expiry, settings.sessions) = (expiry, sessions);
    }

    /// The state of a session.
    ///
    /// # Errors
    /// [`OpenError::LeaseLost`].
    pub fn state(&self, session: &Session) -> Result<State, OpenError> {
        let lease = self.lease()?;
        Ok(State::new(self.store.clone(), session.id(), Some(lease), self.settings().state))
    }

    /// A new handle for a session. Older ones stay good.
    ///
    /// # Errors
    /// [`OpenError::LeaseLost`] or what the store says.
    pub async fn issue_handle(&self, session: &Session) -> Result<Handle, OpenError> {
        let handle = Handle::generate();
        let hash = handle.hash(session.owner());
        self.check_ours(session)?;
        if session.is_over() {
            return Err(OpenError::Over(Record::clone(&session.record()).into()));
        }
        let added = self.store.add_handle(session.id(), hash, Some(self.lease()?)).await;
        self.heed(session, added)?;
        Ok(handle)
    }

    /// Changes the record of a session, durably. `change` runs again on the newer record whenever
    /// somebody else changed it meanwhile.
    ///
    /// # Errors
    /// [`OpenError::Over`] if the session is over, [`OpenError::LeaseLost`], or what the store says:
    /// [`StoreError::NotHolder`] also if this process has let go of it.
    pub async fn change(
        &self,
        session: &Session,
        mut change: impl FnMut(&mut Record),
    ) -> Result<(), OpenError> {
        for _ in 0..ATTEMPTS {
            // First of all: without a lease, what others did to the session is theirs to tell.
            let lease = self.lease()?;
            self.check_ours(session)?;
            let seen = session.record();
            let mut record = Record::clone(&seen);
            change(&mut record);
            let wrote = self.store.replace(&record, Seen::revision(&seen), Some(lease)).await;
            match self.heed(session, wrote) {
                Ok(revision) => {
                    record.revision = revision;
                    session.learn(record);
                    return Ok(());
                }
                Err(StoreError::Stale) => {
                    let newer = self.store.load(session.id()).await?.ok_or(StoreError::Missing)?;
                    if !session.is_of(&newer) {
                        return Err(OpenError::Over(Record::clone(&session.record()).into()));
                    }
                    session.learn(newer);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Notes that the client was told of the losses of the whole session up to `generation`. To be called when
    /// the answer that tells has been written, and not before: until then every opener hears of it.
    ///
    /// # Errors
    /// As [`Sessions::change`].
    pub async fn told(&self, session: &Session, generation: Generation) -> Result<(), OpenError> {
        self.change(session, |record| record.told = record.told.max(generation)).await
    }

    /// As [`Sessions::told`], for a loss on one server.
    ///
    /// # Errors
    /// As [`Sessions::change`].
    pub async fn told_on(
        &self,
        session: &Session,
        server: &str,
        generation: Generation,
    ) -> Result<(), OpenError> {
        self.change(session, |record| record.tell(server, generation)).await
    }

    /// Lets a session live by another rule from now on.
    ///
    /// # Errors
    /// As [`Sessions::change`].
    pub async fn extend(&self, session: &Session, expiry: Expiry) -> Result<(), OpenError> {
        self.change(session, |record| record.expiry = expiry).await
    }

    /// Ends a session for good. Who is inside stays until done; nobody gets in any more.
    ///
    /// The next sweep tells what was known of it, so that whoever has links to its servers can close
    /// them; if this is cancelled half-way, it also finishes it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn end(&self, session: &Arc<Session>) -> Result<(), OpenError> {
        session.close(EndReason::Closed);
        self.finish(session, EndReason::Closed).await
    }

    /// Ends a session that nobody can want to know of later, and keeps nothing of it: no tombstone.
    ///
    /// # Errors
    /// As [`Sessions::end`].
    pub async fn forget(&self, session: &Arc<Session>) -> Result<(), OpenError> {
        self.end(session).await?;
        Ok(self.store.remove(session.id(), Some(self.lease()?)).await?)
    }

    /// Writes the end of a session whose gate is closed, and lets go of it.
    async fn finish(&self, session: &Arc<Session>, reason: EndReason) -> Result<(), OpenError> {
        if !self.table.holds(session) {
            // Somebody has finished it, or it is not ours any more: a later life is not ours to end.
            return Ok(());
        }
        let now = self.clock.now();
        let wrote = match self.change(session, |record| record.end(reason, now)).await {
            Ok(()) => true,
            // Over or gone already: nothing is left in the store to be ended, but links may be.
            Err(OpenError::Over(_) | OpenError::Store(StoreError::Missing)) => false,
            // Taken by another process: it is not over, and not ours to end.
            Err(OpenError::Store(StoreError::NotHolder)) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Who wrote the end tells of it, also if the session was let go of meanwhile.
        if self.table.remove(session) || wrote {
            self.tell(session, reason);
        }
        Ok(())
    }

    /// Notes for the next sweep that a session is over; once.
    fn tell(&self, session: &Arc<Session>, reason: EndReason) {
        if let Some(last) = session.last_words() {
            let ended = last.ended.or(Some(Ended { at: self.clock.now(), reason }));
            self.over.ended(session, Record { ended, ..last });
        }
    }

    /// Who holds the sessions of this process.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The sessions held here, in no order.
    #[must_use]
    pub fn held(&self) -> Vec<Arc<Session>> {
        self.table.all()
    }

    /// How many sessions are held here.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// The lease, as long as this process may believe in it.
    fn lease(&self) -> Result<Lease, OpenError> {
        self.lease_at(self.clock.reading())
    }

    fn lease_at(&self, now: Reading) -> Result<Lease, OpenError> {
        self.tenure().lease(now).ok_or(OpenError::LeaseLost)
    }

    /// Whether sessions may be used now. This is asked with every call, and takes no lock.
    fn check_lease(&self, now: Reading) -> Result<(), OpenError> {
        if self.until.has(now) { Ok(()) } else { self.lease_at(now).map(drop) }
    }

    /// Refuses what is over, and what was let go: that may live on under its id, here or elsewhere, and
    /// this is not it any more.
    fn check_ours(&self, session: &Session) -> Result<(), OpenError> {
        let record = session.record();
        if !record.is_live() {
            return Err(OpenError::Over(Record::clone(&record).into()));
        }
        if self.table.holds(session) { Ok(()) } else { Err(StoreError::NotHolder.into()) }
    }

    /// Stops using a session as soon as the store says that another process has it.
    fn heed<T>(&self, session: &Session, said: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::NotHolder) = said {
            session.let_go();
            let held = self.table.by_id(session.id());
            if let Some(held) = held.filter(|held| std::ptr::eq(&**held, session))
                && self.table.remove(&held)
            {
                self.over.lost([held]);
            }
        }
        said
    }
}
