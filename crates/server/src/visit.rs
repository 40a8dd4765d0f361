//! One request and the session it means.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use http::HeaderValue;
use stayput_core::{Agent, Handle, HandleHash, Key, OpenError, Owner, SessionId};
use tokio::sync::OnceCell;

use crate::{Error, Keeper, Unnamed, ask::Kind, carrier::Claim, line::Line, shared::Use};

/// One request and the session it means. The session is found when somebody wants it, and not before: what
/// keeps no state costs nothing.
pub(crate) struct Visit {
    keeper: Keeper,
    owner: Owner,
    meant: Meant,
    opened: OnceCell<Use>,
    /// A handle that was minted for this request.
    minted: OnceLock<Handle>,
    /// The session whose loss the answer tells.
    tells: Mutex<Option<SessionId>>,
}

/// What a request means by what it says.
pub(crate) struct Meant {
    /// The session.
    pub(crate) claim: Claim,
    /// The connection it came on, whatever session it names.
    pub(crate) via: Option<Claim>,
    pub(crate) kind: Kind,
    /// The id of that connection, as its client says it. Only where somebody has to know it.
    pub(crate) client: Option<HeaderValue>,
    /// Whether that connection was there a moment ago.
    pub(crate) trusted: bool,
}

/// What travels with a request, to its handler.
#[derive(Clone)]
pub(crate) struct Carried(pub(crate) Arc<Visit>);

impl Visit {
    pub(crate) fn new(keeper: Keeper, owner: Owner, meant: Meant) -> Arc<Self> {
        Arc::new(Self {
            keeper,
            owner,
            meant,
            opened: OnceCell::new(),
            minted: OnceLock::new(),
            tells: Mutex::default(),
        })
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.meant.claim
    }

    /// The connection that the request came on.
    pub(crate) fn via(&self) -> Option<&Claim> {
        self.meant.via.as_ref()
    }

    /// The id of that connection, as its client says it.
    pub(crate) fn client(&self) -> Option<&HeaderValue> {
        self.meant.client.as_ref()
    }

    /// What the name of that connection is kept as.
    pub(crate) fn connection(&self) -> Option<HandleHash> {
        match self.via() {
            Some(Claim::Connection(name)) => Some(*name),
            _ => None,
        }
    }

    /// The same, if it is not sure that it is still there.
    pub(crate) fn doubtful(&self) -> Option<HandleHash> {
        self.connection().filter(|_| !self.meant.trusted)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.meant.kind
    }

    fn is_tool(&self) -> bool {
        self.meant.kind == Kind::Tool
    }

    /// Whether anything says which session is meant.
    pub(crate) fn is_named(&self) -> bool {
        !matches!(self.claim(), Claim::Nothing | Claim::Cookie(None))
    }

    /// The line that leads to the session.
    fn line(&self) -> Option<&Arc<Line>> {
        match self.claim() {
            Claim::Line(line) => Some(line),
            _ => None,
        }
    }

    /// The handle that was minted for this request.
    pub(crate) fn minted(&self) -> Option<&Handle> {
        self.minted.get()
    }

    /// The same, if the request is already in its session.
    pub(crate) fn given(&self) -> Option<&Handle> {
        self.minted.get().filter(|_| self.opened.initialized())
    }

    /// The session, in use until the request is done with.
    pub(crate) async fn session(&self) -> Result<&Use, Error> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Use, Error> {
        self.keeper.tend();
        let used = self.find().await?;
        if used.held().record().lost().is_none() {
            return Ok(used);
        }
        let id = used.held().id();
        if self.line().is_some() {
            self.keeper.shared().told(id).await?;
        } else {
            // Until the answer that tells it was written, everybody hears of it.
            *self.tells() = Some(id);
        }
        Err(Error::Lost {
            why: "the session that was here is over, and all that was in it is gone".into(),
        })
    }

    async fn find(&self) -> Result<Use, Error> {
        let (shared, owner) = (self.keeper.shared(), &self.owner);
        let found = match self.claim() {
            Claim::Handle(handle) | Claim::Cookie(Some(handle)) => {
                shared.by_handle(owner, handle).await
            }
            Claim::Key(key) => shared.keyed(owner, &Agent::none(), key).await,
            Claim::Connection(name) => shared.connected(owner, *name).await,
            Claim::Line(line) => line.session(shared).await,
            Claim::Owner => match Key::new("owner", "all") {
                Ok(key) => shared.keyed(owner, &Agent::none(), &key).await,
                Err(_) => Err(OpenError::Unknown),
            },
            Claim::Wrong(wrong) => return Err(Error::Name(wrong.clone())),
            Claim::Cookie(None) => self.mint().await,
            Claim::Nothing => return self.unnamed().await,
        };
        Ok(found?)
    }

    async fn unnamed(&self) -> Result<Use, Error> {
        match self.keeper.unnamed() {
            Unnamed::Mint if self.is_tool() => Ok(self.mint().await?),
            Unnamed::Offer if self.is_tool() => {
                if self.minted.get().is_none() {
                    self.mint().await?;
                }
                Err(Error::Unnamed { offer: self.minted.get().cloned() })
            }
            // E29: what nobody could come back to is not begun.
            _ => Err(Error::Unnamed { offer: None }),
        }
    }

    /// A session that ends soon if nobody comes back to it.
    async fn mint(&self) -> Result<Use, OpenError> {
        let shared = self.keeper.shared();
        let made = shared.make(&self.owner, true).await?;
        let handle = shared.issue(made.held()).await?;
        let _ = self.minted.set(handle);
        Ok(made)
    }

    fn tells(&self) -> MutexGuard<'_, Option<SessionId>> {
        self.tells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the answer tells something.
    pub(crate) fn has_to_tell(&self) -> bool {
        self.tells().is_some()
    }

    /// The answer was written: what it told is told.
    pub(crate) fn answered(&self) {
        let told = self.tells().take();
        if let Some(id) = told
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let shared = self.keeper.shared().clone();
            runtime.spawn(async move {
                // Not noted, it is told once more, which does no harm.
                let _ = shared.told(id).await;
            });
        }
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit").field("opened", &self.opened.get()).finish_non_exhaustive()
    }
}
