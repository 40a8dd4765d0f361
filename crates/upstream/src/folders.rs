//! Private folders: an own process is not yet own state.

mod remove;
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
        match self.put_aside(&session.to_string()) {
            Ok(Some(aside)) => remove::in_background(vec![aside]).await,
            Ok(None) => Kept::default(),
            Err(problem) => Kept::of(self.sessions().join(session.to_string()), problem),
        }
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
            match self.put_aside(name) {
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

    /// Where the folders of a session are now, which nobody will look into; `None` if it has none.
    fn put_aside(&self, session: &str) -> io::Result<Option<PathBuf>> {
        let from = self.sessions().join(session);
        if !from.is_symlink() && !from.try_exists()? {
            return Ok(None);
        }
        let trash = self.make(&[TRASH]).map_err(io::Error::other)?;
        let number = self.0.removed.fetch_add(1, Ordering::Relaxed);
        let to = trash.join(format!("{session}.{}.{number}", std::process::id()));
        match std::fs::rename(&from, &to) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Stdio;
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use stayput_core::{Owner, Timestamp};

    fn session(branch: u64) -> (SessionId, Scope) {
        let session = SessionId::generate(Timestamp::from_millis(1));
        (session, Scope::Session { owner: Owner::local(), session, branch })
    }

    fn folders() -> (tempfile::TempDir, Folders) {
        let parent = tempfile::tempdir().unwrap();
        let folders = Folders::new(&parent.path().join("a/root")).unwrap();
        (parent, folders)
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn every_folder_is_for_the_user_alone() {
        let (parent, folders) = folders();
        let (_, scope) = session(0);
        let made = folders.session_dir(&scope, "notes").unwrap();
        assert!(made.is_absolute() && made.starts_with(folders.root()));
        for path in made.ancestors().take_while(|path| *path != parent.path()) {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(folders.session_dir(&scope, "notes").unwrap(), made);
        assert_eq!(mode(&made), 0o700, "opened up, and not closed again");
    }

    #[test]
    fn servers_branches_sessions_and_owners_have_their_own() {
        let (_parent, folders) = folders();
        let (id, one) = session(0);
        let branch = Scope::Session { owner: Owner::local(), session: id, branch: 1 };
        let ann = Scope::Owner(Owner::verified("i", "ann").unwrap());
        let bob = Scope::Owner(Owner::verified("i", "bob").unwrap());
        let mut all = vec![
            folders.session_dir(&one, "a b").unwrap(),
            folders.session_dir(&one, "a/b").unwrap(),
            folders.session_dir(&one, "..").unwrap(),
            folders.session_dir(&branch, "a b").unwrap(),
            folders.session_dir(&session(0).1, "a b").unwrap(),
            folders.owner_dir(&one, "a b").unwrap(),
            folders.owner_dir(&ann, "a b").unwrap(),
            folders.owner_dir(&bob, "a b").unwrap(),
        ];
        assert_eq!(folders.session_dir(&one, "a b").unwrap(), all[0]);
        assert!(!format!("{all:?}").contains("ann"), "an owner's name is in a path");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8, "{all:?}");
        assert!(
            folders.session_dir(&ann, "x").is_err()
                && folders.owner_dir(&Scope::Shared, "x").is_err()
        );
    }

    #[test]
    fn a_link_or_a_file_in_the_way_is_refused() {
        let (parent, folders) = folders();
        let (id, scope) = session(0);
        let made = folders.session_dir(&scope, "x").unwrap();
        fs::remove_dir(&made).unwrap();
        symlink(parent.path(), &made).unwrap();
        let error = folders.session_dir(&scope, "x").unwrap_err();
        assert!(matches!(error, FolderError::Refused { .. }), "{error}");
        fs::remove_file(&made).unwrap();
        fs::write(&made, "").unwrap();
        assert!(matches!(folders.session_dir(&scope, "x"), Err(FolderError::Refused { .. })));

        let above = folders.sessions().join(id.to_string());
        fs::remove_dir_all(&above).unwrap();
        symlink(parent.path(), &above).unwrap();
        assert!(matches!(folders.session_dir(&scope, "x"), Err(FolderError::Refused { .. })));
        let other = Folders::new(&above).unwrap();
        assert!(matches!(other.session_dir(&scope, "x"), Err(FolderError::Refused { .. })));
    }

    #[test]
    fn a_root_that_others_can_write_to_is_refused() {
        let (_parent, folders) = folders();
        let (_, scope) = session(0);
        folders.session_dir(&scope, "x").unwrap();
        fs::set_permissions(folders.root(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(folders.session_dir(&scope, "x"), Err(FolderError::Refused { .. })));
        fs::set_permissions(folders.root(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(folders.session_dir(&scope, "x").is_ok());
    }

    /// Only the administrator can give a folder away, so only there it can be tried.
    #[test]
    fn a_folder_of_another_user_is_refused() {
        let (_parent, folders) = folders();
        let (_, scope) = session(0);
        let made = folders.session_dir(&scope, "x").unwrap();
        if std::os::unix::fs::chown(&made, Some(12_345), None).is_ok() {
            let error = folders.session_dir(&scope, "x").unwrap_err();
            assert!(error.to_string().contains("another user"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_session_that_ends_takes_its_folders_along_and_no_others() {
        let (_parent, folders) = folders();
        let ((id, one), (_, two)) = (session(0), session(0));
        let gone = folders.session_dir(&one, "x").unwrap();
        let stays =
            [folders.session_dir(&two, "x").unwrap(), folders.owner_dir(&one, "x").unwrap()];
        fs::write(gone.join("f"), "1").unwrap();
        symlink(&stays[0], gone.join("link")).unwrap();
        fs::write(stays[0].join("f"), "2").unwrap();
        fs::create_dir_all(gone.join("cache/deep")).unwrap();
        fs::write(gone.join("cache/deep/f"), "1").unwrap();
        fs::set_permissions(gone.join("cache/deep"), fs::Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(gone.join("cache"), fs::Permissions::from_mode(0o000)).unwrap();

        let kept = folders.remove_session(id).await;
        assert!(kept.is_empty(), "{kept}");
        assert!(!gone.exists() && stays.iter().all(|path| path.exists()));
        assert_eq!(fs::read_to_string(stays[0].join("f")).unwrap(), "2");
        assert_eq!(fs::read_dir(folders.root().join(TRASH)).unwrap().count(), 0);
        assert!(folders.remove_session(id).await.is_empty(), "a second time");
    }

    /// Invariant 6: what was begun goes on, and what comes after it is safe from it.
    #[tokio::test]
    async fn a_removal_that_is_dropped_spares_what_is_made_after_it() {
        let (_parent, folders) = folders();
        let (id, scope) = session(0);
        folders.session_dir(&scope, "x").unwrap();
        {
            let mut removal = Box::pin(folders.remove_session(id));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = removal.as_mut().poll(&mut context);
        }
        let revived = folders.session_dir(&scope, "x").unwrap();
        fs::write(revived.join("f"), "new").unwrap();
        assert!(folders.sweep(&|_| true).await.is_empty());
        assert_eq!(fs::read_to_string(revived.join("f")).unwrap(), "new");
        assert_eq!(fs::read_dir(folders.root().join(TRASH)).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_sweep_removes_what_dead_sessions_left() {
        let (_parent, folders) = folders();
        assert!(folders.sweep(&|_| false).await.is_empty(), "there is nothing yet");
        let ((live, one), (_, two)) = (session(0), session(0));
        let (stays, gone) =
            (folders.session_dir(&one, "x").unwrap(), folders.session_dir(&two, "x").unwrap());
        let foreign = folders.sessions().join("readme");
        fs::write(&foreign, "").unwrap();
        assert!(folders.sweep(&|session| session == live).await.is_empty());
        assert!(stays.exists() && foreign.exists() && !gone.exists());
    }

    #[tokio::test]
    async fn only_what_a_server_uses_is_made() {
        let folders = Folders::temporary().unwrap();
        let (_, scope) = session(0);
        let plain = Server::new("x", Stdio::new("x").args(["${session.hash}"])).unwrap();
        folders.expansion(&plain, &scope).await.unwrap();
        assert!(!folders.root().exists(), "nobody asked for a folder");
        let uses = Server::new("x", Stdio::new("x").args(["${session.dir}"])).unwrap();
        let expansion = folders.expansion(&uses, &scope).await.unwrap();
        assert!(uses.resolve(&expansion).is_ok());
        assert!(folders.sessions().exists() && !folders.root().join(OWNERS).exists());
        assert!(folders.expansion(&uses, &Scope::Shared).await.is_err());

        let (root, clone) = (folders.root().to_owned(), folders.clone());
        drop(folders);
        assert!(root.exists());
        drop(clone);
        assert!(!root.exists(), "temporary folders go with the last who has them");
    }
}
