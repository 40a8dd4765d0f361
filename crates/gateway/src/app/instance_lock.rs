//! Lock of a store: one process per machine holds its sessions. Others reach it at its socket. The lock is on the data
//! folder, and on the database file itself, which can have several names.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use stayput_core::{Holder, HolderId};
use stayput_stores::Address;

use crate::app::ServeError;

/// Name of a file in the data folder. The process that holds the sessions locks it.
pub(crate) const FILE: &str = "holder";

/// Name of a lock file in the data folder. A process locks it while it starts the gateway, so that only one is started.
pub(crate) const STARTING: &str = "starting";

/// Folder of keys and private folders: the configured one, else the one of the store.
pub(crate) fn data_folder(configured: Option<&Path>, store: &str) -> Result<PathBuf, ServeError> {
    match configured {
        Some(folder) => Ok(folder.to_owned()),
        None => folder(store),
    }
}

/// Folder of a store: next to a store that is a file, else in the user's data folder.
fn folder(store: &str) -> Result<PathBuf, ServeError> {
    let file = store.strip_prefix("sqlite:").filter(|path| !path.is_empty());
    if let Some(file) = file {
        let file = Path::new(file.strip_prefix("//").unwrap_or(file));
        // Behind all symbolic links to a file there is one folder.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".d");
        return Ok(file.with_file_name(name));
    }
    let home = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    let home = home.ok_or(ServeError::NoHome)?;
    // Each store has its own folder, because the folder holds the holder id.
    let digest = stayput_core::content_digest(store.as_bytes()).to_hex();
    Ok(home.join("stayput").join(digest.get(..16).unwrap_or_default()))
}

/// Creates the folder, readable by its owner only. A folder of another user is refused: that user could read and replace
/// the keys in it.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let owner = fs::metadata(folder)?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        let sentence = format!(
            "it belongs to another user (uid {owner}), who could read and replace the keys in it; choose another \
             store, or change the owner of the folder"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Opens a file in the folder that one process at a time can lock.
pub(crate) fn lockable(file: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(file)
}

/// Locks the database file of a store, until this process ends.
pub(crate) fn lock_store(store: &str) -> Result<(), ServeError> {
    // An error in the URL is reported when the store is opened.
    let Ok(Address::Sqlite(path)) = store.parse() else { return Ok(()) };
    match stayput_stores::lock_file(&path) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ServeError::Taken { path }),
        Err(error) => Err(ServeError::Data { path, error }),
    }
}

/// Holder id of this gateway, stored in the data folder. It is the same after each restart, so that the sessions of an
/// earlier process are available at once. The lock ensures that no other process uses the same id.
pub(crate) struct InstanceLock {
    pub(crate) holder: Holder,
    _lock: fs::File,
}

impl InstanceLock {
    pub(crate) fn take(data: &Path) -> Result<Self, ServeError> {
        let failed = |error| ServeError::Data { path: data.to_owned(), error };
        prepare(data).map_err(failed)?;
        let path = data.join(FILE);
        let mut lock = lockable(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(ServeError::Taken { path: data.to_owned() });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let kept = fs::read_to_string(&path).map_err(failed)?;
        let id = match kept.trim().parse::<HolderId>() {
            Ok(id) => id,
            Err(_) => {
                let id = HolderId::generate();
                lock.set_len(0).map_err(failed)?;
                lock.write_all(id.to_string().as_bytes()).map_err(failed)?;
                id
            }
        };
        Ok(Self { holder: Holder { id, address: String::new() }, _lock: lock })
    }
}
