//! Private directories of sessions and owners. A separate process alone does not separate files.

mod remove;
mod spare_dir;
mod temporary;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_core::{Digest, SessionId};

use crate::server::{Expansion, Server, link_key::Scope, owner_hash};

pub use self::remove::UnremovedPaths;
pub(crate) use self::spare_dir::SpareDir;

/// Private directories of sessions and owners: `${session.dir}` and `${owner.dir}`.
///
/// | path below the root | belongs to | removed |
/// |---|---|---|
/// | `sessions/ID/SERVER` | a session | at the end of the session |
/// | `owners/HASH/SERVER` | an owner | by the user |
/// | `spares/ID/SERVER` | a spare process, then the session that took it | with the spare, or at the end of the session |
/// | `trash/…` | none | in the background |
///
/// Every directory has mode 0700. A symbolic link or a directory of another user is refused, because another
/// user would control where a session writes.
#[derive(Clone)]
pub struct SessionDirs(Arc<Inner>);

struct Inner {
    root: PathBuf,
    /// Pid of the process that removes the root on drop. A fork has a copy of this value, and must not remove
    /// the directories of its parent.
    temporary: Option<u32>,
    /// Lock of a temporary root, from its creation on. `None` if it could not be locked.
    lock: OnceLock<Option<File>>,
    /// Number of the next directory in the trash.
    removed: AtomicU64,
}

/// Reason why a private directory is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionDirError {
    /// Something else exists at the path.
    #[error("{} is {problem}; remove it, or choose another root for private folders", path.display())]
    Refused {
        /// Path of the directory.
        path: PathBuf,
        /// Description of the problem.
        problem: &'static str,
    },
    /// The operating system returned an error.
    #[error("the private folder {} cannot be made: {problem}", path.display())]
    Io {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        problem: io::Error,
    },
    /// The link belongs to no session or owner.
    #[error(
        "the server {server:?} uses a private folder, but its link belongs to no session or owner; \
         use isolation per-session or per-owner"
    )]
    NoScope {
        /// Name of the server.
        server: String,
    },
}

const SESSIONS: &str = "sessions";
const OWNERS: &str = "owners";
const SPARES: &str = "spares";
const TRASH: &str = "trash";

impl SessionDirs {
    /// Uses directories below `root`, which is created with the first one.
    ///
    /// # Errors
    /// If `root` is relative and the current directory is not known.
    pub fn new(root: &Path) -> io::Result<Self> {
        // Absolute, because children have another working directory.
        Ok(Self::at(std::path::absolute(root)?, None))
    }

    /// Uses directories that are removed when the last clone is dropped. They are in the directory for
    /// temporary files, which is on disk: the user's runtime directory is in memory, too small for a browser
    /// profile.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn temporary() -> io::Result<Self> {
        Ok(Self::at(temporary::new_path()?, Some(std::process::id())))
    }

    fn at(root: PathBuf, temporary: Option<u32>) -> Self {
        let (lock, removed) = (OnceLock::new(), AtomicU64::new(0));
        Self(Arc::new(Inner { root, temporary, lock, removed }))
    }

    /// Root of all directories.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns the values for the link of `scope` to `server`, and creates the directories that the server
    /// uses. If the future is dropped, at most empty directories remain.
    ///
    /// # Errors
    /// If a directory cannot be created or is not private, or the link belongs to no session or owner.
    pub async fn expansion(
        &self,
        server: &Server,
        scope: &Scope,
    ) -> Result<Expansion, SessionDirError> {
        let expansion = Expansion::new(scope);
        if !server.uses_session_dir() && !server.uses_owner_dir() {
            return Ok(expansion);
        }
        let (folders, server, scope) = (self.clone(), server.clone(), scope.clone());
        let task = tokio::task::spawn_blocking(move || {
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
        task.await.map_err(stopped)?
    }

    /// Returns the directory of a session for a server, and creates it if needed. Each branch of a session
    /// has its own. Blocks on disk access.
    ///
    /// # Errors
    /// If it cannot be created or is not private, or `scope` is not a session.
    pub fn session_dir(&self, scope: &Scope, server: &str) -> Result<PathBuf, SessionDirError> {
        let Scope::Session { session, branch, .. } = scope else { return Err(no_scope(server)) };
        if let Some(id) = self.adopted(&self.session_path(*session, *branch, server)) {
            return self.make(&[SPARES, &id, &folder_name(server)]);
        }
        self.make(&[SESSIONS, &session.to_string(), &branch_folder_name(*branch, server)])
    }

    /// Path of the directory of a session for a server, or of the symbolic link to a directory that it adopted.
    fn session_path(&self, session: SessionId, branch: u64, server: &str) -> PathBuf {
        self.sessions().join(session.to_string()).join(branch_folder_name(branch, server))
    }

    /// Returns the directory of an owner for a server, and creates it if needed. It is kept when sessions
    /// end. Blocks on disk access.
    ///
    /// # Errors
    /// If it cannot be created or is not private, or `scope` has no owner.
    pub fn owner_dir(&self, scope: &Scope, server: &str) -> Result<PathBuf, SessionDirError> {
        let owner = scope.owner().ok_or_else(|| no_scope(server))?;
        self.make(&[OWNERS, &owner_hash(owner), &folder_name(server)])
    }

    /// Removes the directories of an ended session. Returns what could not be removed.
    ///
    /// The first poll moves them to the trash: a session that is revived with the same id finds empty
    /// directories and keeps what it writes there. The removal continues if the future is dropped.
    pub async fn remove_session(&self, session: SessionId) -> UnremovedPaths {
        let folder = self.sessions().join(session.to_string());
        let (aside, kept) = self.all_to_trash(self.adopted_by(&folder).into_iter().chain([folder]));
        kept.join(remove::in_background(aside).await)
    }

    /// Removes the directories of a branch of a session. Returns what could not be removed.
    pub async fn remove_branch(&self, session: SessionId, branch: u64) -> UnremovedPaths {
        let end = format!("~{branch}");
        let mut paths = remove::entries(self.sessions().join(session.to_string())).await;
        paths.retain(|path| path.to_str().is_some_and(|path| path.ends_with(&end)));
        let adopted = paths.iter().filter_map(|path| self.adopted(path));
        let adopted: Vec<_> = adopted.map(|id| self.0.root.join(SPARES).join(id)).collect();
        let (aside, kept) = self.all_to_trash(adopted.into_iter().chain(paths));
        kept.join(remove::in_background(aside).await)
    }

    /// Removes directories of sessions for which `is_live` returns false, for example after a crash. If the
    /// root is temporary, also removes the temporary roots of dead processes.
    ///
    /// The directories are listed when this function is called; later ones are left alone. A session must be
    /// live before its first directory is created. Directories of sessions that another process holds are
    /// removed too, unless `is_live` returns true for them. Those of spares that another process has stay.
    pub fn sweep<L, F>(&self, is_live: L) -> impl Future<Output = UnremovedPaths> + Send + use<L, F>
    where
        L: Fn(SessionId) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let (folders, found) = (self.clone(), remove::list(&self.sessions()));
        let mut spares = remove::list(&self.0.root.join(SPARES));
        async move {
            let mut kept = UnremovedPaths::default();
            let mut aside = remove::entries(folders.0.root.join(TRASH)).await;
            for path in found {
                // Not the name of a session: created by another program.
                let Some(session) = session_of(&path) else { continue };
                if is_live(session).await {
                    let adopted = folders.adopted_by(&path);
                    spares.retain(|spare| !adopted.contains(spare));
                    continue;
                }
                match folders.move_to_trash(&path) {
                    Ok(put) => aside.extend(put),
                    Err(problem) => kept.add(path, problem),
                }
            }
            spares.retain(|spare| session_of(spare).is_some() && !Self::is_in_use(spare));
            let (put, unmoved) = folders.all_to_trash(spares.into_iter());
            aside.extend(put);
            kept = kept.join(unmoved);
            if folders.0.temporary.is_some() {
                let dead = tokio::task::spawn_blocking(temporary::dead_roots);
                aside.extend(dead.await.unwrap_or_default());
            }
            kept.join(remove::in_background(aside).await)
        }
    }

    fn sessions(&self) -> PathBuf {
        self.0.root.join(SESSIONS)
    }

    fn make(&self, names: &[&str]) -> Result<PathBuf, SessionDirError> {
        let made = tree::make(&self.0.root, names)?;
        if self.0.temporary.is_some() {
            self.0.lock.get_or_init(|| temporary::lock(&self.0.root).ok());
        }
        Ok(made)
    }

    /// Moves directories to the trash. Returns their new paths, and what could not be moved.
    fn all_to_trash(&self, paths: impl Iterator<Item = PathBuf>) -> (Vec<PathBuf>, UnremovedPaths) {
        let (mut aside, mut kept) = (Vec::new(), UnremovedPaths::default());
        for path in paths {
            match self.move_to_trash(&path) {
                Ok(put) => aside.extend(put),
                Err(problem) => kept.add(path, problem),
            }
        }
        (aside, kept)
    }

    /// Moves a directory to the trash and returns its new path. `None` if it does not exist.
    fn move_to_trash(&self, from: &Path) -> io::Result<Option<PathBuf>> {
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

/// Session id that is the name of a directory.
fn session_of(path: &Path) -> Option<SessionId> {
    path.file_name()?.to_str()?.parse().ok()
}

/// Directory name of a server for a branch of a session.
fn branch_folder_name(branch: u64, server: &str) -> String {
    match branch {
        0 => folder_name(server),
        branch => format!("{}~{branch}", folder_name(server)),
    }
}

fn no_scope(server: &str) -> SessionDirError {
    SessionDirError::NoScope { server: server.to_owned() }
}

/// Directory name of a server: a readable part and a hash. The hash keeps names distinct; the replaced
/// characters keep the path inside its parent.
fn folder_name(server: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let readable: String = server.chars().take(24).map(plain).collect();
    let hash = Digest::compute("folder", &[server.as_bytes()]).to_hex();
    format!("{readable}-{}", &hash[..16])
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.temporary == Some(std::process::id()) {
            remove::now(&self.root);
        }
    }
}

impl fmt::Debug for SessionDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionDirs({})", self.0.root.display())
    }
}
