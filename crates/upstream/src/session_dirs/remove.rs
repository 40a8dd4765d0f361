//! Removal of directories, whatever a server did to them.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Paths that could not be removed, and the errors. They stay in the trash until the next sweep.
#[derive(Debug, Default)]
#[must_use]
pub struct UnremovedPaths(Vec<(PathBuf, io::Error)>);

impl UnremovedPaths {
    pub(super) fn new(path: PathBuf, problem: io::Error) -> Self {
        Self(vec![(path, problem)])
    }

    pub(super) fn add(&mut self, path: PathBuf, problem: io::Error) {
        self.0.push((path, problem));
    }

    pub(super) fn join(mut self, mut other: Self) -> Self {
        self.0.append(&mut other.0);
        self
    }

    /// Whether everything was removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remaining paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }
}

impl fmt::Display for UnremovedPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => f.write_str("everything was removed"),
            [(path, problem), more @ ..] => {
                write!(f, "{} could not be removed: {problem}", path.display())?;
                if more.is_empty() { Ok(()) } else { write!(f, " (and {} more)", more.len()) }
            }
        }
    }
}

/// Lists the entries of `folder`. Empty if it does not exist. Blocks.
pub(super) fn list(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// Same as [`list`], on a blocking thread.
pub(super) async fn entries(folder: PathBuf) -> Vec<PathBuf> {
    tokio::task::spawn_blocking(move || list(&folder)).await.unwrap_or_default()
}

/// Removes `folders` on a blocking thread. Continues if the future is dropped.
pub(super) async fn in_background(folders: Vec<PathBuf>) -> UnremovedPaths {
    if folders.is_empty() {
        return UnremovedPaths::default();
    }
    let first = folders[0].clone();
    let all = move || {
        let kept = folders.into_iter().filter_map(|path| remove(&path).err().map(|e| (path, e)));
        UnremovedPaths(kept.collect())
    };
    let stopped = |error| UnremovedPaths::new(first, io::Error::other(error));
    tokio::task::spawn_blocking(all).await.unwrap_or_else(stopped)
}

/// Removes `folder`, as far as possible.
pub(super) fn now(folder: &Path) {
    let _ = remove(folder);
}

/// Attempts to remove a directory: a process that is about to exit may still write into it.
const REMOVE_ATTEMPTS: usize = 3;

fn remove(folder: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..REMOVE_ATTEMPTS {
        last = match fs::remove_dir_all(folder) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        if last.is_ok() {
            break;
        }
        // Package caches are often read-only.
        open_up(folder);
    }
    last
}

/// Makes every directory below `top` writable, without following symbolic links.
fn open_up(top: &Path) {
    let is_folder = top.symlink_metadata().is_ok_and(|found| found.is_dir());
    let mut folders = if is_folder { vec![top.to_owned()] } else { Vec::new() };
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
}
