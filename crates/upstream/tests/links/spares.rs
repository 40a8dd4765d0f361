//! Spares: processes that are started in advance.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use stayput_process::Processes;
use stayput_upstream::{
    CallOptions, Isolation, Limits, LinkSettings, Links, LossReason, Options, PerOwner, Server,
    SessionDirs, SpareOptions,
};
use tokio::runtime::Handle;

use crate::support::{
    alive, call, close, kill, links, links_with, none_alive, open, params, place, place_of, quick,
    server_with, stdio, token, try_open, until,
};

fn warm(count: usize) -> Options {
    Options { warm: SpareOptions { count, ..SpareOptions::default() }, ..quick() }
}

/// Server with `count` spares. All its processes log their messages to one file.
fn spared(count: usize, token: &str, log: &Path) -> Server {
    let stdio = stdio(&["--log", log.to_str().unwrap()]).env("TOKEN", token);
    server_with(stdio, warm(count))
}

/// Links whose private directories are below the returned root.
fn directories() -> (Links, tempfile::TempDir, String) {
    let root = tempfile::tempdir().unwrap();
    let processes = Processes::local(Handle::current());
    let settings = LinkSettings::new(processes, SessionDirs::new(root.path()).unwrap());
    (Links::new(settings, Handle::current()), root, token())
}

/// Path in an environment variable of a process.
fn environment(pid: u32, name: &str) -> PathBuf {
    let all = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let prefix = format!("{name}=");
    all.split('\0').find_map(|it| it.strip_prefix(&prefix)).unwrap().into()
}

async fn ready(links: &Links, token: &str, count: usize) {
    until("the spares are there", || {
        alive(token).len() == count && links.used().processes == count
    })
    .await;
}

/// A spare gets no message before it is taken. It is taken once, and replaced.
#[tokio::test]
async fn spare_gets_no_message_and_serves_one_session() {
    let (links, folder, token) = (links(), tempfile::tempdir().unwrap(), token());
    let log = folder.path().join("log");
    let server = spared(2, &token, &log);
    links.warm(&server);
    links.warm(&server);
    ready(&links, &token, 2).await;
    until("they run", || log.exists()).await;
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "");
    let spares = alive(&token);
    let mut used = Vec::new();
    for n in 1..=3 {
        let link = open(&links, &server, &place()).await;
        assert_eq!(call(&link, "count", "{}").await, "1", "a session has the state of another");
        used.push(call(&link, "pid", "{}").await.parse::<u32>().unwrap());
        ready(&links, &token, 2 + n).await;
    }
    assert!(used.iter().any(|pid| spares.contains(pid)), "{used:?} {spares:?}");
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 3);
    close(&links).await;
    assert!(alive(&token).is_empty());
}

/// A dead or old spare is replaced, not used.
#[tokio::test]
async fn dead_or_old_spare_is_replaced() {
    let (links, token) = (links(), token());
    let max_age = Duration::from_millis(600);
    let options = Options { warm: SpareOptions { count: 1, max_age }, ..quick() };
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), options);
    links.warm(&server);
    ready(&links, &token, 1).await;
    let first = alive(&token);
    kill(&token);
    let link = open(&links, &server, &place()).await;
    let pid: u32 = call(&link, "pid", "{}").await.parse().unwrap();
    assert!(!first.contains(&pid), "a dead one was used");
    ready(&links, &token, 2).await;
    let second: Vec<u32> = alive(&token).into_iter().filter(|it| *it != pid).collect();
    until("it is replaced", || {
        let now = alive(&token);
        now.len() == 2 && !now.contains(&second[0])
    })
    .await;
    assert_eq!(call(&link, "count", "{}").await, "1");
    drop(link);
    close(&links).await;
    assert!(alive(&token).is_empty());
}

/// A server whose values depend on session or owner cannot have spares, because a spare is started before they are
/// known. A server behind a URL has no processes.
#[test]
fn server_that_cannot_have_spares_is_refused() {
    for value in ["${session.hash}", "${owner.dir}", "${owner.hash}"] {
        let refused = Server::with("test", stdio(&[]).env("OF", value), warm(1)).unwrap_err();
        let sentence = refused.to_string();
        assert!(sentence.contains(value) && sentence.contains("remove `warm`"), "{sentence}");
    }
    let url = stayput_upstream::Http::new("http://127.0.0.1:9/mcp");
    let sentence = Server::with("test", url.clone(), warm(1)).unwrap_err().to_string();
    assert!(sentence.contains("reached by a URL; remove `warm`"), "{sentence}");
    assert!(Server::with("test", url, quick()).unwrap().warmed(1).is_err());
}

/// The directory of a spare becomes that of the session that takes it: the path of the process stays valid, the next
/// process of the session finds the same files, and the end of the session removes them.
#[tokio::test]
async fn directory_of_a_spare_becomes_that_of_its_session() {
    let (links, root, token) = directories();
    let stdio = stdio(&[]).env("TOKEN", token.as_str()).env("DIR", "${session.dir}");
    let server = server_with(stdio, warm(1));
    links.warm(&server);
    until("a spare is there", || links.spares().len() == 1).await;
    let spare = links.spares()[0].pid.unwrap();
    let dir = environment(spare, "DIR");
    let ann = place();
    let link = open(&links, &server, &ann).await;
    assert_eq!(call(&link, "pid", "{}").await, spare.to_string(), "the spare was not taken");
    std::fs::write(dir.join("file"), "of ann").unwrap();
    until("another spare is there", || links.spares().len() == 1).await;
    let other = links.spares()[0].pid.unwrap();
    assert_ne!(environment(other, "DIR"), dir, "two processes have one folder");
    // The next process of the session has the files of the session, so it is not the spare.
    links.restart(&server, &ann, LossReason::Evicted).await;
    drop(link);
    let link = open(&links, &server, &ann).await;
    let pid: u32 = call(&link, "pid", "{}").await.parse().unwrap();
    assert_ne!(pid, other);
    assert_eq!(std::fs::read_to_string(environment(pid, "DIR").join("file")).unwrap(), "of ann");
    drop(link);
    assert!(links.end(ann.session).await.is_empty());
    assert!(!dir.exists(), "the files stay");
    close(&links).await;
    none_alive(&token).await;
    until("the folder of the spare is gone", || {
        std::fs::read_dir(root.path().join("spares")).unwrap().next().is_none()
    })
    .await;
}

/// A sweep of another process removes the directory of a spare whose session has ended, but not those of live sessions and
/// of spares that wait.
#[tokio::test]
async fn sweep_removes_directories_of_spares_whose_session_ended() {
    let (links, root, token) = directories();
    let stdio = stdio(&[]).env("TOKEN", token.as_str()).env("DIR", "${session.dir}");
    let server = server_with(stdio, warm(1));
    links.warm(&server);
    until("a spare is there", || links.spares().len() == 1).await;
    let (ann, bob) = (place(), place());
    let mut dirs = Vec::new();
    for place in [&ann, &bob] {
        let link = open(&links, &server, place).await;
        let pid: u32 = call(&link, "pid", "{}").await.parse().unwrap();
        dirs.push(environment(pid, "DIR"));
        until("another spare is there", || links.spares().len() == 1).await;
    }
    let unused = environment(links.spares()[0].pid.unwrap(), "DIR");
    let (live, other) = (ann.session, SessionDirs::new(root.path()).unwrap());
    let kept = other.sweep(move |session| async move { session == live }).await;
    assert!(kept.is_empty(), "{kept}");
    assert!(dirs[0].exists(), "a live session lost its files");
    assert!(!dirs[1].exists(), "files of an ended session are left");
    assert!(unused.exists(), "a spare of a live process lost its files");
    close(&links).await;
}

/// A changed number of spares takes effect at once, also if everything else is as before.
#[tokio::test]
async fn number_of_spares_can_change() {
    let (links, token) = (links(), token());
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), warm(1));
    for count in [1, 3, 2, 0] {
        links.warm(&server.warmed(count).unwrap());
        ready(&links, &token, count).await;
        // A process runs before it is listed.
        until("the spares are listed", || links.spares().len() == count).await;
    }
    close(&links).await;
}

/// Spares count, and are evicted before any link.
#[tokio::test]
async fn spare_is_evicted_before_a_link() {
    let token = token();
    let links = links_with(Limits { processes: 2, ..Limits::default() });
    let warmed = server_with(stdio(&[]).env("TOKEN", token.as_str()), warm(5));
    let (other, ann) = (server_with(stdio(&["--page", "2"]), quick()), place());
    let first = open(&links, &other, &ann).await;
    call(&first, "count", "{}").await;
    drop(first);
    links.warm(&warmed);
    until("the rest of the room is taken", || links.spares().len() == 1).await;
    assert_eq!((alive(&token).len(), links.used().processes), (1, 2));
    let second = open(&links, &other, &place()).await;
    assert_eq!(call(&second, "count", "{}").await, "1");
    assert!(alive(&token).is_empty());
    let first = open(&links, &other, &ann).await;
    assert_eq!(call(&first, "count", "{}").await, "2", "it had to go for a spare");
    drop((first, second));
    close(&links).await;
}

/// A spare that is still starting is evicted before an idle link.
#[tokio::test]
async fn starting_spare_is_evicted_before_a_link() {
    let token = token();
    for round in 0..10 {
        let links = links_with(Limits { processes: 2, ..Limits::default() });
        let warmed = server_with(stdio(&[]).env("TOKEN", token.as_str()), warm(1));
        let (other, ann) = (server_with(stdio(&["--page", "2"]), quick()), place());
        let first = open(&links, &other, &ann).await;
        call(&first, "count", "{}").await;
        drop(first);
        links.warm(&warmed);
        // A spare takes its place before it has a process.
        while links.used().processes < 2 {
            tokio::task::yield_now().await;
        }
        let second = open(&links, &other, &place()).await;
        assert_eq!(call(&second, "count", "{}").await, "1");
        let first = open(&links, &other, &ann).await;
        let counted = call(&first, "count", "{}").await;
        assert_eq!(counted, "2", "in round {round} it had to go for a spare");
        drop((first, second));
        close(&links).await;
        assert!(alive(&token).is_empty());
    }
}

/// A spare whose place is needed while it starts is ended as soon as it has started.
#[tokio::test]
async fn starting_spare_frees_its_place() {
    let token = token();
    for _ in 0..10 {
        let links = links_with(Limits { processes: 1, ..Limits::default() });
        let warmed = server_with(stdio(&[]).env("TOKEN", token.as_str()), warm(1));
        links.warm(&warmed);
        tokio::task::yield_now().await;
        let other = server_with(stdio(&["--page", "2"]), quick());
        let link = open(&links, &other, &place()).await;
        assert_eq!(call(&link, "count", "{}").await, "1");
        drop(link);
        close(&links).await;
        assert!(alive(&token).is_empty());
    }
}

/// An owner at its cap gets no spare, and no more spares are started.
#[tokio::test]
async fn owner_at_its_cap_gets_no_spare() {
    let token = token();
    let per_owner = PerOwner { processes: 1, ..PerOwner::default() };
    let wait = Duration::from_millis(200);
    let links = links_with(Limits { per_owner, wait, ..Limits::default() });
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), warm(1));
    links.warm(&server);
    ready(&links, &token, 1).await;
    let link = open(&links, &server, &place_of("ann")).await;
    let slow = params("slow", r#"{"ms":60000}"#);
    let slow = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    ready(&links, &token, 2).await;
    for _ in 0..3 {
        assert!(try_open(&links, &server, &place_of("ann")).await.is_err());
    }
    assert_eq!((alive(&token).len(), links.used().processes), (2, 2));
    drop((slow, link));
    close(&links).await;
}

/// E27: a changed configuration ends the old spares. The same configuration again starts new ones.
#[tokio::test]
async fn spares_end_with_their_configuration() {
    let (links, token) = (links(), token());
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), warm(2));
    for _ in 0..20 {
        // They may be ready or still starting.
        links.warm(&server);
        tokio::task::yield_now().await;
        links.reconfigure("test", None).await;
    }
    links.warm(&server);
    ready(&links, &token, 2).await;
    links.reconfigure("test", None).await;
    none_alive(&token).await;
    until("their places are free", || links.used().links == 0).await;
    close(&links).await;
}

/// After the close no spare is left, whatever its state was.
#[tokio::test]
async fn starting_spares_are_gone_after_the_close() {
    let token = token();
    for turns in 0..12 {
        let links = links();
        let isolation = Some(Isolation::PerSession);
        let options = Options { isolation, ..warm(3) };
        links.warm(&server_with(stdio(&[]).env("TOKEN", token.as_str()), options));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(turns)).await;
        close(&links).await;
        assert!(alive(&token).is_empty(), "after {turns} turns");
    }
}
