//! Tests of private directories on a real disk.

use std::{
    fs,
    future::ready,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
};

use stayput_core::{Owner, Timestamp};

use super::*;
use crate::server::Stdio;

fn session(branch: u64) -> (SessionId, Scope) {
    let session = SessionId::generate(Timestamp::from_millis(1));
    (session, Scope::Session { owner: Owner::local(), session, branch })
}

fn folders() -> (tempfile::TempDir, SessionDirs) {
    let parent = tempfile::tempdir().unwrap();
    let folders = SessionDirs::new(&parent.path().join("a/root")).unwrap();
    (parent, folders)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn every_directory_has_mode_0700() {
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
fn servers_branches_sessions_and_owners_have_distinct_directories() {
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
        folders.session_dir(&ann, "x").is_err() && folders.owner_dir(&Scope::Shared, "x").is_err()
    );
}

#[test]
fn symlink_or_file_at_the_path_is_refused() {
    let (parent, folders) = folders();
    let (id, scope) = session(0);
    let made = folders.session_dir(&scope, "x").unwrap();
    fs::remove_dir(&made).unwrap();
    symlink(parent.path(), &made).unwrap();
    let error = folders.session_dir(&scope, "x").unwrap_err();
    assert!(matches!(error, SessionDirError::Refused { .. }), "{error}");
    fs::remove_file(&made).unwrap();
    fs::write(&made, "").unwrap();
    assert!(matches!(folders.session_dir(&scope, "x"), Err(SessionDirError::Refused { .. })));

    let above = folders.sessions().join(id.to_string());
    fs::remove_dir_all(&above).unwrap();
    symlink(parent.path(), &above).unwrap();
    assert!(matches!(folders.session_dir(&scope, "x"), Err(SessionDirError::Refused { .. })));
    let other = SessionDirs::new(&above).unwrap();
    assert!(matches!(other.session_dir(&scope, "x"), Err(SessionDirError::Refused { .. })));
}

#[test]
fn root_writable_by_others_is_refused() {
    let (_parent, folders) = folders();
    let (_, scope) = session(0);
    folders.session_dir(&scope, "x").unwrap();
    fs::set_permissions(folders.root(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(folders.session_dir(&scope, "x"), Err(SessionDirError::Refused { .. })));
    fs::set_permissions(folders.root(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(folders.session_dir(&scope, "x").is_ok());
}

/// Only root can change the owner of a directory; for other users the test does nothing.
#[test]
fn directory_of_another_user_is_refused() {
    let (_parent, folders) = folders();
    let (_, scope) = session(0);
    let made = folders.session_dir(&scope, "x").unwrap();
    if std::os::unix::fs::chown(&made, Some(12_345), None).is_ok() {
        let error = folders.session_dir(&scope, "x").unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
    }
}

#[tokio::test]
async fn ended_session_removes_only_its_own_directories() {
    let (_parent, folders) = folders();
    let ((id, one), (_, two)) = (session(0), session(0));
    let gone = folders.session_dir(&one, "x").unwrap();
    let stays = [folders.session_dir(&two, "x").unwrap(), folders.owner_dir(&one, "x").unwrap()];
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

/// Invariant 6: a dropped removal continues, and does not affect a session that starts after it.
#[tokio::test]
async fn dropped_removal_keeps_directories_created_after_it() {
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
    assert!(folders.sweep(|_| ready(true)).await.is_empty());
    assert_eq!(fs::read_to_string(revived.join("f")).unwrap(), "new");
    assert_eq!(fs::read_dir(folders.root().join(TRASH)).unwrap().count(), 0);
}

#[tokio::test]
async fn sweep_removes_directories_of_dead_sessions() {
    let (_parent, folders) = folders();
    assert!(folders.sweep(|_| ready(false)).await.is_empty(), "there is nothing yet");
    let ((live, one), (_, two)) = (session(0), session(0));
    let (stays, gone) =
        (folders.session_dir(&one, "x").unwrap(), folders.session_dir(&two, "x").unwrap());
    let foreign = folders.sessions().join("readme");
    fs::write(&foreign, "").unwrap();
    let sweep = folders.sweep(|session| ready(session == live));
    let (_, three) = session(0);
    let later = folders.session_dir(&three, "x").unwrap();
    assert!(sweep.await.is_empty());
    assert!(stays.exists() && foreign.exists() && !gone.exists());
    assert!(later.exists(), "it was created after the start of the sweep");
}

#[tokio::test]
async fn expansion_creates_only_directories_that_the_server_uses() {
    let folders = SessionDirs::temporary().unwrap();
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

/// A sweep removes directories of spares that no process has, and no others: several processes may have one root.
#[tokio::test]
async fn sweep_keeps_spares_of_other_processes() {
    let (_parent, folders) = folders();
    let other = SessionDirs::new(folders.root()).unwrap();
    let spare = folders.spare_dir("notes").unwrap();
    let (left, _) = session(0);
    let left = folders.make(&[SPARES, &left.to_string(), "notes"]).unwrap();
    assert!(other.sweep(|_| ready(false)).await.is_empty());
    assert!(spare.path().is_dir(), "a live process has lost its directory");
    assert!(!left.exists(), "a directory of a dead process is left");
    let (_, scope) = session(0);
    let path = spare.path().to_owned();
    spare.adopt(&scope).unwrap();
    assert_eq!(other.session_dir(&scope, "notes").unwrap(), path);
}
