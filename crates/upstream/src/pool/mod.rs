//! Pool of links: maps a session and a server to one link.

mod end;
mod failure_backoff;
mod link_report;
mod link_state;
mod open;
mod pool_entry;
mod pooled_link;
pub(crate) mod probed_links;
pub(crate) mod profiles;
mod resume_info;
mod retire;
pub(crate) mod shared_state;
mod spares;
mod sweep;
mod table;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::Generation;
use stayput_process::Processes;
use tokio::runtime::Handle;

use crate::{
    Attachment, AttachmentSink, Budget, BudgetUsage, ClientInfo, Isolation, Limits, Link, LinkKey,
    LinkOpenError, LinkOwner, Loss, LossReason, Profile, Recycle, RecycleFilter, Scope, Server,
    SessionDirs,
    open::opener::Opener,
    pool::{
        pool_entry::PoolEntry,
        probed_links::{ProbedLink, ProbedLinks},
        profiles::{ProfileKey, ProfileRequest, Profiles},
    },
    util::flag::Flag,
};
use spares::Spares;
use table::Table;

pub use crate::pool::link_report::LinkReport;
pub use crate::pool::link_state::LinkState;
pub use crate::pool::pooled_link::{LinkHint, PooledLink};
pub use retire::Retirement;
pub use spares::SpareReport;
pub use sweep::LinkSweepReport;

/// Interval between two measurements of the children's memory. Used only if a memory limit is set.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);

/// Settings of the link pool: process starter, session directories, limits.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// Starts and ends child processes.
    pub processes: Processes,
    /// Private directories of the sessions.
    pub folders: SessionDirs,
    /// Limits on links, processes and memory.
    pub limits: Limits,
    /// Largest message that is accepted from a server, in bytes.
    pub message_limit: usize,
}

impl LinkSettings {
    /// Settings with the default limits.
    #[must_use]
    pub fn new(processes: Processes, folders: SessionDirs) -> Self {
        let message_limit = stayput_wire::Message::MAX_BYTES;
        Self { processes, folders, limits: Limits::default(), message_limit }
    }
}

/// All links of this process, by session and server. The first caller opens a link; concurrent callers wait
/// for the same attempt and share the link. A clone refers to the same pool.
///
/// An idle link runs no background task except those of its transport. Links are opened on the runtime given
/// to [`Links::new`], not in the caller's task, so that a cancelled caller does not cancel the others.
#[derive(Clone)]
pub struct Links(Arc<Inner>);

struct Inner {
    opener: Arc<Opener>,
    profiles: Profiles,
    table: Table,
    spares: Spares,
    probed: ProbedLinks,
    /// Whether the task that measures the memory of children runs.
    measured: AtomicBool,
    closed: Arc<Flag>,
    on_loss: OnceLock<Arc<OnLoss>>,
}

/// Callback for lost state behind a link: its key, the generation that follows, and the loss.
type OnLoss = dyn Fn(&LinkKey, Generation, &Loss) + Send + Sync;

/// Parameters of a request for a link.
#[derive(Clone, Debug, Default)]
pub struct LinkOpenOptions {
    /// Client info and capabilities for the handshake, if the link has to be opened.
    pub client_info: ClientInfo,
    /// Saves and loads the attachment. Without it, the attachment is kept in memory only.
    pub sink: Option<Arc<dyn AttachmentSink>>,
    /// Generation of the first link.
    pub generation: Generation,
}

/// Session of a server that an attachment names.
#[derive(Clone, Debug)]
pub struct RemoteSession {
    /// Server that has the session.
    pub server: Server,
    /// Scope of the link to it.
    pub scope: Scope,
    /// Attachment that names the session.
    pub attachment: Attachment,
}

impl RemoteSession {
    /// Whether the session is deleted when ours ends.
    #[must_use]
    pub fn is_deletable(&self) -> bool {
        self.server.options().delete_on_end && self.attachment.can_resume()
    }
}

/// Result of closing all links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseSummary {
    /// Number of links that were live.
    pub links: usize,
    /// Number of links and opening attempts that did not end in time.
    pub left: usize,
}

/// Status of one live link.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// Key of the link in the pool.
    pub key: LinkKey,
    /// Generation of the link. `None` while it is being opened.
    pub generation: Option<Generation>,
    /// Number of calls in flight.
    pub in_flight: usize,
}

impl Links {
    /// Creates an empty pool. Links run on `runtime`.
    #[must_use]
    pub fn new(settings: LinkSettings, runtime: Handle) -> Self {
        let LinkSettings { processes, folders, limits, message_limit } = settings;
        let budget = Budget::new(limits);
        let opener = Arc::new(Opener::new(runtime, processes, folders, budget, message_limit));
        let links = Self(Arc::new(Inner {
            opener,
            profiles: Profiles::default(),
            table: Table::default(),
            spares: Spares::default(),
            probed: ProbedLinks::default(),
            measured: AtomicBool::new(false),
            closed: Arc::default(),
            on_loss: OnceLock::new(),
        }));
        links.watch_memory(limits);
        links
    }

    /// Replaces the limits. Links above a lower limit are not ended; no new link is admitted until the count
    /// is below the limit.
    pub fn set_limits(&self, limits: Limits) {
        self.0.opener.budget.set_limits(limits);
        self.watch_memory(limits);
    }

    /// Calls `callback` when the state behind a link is lost, also without a call: with the key of the link, the
    /// generation of the next link, and the loss. A link that can be resumed, or ends with its session, loses nothing.
    /// The callback is called under locks of this pool, so it must not use the pool. Only the first callback counts.
    pub fn on_loss(&self, callback: impl Fn(&LinkKey, Generation, &Loss) + Send + Sync + 'static) {
        let _ = self.0.on_loss.set(Arc::new(callback));
    }

    fn watch_loss(&self, entry: &Arc<PoolEntry>, link: &Link, attachment: &Attachment) {
        let Some(callback) = self.0.on_loss.get().cloned() else { return };
        // Weak, because the entry owns the link.
        let (entry, next) = (Arc::downgrade(entry), attachment.generation.next());
        let can_go_on = attachment.can_resume() || attachment.is_stateless();
        link.on_loss(Box::new(move |loss| {
            let is_lost = loss.reason() != LossReason::Ended && !(loss.leaves_state() && can_go_on);
            if let Some(entry) = entry.upgrade().filter(|_| is_lost) {
                callback(&entry.key, next, loss);
            }
        }));
    }

    /// Returns the profile of a server. An unknown server is probed on a temporary link with the credentials
    /// of `link_owner`.
    ///
    /// # Errors
    /// If the server cannot be probed, or the session ends meanwhile.
    pub async fn profile(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let scope = open::probe_scope(server, link_owner);
        let asker = ProfileRequest { links: self, server, scope: &scope, opener: None };
        self.while_live(server, link_owner, self.0.profiles.get(asker)).await
    }

    /// Returns the profile of a server for a client with this `client_info`. A server may list more for a client
    /// that declares capabilities.
    ///
    /// # Errors
    /// If the server cannot be probed.
    pub async fn profile_for(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        client_info: &ClientInfo,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let scope = open::probe_scope(server, link_owner);
        let asker = ProfileRequest { links: self, server, scope: &scope, opener: None };
        self.while_live(server, link_owner, self.0.profiles.get_for(asker, client_info)).await
    }

    /// Returns the profile of a server as [`Links::profile_for`], for a client that is expected to open a link soon. A
    /// process that was started to learn the profile waits for that link, at most 30 seconds.
    ///
    /// # Errors
    /// If the server cannot be probed.
    pub async fn profile_for_opener(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        client_info: &ClientInfo,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let scope = open::probe_scope(server, link_owner);
        let asker =
            ProfileRequest { links: self, server, scope: &scope, opener: Some(client_info) };
        self.while_live(server, link_owner, self.0.profiles.get_for(asker, client_info)).await
    }

    /// Keeps a link that was opened to probe a server, see [`ProbedLinks`].
    pub(crate) fn keep_probed(&self, probed: ProbedLink) -> u64 {
        self.0.probed.keep(self, probed)
    }

    pub(crate) fn end_probed(&self, number: u64) {
        self.0.probed.remove(number);
    }

    /// Returns the isolation of links to a server, by its profile. A profile that was learned for one client is used
    /// for all. `client_info` is that of the client that opens a link next.
    ///
    /// # Errors
    /// If no profile is known and the server cannot be probed.
    pub async fn isolation_of(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        client_info: &ClientInfo,
    ) -> Result<Isolation, Arc<LinkOpenError>> {
        let scope = open::probe_scope(server, link_owner);
        let asker =
            ProfileRequest { links: self, server, scope: &scope, opener: Some(client_info) };
        let profile =
            self.while_live(server, link_owner, self.0.profiles.any_or_learn(asker)).await?;
        Ok(profile.isolation(server))
    }

    /// Runs `learning` until the session ends. A probe for an ended session would leave a directory behind.
    async fn while_live(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        learning: impl Future<Output = Result<Arc<Profile>, Arc<LinkOpenError>>>,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let visit = self.0.table.register(link_owner.session);
        tokio::select! {
            biased;
            () = visit.over() => Err(Arc::new(open::ended(server))),
            learned = learning => learned,
        }
    }

    pub(crate) fn opener(&self) -> &Arc<Opener> {
        &self.0.opener
    }

    /// Returns the cached profile of a server without a request to it. The result does not depend on the session.
    pub async fn known_profile(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
    ) -> Option<Arc<Profile>> {
        self.0.profiles.known(self.profile_key(server, link_owner).await?)
    }

    /// Returns the cached profile with current lists. If the server reported a changed list on any link of
    /// this owner, the lists are fetched again on that link, once for all concurrent callers. `None` if no
    /// profile is cached.
    pub async fn current_profile(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
    ) -> Option<Arc<Profile>> {
        let changed = || self.0.table.changed(server, &link_owner.owner);
        let profile_key = self.profile_key(server, link_owner).await?;
        self.0.profiles.current(profile_key, self.0.opener.lists_changed(), changed).await
    }

    /// Fetches the lists again on this link, once for all concurrent callers: after the server reported a
    /// change there, or if a list could not be fetched before. `None` if no profile is cached.
    pub async fn relearn(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
        link: &Link,
    ) -> Option<Arc<Profile>> {
        let profile_key = self.profile_key(server, link_owner).await?;
        self.0.profiles.relearn(profile_key, link).await
    }

    /// Returns the key of the profile that this owner sees. `None` if the identity of the server is not known.
    async fn profile_key<'a>(
        &self,
        server: &Server,
        link_owner: &'a LinkOwner,
    ) -> Option<ProfileKey<'a>> {
        let scope = open::probe_scope(server, link_owner);
        let identity = self.0.opener.profile_identity(server, &scope).await.ok()?;
        Some(self.0.profiles.profile_key(server, identity, &link_owner.owner))
    }

    /// Stores a profile that was learned earlier, unless its era does not match the configured era of the server.
    pub async fn set_profile(&self, server: &Server, link_owner: &LinkOwner, profile: Profile) {
        let scope = open::probe_scope(server, link_owner);
        if profiles::is_allowed(server, profile.protocol())
            && let Ok(identity) = self.0.opener.profile_identity(server, &scope).await
        {
            self.0.profiles.set(identity, Arc::new(profile));
        }
    }

    /// Keeps as many spare processes of this server ready as its options say, and replaces each one that a session
    /// takes. Nothing is sent to them before.
    pub fn warm(&self, server: &Server) {
        if !self.is_closed() {
            self.0.spares.want(self, server);
        }
    }

    /// Lists all links that are live or being opened.
    #[must_use]
    pub fn status(&self) -> Vec<LinkStatus> {
        let entries = self.0.table.all();
        let status = entries.iter().filter_map(|entry| {
            let live = entry.live();
            (live.is_some() || entry.is_opening()).then(|| LinkStatus {
                key: entry.key.clone(),
                generation: live.as_ref().map(|(_, generation)| *generation),
                in_flight: live.map_or(0, |(link, _)| link.in_flight()),
            })
        });
        status.collect()
    }

    /// Lists the processes that no session uses yet: spares, and those that were started to probe a server and wait for
    /// its first session.
    #[must_use]
    pub fn spares(&self) -> Vec<SpareReport> {
        let mut all = self.0.spares.report();
        all.extend(self.0.probed.report());
        all
    }

    /// Current use of the budget.
    #[must_use]
    pub fn used(&self) -> BudgetUsage {
        self.0.opener.budget.used()
    }

    fn is_closed(&self) -> bool {
        self.0.closed.is_raised()
    }

    /// Starts a task that measures the memory of children, once a memory limit is set. Above the limit, the
    /// budget admits a link only after another one has ended.
    fn watch_memory(&self, limits: Limits) {
        if limits.memory.is_none() || self.0.measured.swap(true, Ordering::Relaxed) {
            return;
        }
        let (weak, closed) = (Arc::downgrade(&self.0), self.0.closed.clone());
        self.0.opener.runtime.spawn(async move {
            while tokio::time::timeout(MEMORY_INTERVAL, closed.wait()).await.is_err() {
                let Some(links) = weak.upgrade().map(Links) else { return };
                links.measure().await;
            }
        });
    }

    /// Measures the memory of all children and passes the sum to the budget.
    async fn measure(&self) {
        let links: Vec<Link> =
            self.0.table.all().iter().filter_map(|entry| Some(entry.live()?.0)).collect();
        let spares = self.spares();
        let measure = move || {
            let links = links.iter().filter_map(Link::memory);
            links.chain(spares.iter().filter_map(SpareReport::memory)).collect::<Vec<u64>>()
        };
        let Ok(used) = tokio::task::spawn_blocking(measure).await else { return };
        self.0.opener.budget.set_memory(used.iter().sum(), used.len());
    }
}

impl Recycle for Links {
    fn recycle(&self, wanted: RecycleFilter<'_>) -> bool {
        self.0.spares.give_up_one(wanted)
            || self.0.probed.give_up_one(wanted)
            || self.0.table.recycle(wanted)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Links({:?})", self.used())
    }
}
