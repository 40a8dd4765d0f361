//! The entry point: the servers, and the sessions on them.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use stayput_core::{
    Agent, Clock, Key, OpenError, Opened, Owner, SessionId, Sessions, StoreError, SystemClock,
    Timestamp, Wish,
};
use stayput_upstream::{Links, Place, SealKey};
use tokio::sync::broadcast;

use crate::{
    Automatic, Builder, Error, Events, Session, ToolCall,
    ambient::{self, Ambient},
    closing::{Closing, lock},
    events::{Event, Losses},
    handlers::Handlers,
    hold::{Hold, patiently},
    home::Home,
    seen::Seen,
    servers::Servers,
};

/// The servers that are configured, and the sessions on them. A clone is the same hub.
///
/// See the [front page](crate) for how it is used.
#[derive(Clone)]
pub struct Hub {
    pub(crate) inner: Arc<Inner>,
    /// In whose namespace names are looked up.
    pub(crate) agent: Agent,
}

/// What all clones of a hub share.
pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) owner: Owner,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) links: Links,
    /// The same, and how they are let go of.
    pub(crate) closing: Closing,
    pub(crate) seal: SealKey,
    /// What this hub is told from others by, wherever they are.
    pub(crate) life: String,
    pub(crate) servers: Servers,
    pub(crate) warnings: Vec<String>,
    pub(crate) handlers: Arc<Handlers>,
    /// Losses that were said.
    pub(crate) losses: Losses,
    pub(crate) branches: AtomicU64,
    /// How many links were opened so far.
    pub(crate) opened: AtomicU64,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) closed: AtomicBool,
    /// Last: links are let go of on it.
    pub(crate) home: Home,
}

/// An automatic session. It does not keep the hub, which keeps it.
#[derive(Clone)]
pub(crate) struct Auto {
    pub(crate) id: SessionId,
    seen: Arc<Seen>,
}

impl Auto {
    fn hold(&self, hub: &Arc<Inner>) -> Arc<Hold> {
        Hold::knowing(hub.clone(), self.id, self.seen.clone())
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// In a fork nothing runs that would ever be done with what it is asked for.
    pub(crate) fn check_here(&self) -> Result<(), Error> {
        if self.home.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        self.check_here()?;
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Tells whoever listens.
    pub(crate) fn say(&self, event: Event) {
        // Most often nobody does.
        let _ = self.events.send(event);
    }
}

impl Hub {
    /// What a hub is made from.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same hub for an agent of this name: it has session names and servers of its own, beside the
    /// servers of the hub.
    ///
    /// # Errors
    /// If the name is empty, too long or not printable.
    pub fn agent(&self, name: &str) -> Result<Self, Error> {
        Ok(Self { inner: self.inner.clone(), agent: Agent::named(name)? })
    }

    /// A hub with the servers of a file, see [`Builder::config`].
    ///
    /// # Errors
    /// If something in the file is wrong: the error says where, and what to do.
    pub fn from_config(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().config(path).build()
    }

    /// What was passed over in the file of servers, as sentences.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Waits until a server can be used.
    ///
    /// # Errors
    /// What is wrong with it, if it cannot be used within `limit`.
    pub async fn wait_ready(&self, name: &str, limit: Duration) -> Result<(), Error> {
        self.inner.check_open()?;
        let server = self.server(name)?;
        let place = self.nowhere();
        let (inner, name) = (self.inner.clone(), name.to_owned());
        let waiting = async move {
            let end = tokio::time::Instant::now() + limit;
            loop {
                let asked =
                    tokio::time::timeout_at(end, inner.links.profile(&server, &place)).await;
                let failed = match asked {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(source)) => Error::ServerFailed { server: name.clone(), source },
                    Err(_) => return Err(Error::Invalid(format!("`{name}` is not ready yet"))),
                };
                let pause = Duration::from_millis(100);
                if tokio::time::Instant::now() + pause >= end {
                    return Err(failed);
                }
                tokio::time::sleep(pause).await;
            }
        };
        self.inner.home.at_home(waiting).await
    }

    /// The session of this name, found or made. It goes on when the last [`Session`] of it is dropped, until
    /// it is ended, expires, or the hub is closed.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn session(&self, name: &str) -> Result<Session, Error> {
        let wish = Wish::keyed(self.inner.owner.clone(), self.agent.clone(), Key::named(name)?);
        self.open(&wish).await
    }

    pub(crate) async fn open(&self, wish: &Wish) -> Result<Session, Error> {
        self.inner.check_open()?;
        let opening = patiently(|| self.inner.sessions.open(wish));
        let Opened { session, .. } = self.inner.home.at_home(opening).await?;
        Ok(Session::new(self, Hold::opened(self.inner.clone(), session.id())))
    }

    /// The session of this name.
    ///
    /// # Errors
    /// [`Error::UnknownSession`] if there is none.
    pub async fn find(&self, name: &str) -> Result<Session, Error> {
        self.by_key(&self.agent, &Key::named(name)?).await
    }

    async fn by_key(&self, agent: &Agent, key: &Key) -> Result<Session, Error> {
        self.inner.check_open()?;
        let finding = patiently(|| self.inner.sessions.by_key(&self.inner.owner, agent, key));
        match self.inner.home.at_home(finding).await {
            Ok(session) => Ok(Session::new(self, Hold::opened(self.inner.clone(), session.id()))),
            Err(OpenError::Over(_)) => Err(Error::UnknownSession),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a session under a name that every agent can find by [`Hub::find_global`].
    ///
    /// # Errors
    /// [`Error::Taken`] if there is one already.
    pub async fn global_session(&self, name: &str) -> Result<Session, Error> {
        self.inner.check_open()?;
        let key = Key::new(GLOBAL, name)?;
        let taken = || Error::Taken { name: name.to_owned() };
        let wish = Wish::keyed(self.inner.owner.clone(), Agent::none(), key);
        match self.inner.home.at_home(self.inner.sessions.open_new(&wish)).await {
            Ok(Opened { session, .. }) => {
                Ok(Session::new(self, Hold::opened(self.inner.clone(), session.id())))
            }
            Err(OpenError::Store(StoreError::Taken { .. })) => Err(taken()),
            Err(error) => Err(error.into()),
        }
    }

    /// The session that some agent made under this name for all.
    ///
    /// # Errors
    /// [`Error::UnknownSession`] if there is none.
    pub async fn find_global(&self, name: &str) -> Result<Session, Error> {
        self.by_key(&Agent::none(), &Key::new(GLOBAL, name)?).await
    }

    /// A session without a name, which ends when the last [`Session`] of it is dropped.
    #[must_use]
    pub fn ephemeral(&self) -> Session {
        Session::new(self, Hold::own(self.inner.clone()))
    }

    /// From now on calls of this agent that belong to no session belong to an automatic one. It is made
    /// once; asked for again, it is the same.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn automatic(&self, options: Automatic) -> Result<Session, Error> {
        let known = self.automatics().get(&self.agent).cloned();
        if let Some(known) = &known {
            let hold = known.hold(&self.inner);
            if self.inner.home.at_home(hold.enter()).await.is_ok() {
                return Ok(Session::new(self, hold));
            }
        }
        let id = SessionId::generate(self.inner.now());
        let key = Key::named(&format!("{}{id}", options.prefix))?;
        let wish = Wish::keyed(self.inner.owner.clone(), self.agent.clone(), key);
        let made = self.open(&wish.expiry(options.expiry())).await?.hold;
        let made = Auto { id: made.id, seen: made.seen.clone() };
        let (used, surplus) = {
            let mut all = self.automatics();
            let ended = known.map(|known| known.id);
            match all.get(&self.agent).filter(|it| Some(it.id) != ended) {
                // Somebody else was faster.
                Some(other) => (other.clone(), Some(made)),
                None => {
                    all.insert(self.agent.clone(), made.clone());
                    (made, None)
                }
            }
        };
        if let Some(surplus) = surplus {
            surplus.hold(&self.inner).end().await?;
        }
        Ok(Session::new(self, used.hold(&self.inner)))
    }

    /// Calls that belong to no session are errors again. The automatic session is ended.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub async fn manual(&self) -> Result<(), Error> {
        let known = self.automatics().remove(&self.agent);
        match known {
            Some(known) => known.hold(&self.inner).end().await,
            None => Ok(()),
        }
    }

    /// Runs a future in a scope. The first is the root: all calls in it, and in whatever it calls, belong to
    /// one session, which is opened by the first call and ends with the run, however that ends. Inside
    /// a scope of this hub it joins that one.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        if ambient::of_hub(self.inner.id).is_some() {
            return future.await;
        }
        crate::run::root(Hold::own(self.inner.clone()), future).await
    }

    /// Calls a tool in the session that the calling task belongs to.
    pub fn call(&self, server: &str, tool: &str, arguments: impl Serialize) -> ToolCall {
        ToolCall::new(self, None, (server, tool), arguments)
    }

    /// What happens to sessions from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        Events(self.inner.events.subscribe())
    }

    /// The hold that a call without a session goes to: the scope of the task, else the automatic one.
    pub(crate) fn current(&self) -> Result<Arc<Ambient>, Error> {
        if let Some(ambient) = ambient::of_hub(self.inner.id) {
            return Ok(ambient);
        }
        let automatic = self.automatics().get(&self.agent).cloned();
        let hold = automatic.map(|automatic| automatic.hold(&self.inner));
        hold.map(|hold| Arc::new(Ambient::of(hold))).ok_or(Error::NoSession)
    }

    /// The scope of a call on a session that is named. Inside a scope of the same session its rules hold, too.
    pub(crate) fn ambient_of(&self, hold: Arc<Hold>) -> Arc<Ambient> {
        match ambient::of_hub(self.inner.id) {
            Some(current) if current.hold.id == hold.id => current,
            _ => Arc::new(Ambient::of(hold)),
        }
    }

    /// Where a server is asked for its profile, before there is a session.
    pub(crate) fn nowhere(&self) -> Place {
        Place::new(self.inner.owner.clone(), SessionId::generate(self.inner.now()))
    }

    fn automatics(&self) -> std::sync::MutexGuard<'_, BTreeMap<Agent, Auto>> {
        lock(&self.inner.closing.automatics)
    }
}

/// The source of names that all agents share.
const GLOBAL: &str = "global";

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("servers", &self.server_names())
            .field("links", &self.inner.links)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §6: in a forked child a hub is inert. The fork itself takes code that is not safe, so the hub is told of
    /// another process instead.
    #[tokio::test]
    async fn a_hub_of_another_process_is_inert() {
        let hub = Hub::builder().server("none", crate::Stdio::new("no-such-program")).build();
        let hub = hub.unwrap();
        let id = hub.session("a").await.unwrap().id();
        let mut inner = Arc::try_unwrap(hub.inner).ok().unwrap();
        inner.home.move_out();
        let hub = Hub { inner: Arc::new(inner), agent: hub.agent };
        let forked = |error: Error| assert_eq!((error.kind(), error.reason()), ("forked", None));
        forked(hub.session("a").await.unwrap_err());
        forked(hub.find("a").await.unwrap_err());
        forked(
            hub.run(async { hub.call("none", "x", serde_json::json!({})).await })
                .await
                .unwrap_err(),
        );
        let alone = hub.ephemeral();
        forked(alone.call("none", "x", serde_json::json!({})).await.unwrap_err());
        forked(hub.tools("none").await.unwrap_err());
        forked(hub.wait_ready("none", Duration::from_secs(1)).await.unwrap_err());
        forked(hub.profile("none").await.unwrap_err());
        let session = Session::new(&hub, Hold::opened(hub.inner.clone(), id));
        forked(session.info().await.unwrap_err());
        forked(session.restart("none").await.unwrap_err());
        forked(session.end().await.unwrap_err());
        forked(session.into_ticket().await.unwrap_err());
        assert_eq!(hub.close(Duration::from_secs(60)).await, crate::Report::default());
        let there = hub.inner.sessions.by_id(&hub.inner.owner, id).await;
        assert!(there.is_ok(), "nothing was ended");
    }
}
