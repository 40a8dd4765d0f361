//! Folders for one user alone.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, fchmod, fstat, mkdirat, openat},
    io::Errno,
    process::geteuid,
};

use super::FolderError;

/// The folder `names` below `root`, one inside the other, each made if it is not there.
///
/// Each is opened from the one before it and never through a symbolic link, so what was checked is
/// what is used.
pub(super) fn make(root: &Path, names: &[&str]) -> Result<PathBuf, FolderError> {
    if let Some(parent) = root.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(|problem| failed(parent, problem))?;
    }
    let mut path = root.to_owned();
    let mut folder = enter(CWD, root, root)?;
    guard_root(&folder, root)?;
    for name in names {
        path.push(name);
        folder = enter(&folder, Path::new(name), &path)?;
        make_private(&folder, &path)?;
    }
    Ok(path)
}

/// Opens the folder `name` inside `parent`, made if it is not there.
fn enter(parent: impl rustix::fd::AsFd, name: &Path, path: &Path) -> Result<OwnedFd, FolderError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(path, errno)),
    }
    match openat(&parent, name, flags, Mode::empty()) {
        Ok(folder) => Ok(folder),
        // A link looks like one or the other, depending on the system.
        Err(Errno::LOOP | Errno::MLINK | Errno::NOTDIR) => {
            Err(refused(path, "a symbolic link or a file"))
        }
        Err(errno) => Err(failed(path, errno)),
    }
}

/// The root can have been made by an administrator, for us to use. Nobody else may put things there.
fn guard_root(root: &OwnedFd, path: &Path) -> Result<(), FolderError> {
    let stat = fstat(root).map_err(|errno| failed(path, errno))?;
    let (owner, mode) = (stat.st_uid, Mode::from_raw_mode(stat.st_mode));
    if owner != geteuid().as_raw() && owner != 0 {
        return Err(refused(path, "a folder of another user"));
    }
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        return Err(refused(path, "a folder that other users can write to"));
    }
    Ok(())
}

fn make_private(folder: &OwnedFd, path: &Path) -> Result<(), FolderError> {
    let stat = fstat(folder).map_err(|errno| failed(path, errno))?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(refused(path, "a folder of another user"));
    }
    // A process with an odd mask of permissions made it, or somebody opened it up.
    if Mode::from_raw_mode(stat.st_mode) != Mode::RWXU {
        fchmod(folder, Mode::RWXU).map_err(|errno| failed(path, errno))?;
    }
    Ok(())
}

fn refused(path: &Path, problem: &'static str) -> FolderError {
    FolderError::Refused { path: path.to_owned(), problem }
}

pub(super) fn failed(path: &Path, problem: impl Into<io::Error>) -> FolderError {
    FolderError::Io { path: path.to_owned(), problem: problem.into() }
}
