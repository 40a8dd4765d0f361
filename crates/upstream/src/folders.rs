//! Private folders: an own process is not yet own state.

mod remove;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_core::{Digest, SessionId};

pub use self::remove::Kept;
use crate::{
    place::Scope,
    server::{Expansion, Server, owner_hash},
};

/// The private folders of sessions and owners: `${session.dir}` and `${owner.dir}`.
///
/// | path below the root | whose | until |
/// |---|---|---|
/// | `sessions/ID/SERVER` | a session's | the session's end |
/// | `owners/HASH/SERVER` | an owner's | somebody removes it |
/// | `trash/…` | nobody's | it is removed |
///
/// Every folder is for the user alone (0700). What is a symbolic link, or belongs to another user, is
/// refused: somebody else would have decided where a session writes.
#[derive(Clone)]
pub struct Folders(Arc<Inner>);

struct Inner {
    root: PathBuf,
    /// The process that removes the root at the end. A fork has its own copy of this, and would
    /// otherwise take the folders of the living parent with it.
    temporary: Option<u32>,
    /// Numbers what goes to the trash.
    removed: AtomicU64,
}

/// Why there is no private folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Something else is where the folder should be.
    #[error("{} is {problem}; remove it, or choose another root for private folders", path.display())]
    Refused {
        /// Which folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The operating system refuses.
    #[error("the private folder {} cannot be made: {problem}", path.display())]
    Io {
        /// Which folder.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        problem: io::Error,
    },
    /// The folder is asked for a link that nobody owns.
    #[error(
        "the server {server:?} uses a private folder, but its link belongs to no session or owner; \
         use isolation per-session or per-owner"
    )]
    NoScope {
        /// Which server.
        server: String,
    },
}

const SESSIONS: &str = "sessions";
const OWNERS: &str = "owners";
const TRASH: &str = "trash";

impl Folders {
    /// Folders below `root`, which is made when the first one is needed.
    ///
    /// # Errors
    /// If `root` is relative and the current folder is not known.
    pub fn new(root: &Path) -> io::Result<Self> {
        // Absolute, because children start elsewhere.
        Ok(Self::at(std::path::absolute(root)?, None))
    }

    /// Folders that go with this value. They are on the disk, in the folder for temporary files: the
    /// runtime folder of a user is in memory, and a browser's profile is not small.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn temporary() -> io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let name = format!("stayput-{:016x}", u64::from_be_bytes(bytes));
        let root = std::path::absolute(std::env::temp_dir().join(name))?;
        Ok(Self::at(root, Some(std::process::id())))
    }

    fn at(root: PathBuf, temporary: Option<u32>) -> Self {
        Self(Arc::new(Inner { root, temporary, removed: AtomicU64::new(0) }))
    }

    /// What all folders are below.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The values for the link of `scope` to `server`, with the folders that the server uses. They are
    /// made if they are not there. Dropped midway, it leaves at most empty folders.
    ///
    /// # Errors
    /// If a folder cannot be made or is not ours alone, or the link has nobody whose it could be.
    pub async fn expansion(
        &self,
        server: &Server,
        scope: &Scope,
    ) -> Result<Expansion, FolderError> {
        let expansion = Expansion::of(scope);
        if !server.uses_session_dir() && !server.uses_owner_dir() {
            return Ok(expansion);
        }
        let (folders, server, scope) = (self.clone(), server.clone(), scope.clone());
        let made = tokio::task::spawn_blocking(move || {
            let mut expansion = expansion;
            if server.uses_session_dir() {
                let folder = folders.session_dir(&scope, server.name())?;
                expansion = expansion.with_session_dir(folder);
            }
            if server.uses_owner_dir() {
                let folder = folders.owner_dir(&scope, server.name())?;
                expansion = expansion.with_owner_dir(folder);
            }
            Ok(expansion)
        });
        let stopped = |error| tree::failed(self.root(), io::Error::other(error));
        made.await.map_err(stopped)?
    }

    /// The folder of a session for the server called `server`, made if it is not there. Each branch of
    /// a session has its own. It touches the disk: call it where that may block.
    ///
    /// # Errors
    /// If it cannot be made or is not ours alone, or `scope` is not a session's.
    pub fn session_dir(&self, scope: &Scope, server: &str) -> Result<PathBuf, FolderError> {
        let Scope::Session { session, branch, .. } = scope else { return Err(no_scope(server)) };
        let name = match branch {
            0 => folder_name(server),
            branch => format!("{}~{branch}", folder_name(server)),
        };
        self.make(&[SESSIONS, &session.to_string(), &name])
    }

    /// The folder of an owner for the server called `server`, made if it is not there. It is kept when
    /// sessions end. It touches the disk: call it where that may block.
    ///
    /// # Errors
    /// If it cannot be made or is not ours alone, or `scope` is nobody's.
    pub fn owner_dir(&self, scope: &Scope, server: &str) -> Result<PathBuf, FolderError> {
        let owner = scope.owner().ok_or_else(|| no_scope(server))?;
        self.make(&[OWNERS, &owner_hash(owner), &folder_name(server)])
    }

    /// Removes the folders of a session that is over, and says what could not be removed.
    ///
    /// At the first poll they are put aside, and removed from there: a session that is revived under
    /// its id finds empty folders, and keeps what it writes into them. Dropped, the removal goes on.
    pub async fn remove_session(&self, session: SessionId) -> Kept {
        let folder = self.sessions().join(session.to_string());
        match self.put_aside(&folder) {
            Ok(Some(aside)) => remove::in_background(vec![aside]).await,
            Ok(None) => Kept::default(),
            Err(problem) => Kept::of(folder, problem),
        }
    }

    /// Removes the folders of a branch of a session that goes on, and says what could not be removed.
    pub async fn remove_branch(&self, session: SessionId, branch: u64) -> Kept {
        let (mut kept, mut aside) = (Kept::default(), Vec::new());
        let end = format!("~{branch}");
        for path in remove::entries(self.sessions().join(session.to_string())).await {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !name.ends_with(&end) {
                continue;
            }
            match self.put_aside(&path) {
                Ok(put) => aside.extend(put),
                Err(problem) => kept.add(path, problem),
            }
        }
        kept.join(remove::in_background(aside).await)
    }

    /// Removes what sessions left that are not `live` any more, after a crash for example.
    ///
    /// A session must be live before its first folder is made. Folders of sessions that another
    /// process holds count as left over too, unless `live` knows them.
    pub async fn sweep(&self, live: &(dyn Fn(SessionId) -> bool + Sync)) -> Kept {
        let mut kept = Kept::default();
        let (sessions, trash) = (self.sessions(), self.0.root.join(TRASH));
        let mut aside = remove::entries(trash.clone()).await;
        for path in remove::entries(sessions).await {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // What is no session's was not put there by us.
            let Ok(session) = name.parse::<SessionId>() else { continue };
            if live(session) {
                continue;
            }
            match self.put_aside(&path) {
                Ok(put) => aside.extend(put),
                Err(problem) => kept.add(path, problem),
            }
        }
        kept.join(remove::in_background(aside).await)
    }

    fn sessions(&self) -> PathBuf {
        self.0.root.join(SESSIONS)
    }

    fn make(&self, names: &[&str]) -> Result<PathBuf, FolderError> {
        tree::make(&self.0.root, names)
    }

    /// Where a folder is now, which nobody will look into; `None` if there is none.
    fn put_aside(&self, from: &Path) -> io::Result<Option<PathBuf>> {
        if !from.is_symlink() && !from.try_exists()? {
            return Ok(None);
        }
        let trash = self.make(&[TRASH]).map_err(io::Error::other)?;
        let number = self.0.removed.fetch_add(1, Ordering::Relaxed);
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let to = trash.join(format!("{name}.{}.{number}", std::process::id()));
        match std::fs::rename(from, &to) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
            renamed => renamed.map(|()| Some(to)),
        }
    }
}

fn no_scope(server: &str) -> FolderError {
    FolderError::NoScope { server: server.to_owned() }
}

/// A name for the folder of a server: what people can read of its name, and a hash, so that no two
/// names meet and none leads out of its place.
fn folder_name(server: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let readable: String = server.chars().take(24).map(plain).collect();
    let hash = Digest::of("folder", &[server.as_bytes()]).to_hex();
    format!("{readable}-{}", &hash[..16])
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.temporary == Some(std::process::id()) {
            remove::now(&self.root);
        }
    }
}

impl fmt::Debug for Folders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folders({})", self.0.root.display())
    }
}
