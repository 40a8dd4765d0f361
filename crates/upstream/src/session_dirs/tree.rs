//! Creation of directories that only the user can access.

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

use super::SessionDirError;

/// Creates the directories `names` below `root`, one inside the other, if needed.
///
/// Each is opened relative to the file descriptor of its parent and never through a symbolic link, so that
/// the checked directory is the one that is used.
pub(super) fn make(root: &Path, names: &[&str]) -> Result<PathBuf, SessionDirError> {
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

/// Opens the directory `name` inside `parent`, and creates it if needed.
fn enter(
    parent: impl rustix::fd::AsFd,
    name: &Path,
    path: &Path,
) -> Result<OwnedFd, SessionDirError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(path, errno)),
    }
    match openat(&parent, name, flags, Mode::empty()) {
        Ok(folder) => Ok(folder),
        // The error for a symbolic link depends on the operating system.
        Err(Errno::LOOP | Errno::MLINK | Errno::NOTDIR) => {
            Err(refused(path, "a symbolic link or a file"))
        }
        Err(errno) => Err(failed(path, errno)),
    }
}

/// Checks the root. An administrator may have created it for this user, but no other user may write to it.
fn guard_root(root: &OwnedFd, path: &Path) -> Result<(), SessionDirError> {
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

fn make_private(folder: &OwnedFd, path: &Path) -> Result<(), SessionDirError> {
    let stat = fstat(folder).map_err(|errno| failed(path, errno))?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(refused(path, "a folder of another user"));
    }
    // It was created with an unusual umask, or its mode was changed.
    if Mode::from_raw_mode(stat.st_mode) != Mode::RWXU {
        fchmod(folder, Mode::RWXU).map_err(|errno| failed(path, errno))?;
    }
    Ok(())
}

fn refused(path: &Path, problem: &'static str) -> SessionDirError {
    SessionDirError::Refused { path: path.to_owned(), problem }
}

pub(super) fn failed(path: &Path, problem: impl Into<io::Error>) -> SessionDirError {
    SessionDirError::Io { path: path.to_owned(), problem: problem.into() }
}
