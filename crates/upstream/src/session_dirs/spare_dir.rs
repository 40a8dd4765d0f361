//! Directory of a spare process, which becomes that of a session.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use stayput_core::{SessionId, Timestamp};

use super::{SPARES, SessionDirError, SessionDirs, folder_name, remove, tree};
use crate::server::link_key::Scope;

/// Private directory of a process that was started before its session is known: `spares/ID/SERVER`. On drop it is
/// moved to the trash and removed, unless a session has adopted it.
///
/// Its path never changes, because the process has it in its arguments: the session that adopts it gets a
/// symbolic link to it in place of its own directory.
#[derive(Debug)]
pub(crate) struct SpareDir {
    dirs: SessionDirs,
    /// Name below `spares`.
    id: String,
    server: String,
    path: PathBuf,
    is_adopted: bool,
    /// Lock of the directory, which tells sweeps of other processes that it is in use.
    _lock: File,
}

impl SessionDirs {
    /// Creates the directory of a spare process of `server`. Blocks on disk access.
    pub(crate) fn spare_dir(&self, server: &str) -> Result<SpareDir, SessionDirError> {
        loop {
            let id = SessionId::generate(Timestamp::from_millis(0)).to_string();
            let path = self.make(&[SPARES, &id, &folder_name(server)])?;
            let parent = self.0.root.join(SPARES).join(&id);
            let failed = |problem| tree::failed(&parent, problem);
            let lock = File::open(&parent).map_err(failed)?;
            let locked = lock.try_lock().map_err(io::Error::from);
            // A sweep of another process may have removed it before it was locked.
            if !path.is_dir() {
                continue;
            }
            locked.map_err(failed)?;
            let (dirs, server) = (self.clone(), server.to_owned());
            return Ok(SpareDir { dirs, id, server, path, is_adopted: false, _lock: lock });
        }
    }

    /// Whether a live process has this directory of a spare.
    pub(super) fn is_in_use(spare: &Path) -> bool {
        let lock = File::open(spare).map(|dir| dir.try_lock());
        matches!(lock, Ok(Err(fs::TryLockError::WouldBlock)))
    }

    /// Whether the session of `scope` has nothing in its directory for `server`, so that it can adopt another
    /// one. Blocks on disk access.
    pub(crate) fn can_adopt(&self, scope: &Scope, server: &str) -> bool {
        let Scope::Session { session, branch, .. } = scope else { return false };
        let path = self.session_path(*session, *branch, server);
        match path.symlink_metadata() {
            Ok(found) => found.is_dir() && remove::list(&path).is_empty(),
            Err(problem) => problem.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Returns the id of the spare directory that a session has adopted at this path.
    pub(super) fn adopted(&self, path: &Path) -> Option<String> {
        let target = fs::read_link(path).ok()?;
        let inside = target.strip_prefix(Path::new("../..").join(SPARES)).ok()?;
        let mut parts = inside.iter().map(|part| part.to_str());
        let (id, _server) = (parts.next()??, parts.next()??);
        let is_spare = parts.next().is_none() && id.parse::<SessionId>().is_ok();
        is_spare.then(|| id.to_owned())
    }

    /// Returns the spare directories that a session has adopted. Blocks on disk access.
    pub(super) fn adopted_by(&self, session: &Path) -> Vec<PathBuf> {
        let entries = remove::list(session).into_iter();
        let ids = entries.filter_map(|entry| self.adopted(&entry));
        ids.map(|id| self.0.root.join(SPARES).join(id)).collect()
    }
}

impl SpareDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it the directory of a session, which must have none or an empty one. Blocks on disk access.
    pub(crate) fn adopt(mut self, scope: &Scope) -> io::Result<()> {
        let Scope::Session { session, branch, .. } = scope else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if !self.path.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.dirs.make(&[super::SESSIONS, &session.to_string()]).map_err(io::Error::other)?;
        let at = self.dirs.session_path(*session, *branch, &self.server);
        match fs::remove_dir(&at) {
            Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
            _ => {}
        }
        let target = Path::new("../..").join(SPARES).join(&self.id).join(folder_name(&self.server));
        std::os::unix::fs::symlink(target, at)?;
        self.is_adopted = true;
        Ok(())
    }
}

impl Drop for SpareDir {
    fn drop(&mut self) {
        if self.is_adopted {
            return;
        }
        let folder = self.dirs.0.root.join(SPARES).join(&self.id);
        if let Ok(Some(aside)) = self.dirs.move_to_trash(&folder) {
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || remove::now(&aside))),
                Err(_) => remove::now(&aside),
            }
        }
    }
}
