//! Sessions of one process: open, find, hold, end.

mod backlog;
mod connections;
mod error;
mod find;
mod hand_over;
mod lease_renewal;
mod open;
mod release;
mod released;
mod restore;
mod session;
mod sweep;
mod table;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Agent, Clock, ClockReading, EndReason, ExpectedRevision, Expiry, Generation, Handle, Holder,
    Key, Lease, LeaseValidity, Owner, Record, SessionEnd, SessionId, SessionLimits, State,
    StateLimits, Store, StoreError, lease::LeaseDeadline,
};
use backlog::{SingleFlight, SweepBacklog};
pub use error::SessionOpenError;
use hand_over::HandOver;
pub use lease_renewal::LeaseRenewal;
use release::ReleasingSessions;
pub use released::LostReason;
use released::ReleasedSessions;
use restore::RestoredSessions;
pub use session::{ActiveSession, Session};
use stayput_sync::RwLock;
pub use sweep::SweepReport;
use table::SessionTable;

/// Sessions that one process holds, on top of a store.
///
/// A session is read from the store once and then held in memory: finding a held session needs no
/// database. Times of use are written back in batches by [`Sessions::write_back`].
///
/// No background task runs here. The caller runs [`Sessions::renew`], [`Sessions::reclaim`],
/// [`Sessions::write_back`] and [`Sessions::sweep`] periodically, and closes the links of the
/// sessions that `sweep` and [`Sessions::on_lost`] report.
#[derive(Debug)]
pub struct Sessions {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    holder: Holder,
    settings: RwLock<Settings>,
    validity: RwLock<LeaseValidity>,
    deadline: LeaseDeadline,
    table: SessionTable,
    backlog: SweepBacklog,
    released: ReleasedSessions,
    releasing: ReleasingSessions,
    hand_over: HandOver,
    restored: RestoredSessions,
    renewing: SingleFlight,
    closed: AtomicBool,
    /// Number of sessions that were claimed from the store.
    claimed: AtomicU64,
}

/// Settings of [`Sessions`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Expiry of a session whose opener sets no other one. Defaults to 30 minutes idle and 24 hours
    /// of age.
    pub expiry: Expiry,
    /// Idle time of a provisional session. Defaults to 2 minutes.
    pub provisional: Duration,
    /// Time for which the tombstone of an ended session is kept. Defaults to 7 days.
    pub retention: Duration,
    /// Time after which the process's lease expires without renewal. Defaults to 30 seconds. Use
    /// [`Duration::MAX`] only for a store that ends with the process: in a store that outlives a
    /// killed process, such a lease would lock out all others for ever.
    pub lease: Duration,
    /// Whether a session that the store forgot is inserted again from memory. Set it only if the
    /// state of the sessions is not in the store, but behind links of this process. Defaults to
    /// `false`.
    pub restore: bool,
    /// Limits on the number of sessions.
    pub sessions: SessionLimits,
    /// Limits on the state of a session.
    pub state: StateLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            expiry: Expiry::default(),
            provisional: Duration::from_secs(2 * 60),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            lease: Duration::from_secs(30),
            restore: false,
            sessions: SessionLimits::default(),
            state: StateLimits::default(),
        }
    }
}

/// Session to open, with the settings for a new one.
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    owner: Owner,
    name: Option<(Agent, Key)>,
    expiry: Option<Expiry>,
    provisional: bool,
    id: Option<SessionId>,
    connection: Option<(Handle, Vec<u8>)>,
}

impl OpenOptions {
    /// Opens a new session of `owner` without a key.
    pub fn new(owner: Owner) -> Self {
        Self { owner, name: None, expiry: None, provisional: false, id: None, connection: None }
    }

    /// Finds or creates the session of `owner` with this key.
    pub fn with_key(owner: Owner, agent: Agent, key: Key) -> Self {
        Self { name: Some((agent, key)), ..Self::new(owner) }
    }

    /// Sets the expiry of a new session. Defaults to [`Settings::expiry`].
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Sets the id of a new session, for callers that must know it in advance.
    pub fn id(mut self, id: SessionId) -> Self {
        self.id = Some(id);
        self
    }

    /// Stores a connection to the session, as [`Sessions::put_connection`] does. A new session is stored
    /// together with its connection in one step.
    pub fn connection(mut self, name: Handle, body: Vec<u8>) -> Self {
        self.connection = Some((name, body));
        self
    }

    /// Creates a provisional session: it expires soon, unless its handle is used.
    pub fn provisional(mut self) -> Self {
        self.provisional = true;
        self
    }
}

/// Session that was opened and is in use by its opener.
#[derive(Debug)]
#[must_use]
pub struct OpenedSession {
    /// Session, kept in use.
    pub session: ActiveSession,
    /// Relation to earlier sessions.
    pub origin: Origin,
}

/// Relation of an opened session to the state that its client remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The session is new, and no earlier session had its key.
    New,
    /// The session existed before.
    Existing,
    /// All earlier state is lost, and the client has not acknowledged it, see
    /// [`Sessions::acknowledge_loss`].
    Lost(Generation),
}

/// Maximum attempts of an operation when other writers are faster.
const MAX_ATTEMPTS: u32 = 16;

impl Sessions {
    /// Starts with no held session, and acquires a lease on `store` for `holder`.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        holder: Holder,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        let requested = clock.reading();
        let lease = store.acquire_lease(&holder, settings.lease).await?;
        let validity = LeaseValidity::new(lease, requested, settings.lease);
        let (deadline, validity) = (LeaseDeadline::new(&validity), RwLock::new(validity));
        let table = SessionTable::default();
        table.set_lease(lease);
        let (backlog, renewing, closed) =
            (SweepBacklog::default(), SingleFlight::default(), AtomicBool::new(false));
        let settings = RwLock::new(settings);
        Ok(Self {
            store,
            clock,
            holder,
            settings,
            validity,
            deadline,
            table,
            backlog,
            released: ReleasedSessions::default(),
            releasing: ReleasingSessions::default(),
            hand_over: HandOver::default(),
            restored: RestoredSessions::default(),
            renewing,
            closed,
            claimed: AtomicU64::new(0),
        })
    }

    /// Returns the current settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Sets expiry and limits for new sessions. Existing sessions keep theirs.
    pub fn reconfigure(&self, expiry: Expiry, sessions: SessionLimits) {
        let mut settings = self.settings.write();
        (settings.expiry, settings.sessions) = (expiry, sessions);
    }

    /// Returns the state of a session.
    ///
    /// # Errors
    /// [`SessionOpenError::LeaseLost`].
    pub fn state(&self, session: &Session) -> Result<State, SessionOpenError> {
        let lease = self.lease()?;
        Ok(State::new(self.store.clone(), session.id(), Some(lease), self.settings().state))
    }

    /// Issues a new handle for a session. Older handles stay valid.
    ///
    /// # Errors
    /// [`SessionOpenError::LeaseLost`] or an error of the store.
    pub async fn issue_handle(&self, session: &Session) -> Result<Handle, SessionOpenError> {
        let handle = Handle::generate();
        let hash = handle.hash(session.owner());
        self.check_held(session)?;
        if session.is_closed() {
            return Err(SessionOpenError::Ended(Record::clone(&session.record()).into()));
        }
        for _ in 0..MAX_ATTEMPTS {
            let added = self.store.add_handle(session.id(), hash, Some(self.lease()?)).await;
            match self.release_if_not_holder(session, added) {
                Err(StoreError::Missing) => self.restore_held(session).await?,
                added => {
                    added?;
                    self.table.note_issued_handle(session, hash);
                    return Ok(handle);
                }
            }
        }
        Err(StoreError::Missing.into())
    }

    /// Changes the record of a session in the store. `change` runs again on the newer record
    /// whenever another writer was faster.
    ///
    /// # Errors
    /// [`SessionOpenError::Ended`] if the session has ended, [`SessionOpenError::LeaseLost`], or an
    /// error of the store: [`StoreError::NotHolder`] also if this process has released the session.
    pub async fn change(
        &self,
        session: &Session,
        mut change: impl FnMut(&mut Record),
    ) -> Result<(), SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            // Checked first: without a lease this process does not know what others did to the
            // session.
            let lease = self.lease()?;
            self.check_held(session)?;
            let current = session.record();
            let mut record = Record::clone(&current);
            change(&mut record);
            let written = self
                .store
                .replace(&record, ExpectedRevision::revision(&current), Some(lease))
                .await;
            match self.release_if_not_holder(session, written) {
                Ok(revision) => {
                    record.revision = revision;
                    session.update_record(record);
                    return Ok(());
                }
                Err(StoreError::Stale) => {
                    let newer = self.store.load(session.id()).await?.ok_or(StoreError::Missing)?;
                    if !session.is_same_incarnation(&newer) {
                        return Err(SessionOpenError::Ended(
                            Record::clone(&session.record()).into(),
                        ));
                    }
                    session.update_record(newer);
                }
                Err(StoreError::Missing) => self.restore_held(session).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Records that the client acknowledged the losses of the whole session up to `generation`.
    /// Call it only after the answer that reports the loss has been written: until then every
    /// opener gets the loss.
    ///
    /// # Errors
    /// Same as [`Sessions::change`].
    pub async fn acknowledge_loss(
        &self,
        session: &Session,
        generation: Generation,
    ) -> Result<(), SessionOpenError> {
        self.change(session, |record| record.acknowledged = record.acknowledged.max(generation))
            .await
    }

    /// Changes the expiry of a session.
    ///
    /// # Errors
    /// Same as [`Sessions::change`].
    pub async fn set_expiry(
        &self,
        session: &Session,
        expiry: Expiry,
    ) -> Result<(), SessionOpenError> {
        self.change(session, |record| record.expiry = expiry).await
    }

    /// Begins the end of a session, for a caller that has to end its links before [`Sessions::end`]. New
    /// users are refused. If this process dies before the end, the sweep of another process ends the
    /// session, and reports its record.
    ///
    /// # Errors
    /// Same as [`Sessions::change`].
    pub async fn begin_end(&self, session: &Session) -> Result<(), SessionOpenError> {
        session.close(EndReason::Closed);
        self.change(session, Record::begin_end).await
    }

    /// Ends a session for good. Current users finish; new ones are refused.
    ///
    /// The next sweep reports the last live record, so that the caller can close the links to its
    /// servers. If this call is cancelled, the next sweep also completes the end.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn end(&self, session: &Arc<Session>) -> Result<(), SessionOpenError> {
        session.close(EndReason::Closed);
        self.finish(session, EndReason::Closed).await
    }

    /// Ends a session without a tombstone, for one that no client can ask for later.
    ///
    /// # Errors
    /// Same as [`Sessions::end`].
    pub async fn end_and_remove(&self, session: &Arc<Session>) -> Result<(), SessionOpenError> {
        self.end(session).await?;
        Ok(self.store.remove(session.id(), Some(self.lease()?)).await?)
    }

    /// Writes the end of a closed session to the store, and removes it from the table.
    async fn finish(
        &self,
        session: &Arc<Session>,
        reason: EndReason,
    ) -> Result<(), SessionOpenError> {
        if !self.table.contains(session) {
            // Another caller finished it, or this process released it. A later incarnation is not
            // ours to end.
            return Ok(());
        }
        let now = self.clock.now();
        let written = match self.change(session, |record| record.end(reason, now)).await {
            Ok(()) => true,
            // Ended or removed already: the store needs no write, but links may be open.
            Err(SessionOpenError::Ended(_) | SessionOpenError::Store(StoreError::Missing)) => false,
            // Claimed by another process: the session goes on there.
            Err(SessionOpenError::Store(StoreError::NotHolder)) => return Ok(()),
            Err(error) => return Err(error),
        };
        // The caller that wrote the end reports it, also if the session was released meanwhile.
        if self.table.remove(session) || written {
            self.report_end(session, reason);
        }
        Ok(())
    }

    /// Queues the end of a session for the next sweep, once.
    fn report_end(&self, session: &Arc<Session>, reason: EndReason) {
        if let Some(last) = session.take_final_record() {
            tracing::debug!(session = %session.id(), reason = reason.as_str(), "session ended");
            let at = last.ended.map_or_else(|| self.clock.now(), |ended| ended.at);
            // The reason of this process, also if another one had begun the end: then nothing was
            // reported there.
            let ended = Some(SessionEnd { at, reason });
            self.backlog.add_ended(session, Record { ended, ..last });
        }
    }

    /// Returns the lease of this process. Only the store knows whether it is still alive.
    #[must_use]
    pub fn current_lease(&self) -> Lease {
        self.validity().renewable_lease()
    }

    /// Returns the holder of the sessions of this process.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the held sessions in no particular order.
    #[must_use]
    pub fn held_sessions(&self) -> Vec<Arc<Session>> {
        self.table.all()
    }

    /// Returns the number of held sessions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of sessions that this process has claimed from the store: of other or earlier processes.
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Whether the sessions of this process may be used now.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.check_lease(self.clock.reading()).is_ok()
    }

    /// Returns the lease if this process may still rely on it.
    fn lease(&self) -> Result<Lease, SessionOpenError> {
        self.lease_at(self.clock.reading())
    }

    fn lease_at(&self, now: ClockReading) -> Result<Lease, SessionOpenError> {
        self.validity().lease(now).ok_or(SessionOpenError::LeaseLost)
    }

    /// Checks whether sessions may be used now. Every call does this, so it takes no lock.
    fn check_lease(&self, now: ClockReading) -> Result<(), SessionOpenError> {
        if self.deadline.is_valid(now) { Ok(()) } else { self.lease_at(now).map(drop) }
    }

    /// Refuses an ended session and a released one. The latter may live on under its id, here or in
    /// another process, as another object.
    fn check_held(&self, session: &Session) -> Result<(), SessionOpenError> {
        let record = session.record();
        if !record.is_live() {
            return Err(SessionOpenError::Ended(Record::clone(&record).into()));
        }
        if self.table.contains(session) { Ok(()) } else { Err(StoreError::NotHolder.into()) }
    }

    /// Releases a session if the store says that another process holds it.
    fn release_if_not_holder<T>(
        &self,
        session: &Session,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Err(StoreError::NotHolder) = result {
            session.release();
            self.released.add(|| {
                let held = self.table.by_id(session.id());
                held.filter(|held| std::ptr::eq(&**held, session) && self.table.remove(held))
            });
        }
        result
    }
}
