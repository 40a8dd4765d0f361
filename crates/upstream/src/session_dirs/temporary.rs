//! Roots in the directory for temporary files. Each has a lock, which says whether its process lives.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

use super::remove;

/// Start of the names of all temporary roots; 16 hexadecimal digits follow.
const PREFIX: &str = "stayput-";

/// File in a root that its process has locked. The lock is gone when the process is, also in another pid
/// namespace.
const LOCK: &str = "lock";

/// Returns the path of a new root.
pub(super) fn new_path() -> io::Result<PathBuf> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let name = format!("{PREFIX}{:016x}", u64::from_be_bytes(bytes));
    std::path::absolute(std::env::temp_dir().join(name))
}

/// Locks an existing root until the file is closed.
pub(super) fn lock(root: &Path) -> io::Result<File> {
    // Locked before it has its name, so that no other process can lock it first.
    let unnamed = root.join("lock.new");
    let file = File::create(&unnamed)?;
    file.lock()?;
    fs::rename(unnamed, root.join(LOCK))?;
    Ok(file)
}

/// Returns the roots of this user whose process is dead.
pub(super) fn dead_roots() -> Vec<PathBuf> {
    let mut roots = remove::list(&std::env::temp_dir());
    roots.retain(|root| is_root(root) && is_dead(root));
    roots
}

fn is_root(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    let named = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let own = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
    named && path.symlink_metadata().is_ok_and(own)
}

/// A root without a lock is just being created.
fn is_dead(root: &Path) -> bool {
    File::open(root.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_dead_when_its_lock_is_free() {
        let root = new_path().unwrap();
        fs::create_dir(&root).unwrap();
        assert!(is_root(&root) && !is_dead(&root), "it has no lock yet");
        let locked = lock(&root).unwrap();
        assert!(!is_dead(&root));
        drop(locked);
        assert!(is_dead(&root));
        fs::remove_dir_all(&root).unwrap();
        assert!(!is_root(&root) && !is_root(&std::env::temp_dir()));
    }
}
