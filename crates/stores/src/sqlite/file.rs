//! File of a database, as the operating system sees it: its identity, its lock, and the damage that can be seen from
//! outside.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use stayput_core::Outage;
use stayput_sync::Mutex;

/// Length of the header of a database; no database is shorter.
const HEADER_LENGTH: u64 = 100;

/// File of an open SQLite store. It knows why the store cannot be used.
///
/// SQLite goes on with a file that was deleted or replaced, and all its writes are lost then. So the
/// store compares the identity of the file before each write.
#[derive(Debug)]
pub struct DatabaseFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// Reason why the last write failed.
    last_write: Mutex<Option<Outage>>,
}

impl DatabaseFile {
    pub(super) fn new(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&fs::metadata(&path)?);
        Ok(Self { path, identity, last_write: Mutex::default() })
    }

    /// Returns the path of the file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the reason why the store cannot be used now. It asks the operating system about the
    /// file, and remembers whether the last write failed.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.check().err().or(*self.last_write.lock())
    }

    /// Checks that the path still leads to the file. The file is not opened: if a process closes
    /// any descriptor of a file, it loses all locks that SQLite has on it.
    pub(super) fn check(&self) -> Result<(), Outage> {
        use rustix::fs::{Access, access};
        let found = fs::metadata(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Outage::FileDeleted,
            _ => Outage::FileUnreadable,
        })?;
        if identity(&found) != self.identity {
            return Err(Outage::FileReplaced);
        }
        if found.len() < HEADER_LENGTH {
            return Err(Outage::FileCut);
        }
        access(&self.path, Access::READ_OK | Access::WRITE_OK).map_err(|_| Outage::FileUnreadable)
    }

    /// Records the result of a write.
    pub(super) fn wrote(&self, outage: Option<Outage>) {
        *self.last_write.lock() = outage;
    }
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Creates the file with access for its owner only, and its parent folders, unless they exist.
/// Returns its path without symbolic links.
pub(super) fn create(path: &Path) -> io::Result<PathBuf> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // SQLite gives its -wal and -shm files the mode of the main file.
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        // The file existed and was accessible to others; the sessions in it must not be.
        fs::set_permissions(path, Permissions::from_mode(mode & 0o700))?;
    }
    path.canonicalize()
}

/// Locks the file of a SQLite store for this process, until the process ends. Creates the file if it
/// does not exist. Returns `false` if another process has the lock.
///
/// The lock is on the file itself, whatever name it was opened by. It is one byte far behind those
/// that SQLite locks, so it keeps no other program from using the database. Only Linux has locks
/// that outlive other descriptors of the same file; elsewhere this does nothing.
///
/// # Errors
/// If the file cannot be created or opened. A file system without locks is not an error.
pub fn lock_file(path: &Path) -> io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(create(path)?)?;
    let locked = try_lock(&file);
    if locked {
        // The descriptor stays open: closing it while SQLite uses the file would release SQLite's
        // locks.
        std::mem::forget(file);
    }
    Ok(locked)
}

#[cfg(target_os = "linux")]
fn try_lock(file: &File) -> bool {
    use nix::{
        errno::Errno,
        fcntl::{FcntlArg, fcntl},
        libc,
    };
    let (Ok(l_type), Ok(l_whence)) = (i16::try_from(libc::F_WRLCK), i16::try_from(libc::SEEK_SET))
    else {
        return true;
    };
    // SQLite locks bytes from 2^30 on.
    let byte = libc::flock { l_type, l_whence, l_start: 1 << 62, l_len: 1, l_pid: 0 };
    !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&byte)), Err(Errno::EAGAIN | Errno::EACCES))
}

#[cfg(not(target_os = "linux"))]
fn try_lock(_: &File) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_on_the_file_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(lock_file(&at("a.db")).unwrap());
        std::os::unix::fs::symlink(at("a.db"), at("symbolic.db")).unwrap();
        fs::hard_link(at("a.db"), at("hard.db")).unwrap();
        for name in ["a.db", "symbolic.db", "hard.db"] {
            assert!(!lock_file(&at(name)).unwrap(), "{name}");
        }
        assert!(lock_file(&at("b.db")).unwrap());
        // Other programs can use the database all the same.
        let db = rusqlite::Connection::open(at("a.db")).unwrap();
        db.pragma_update(None, "journal_mode", "wal").unwrap();
        db.execute_batch("create table t (x); insert into t values (1)").unwrap();
        drop(db);
        assert!(!lock_file(&at("a.db")).unwrap(), "SQLite has closed its descriptors");
    }

    #[test]
    fn damage_is_seen_from_outside() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("a.db"), folder.path().join("away.db"));
        fs::write(&path, [1; 4096]).unwrap();
        let file = DatabaseFile::new(path.clone()).unwrap();
        assert_eq!(file.outage(), None);
        fs::rename(&path, &away).unwrap();
        assert_eq!(file.outage(), Some(Outage::FileDeleted));
        fs::write(&path, [1; 4096]).unwrap();
        assert_eq!(file.outage(), Some(Outage::FileReplaced));
        fs::rename(&away, &path).unwrap();
        assert_eq!(file.outage(), None);
        file.wrote(Some(Outage::DiskFull));
        assert_eq!(file.outage(), Some(Outage::DiskFull));
        file.wrote(None);
        fs::write(&path, "").unwrap();
        assert_eq!(file.outage(), Some(Outage::FileCut));
        fs::remove_dir_all(folder.path()).unwrap();
        fs::write(folder.path(), "").unwrap();
        assert_eq!(file.outage(), Some(Outage::FileUnreadable));
        fs::remove_file(folder.path()).unwrap();
    }
}
