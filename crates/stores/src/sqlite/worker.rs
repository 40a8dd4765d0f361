//! A connection on a thread of its own.

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode};
use stayput_core::StoreError;
use tokio::sync::oneshot;

use super::{STORE, fault};
use crate::failure::unavailable;

/// How long SQLite waits for another process that writes to the same file.
const BUSY: Duration = Duration::from_secs(5);

/// How many writes share one transaction, and so one sync of the disk.
const BATCH: usize = 128;

/// Work for the thread.
trait Job: Send {
    /// Does it. The answer is kept back until the changes are durable.
    fn run(self: Box<Self>, connection: &Connection) -> Done;

    /// Answers without having done it.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct Work<F, T> {
    work: F,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

/// Work that was done but not answered yet.
struct Done {
    /// Whether its changes are to be kept.
    keep: bool,
    answer: Box<dyn FnOnce(Result<(), StoreError>)>,
}

impl<F, T> Job for Work<F, T>
where
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
    T: Send + 'static,
{
    fn run(self: Box<Self>, connection: &Connection) -> Done {
        let Self { work, answer } = *self;
        let result = work(connection);
        let keep = result.is_ok();
        // Who asked may have gone meanwhile.
        let answer = move |kept: Result<(), _>| drop(answer.send(kept.and(result)));
        Done { keep, answer: Box::new(answer) }
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        drop(self.answer.send(Err(error)));
    }
}

/// Whether a lane changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A thread with a connection, and the queue to it. The thread ends when the lane is dropped.
#[derive(Debug)]
pub(super) struct Lane(Sender<Box<dyn Job>>);

impl Lane {
    /// A lane on a connection.
    pub(super) fn new(connection: Connection, kind: Kind) -> std::io::Result<Self> {
        let (queue, jobs) = channel();
        let run = move || match kind {
            Kind::Read => read(&connection, &jobs),
            Kind::Write => write(&connection, &jobs),
        };
        thread::Builder::new().name(format!("stayput-sqlite-{kind:?}")).spawn(run)?;
        Ok(Self(queue))
    }

    /// Does `work` on the lane's thread. It is in the queue when this returns its future, and is done
    /// also if the future is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let gone = || unavailable(STORE, "the thread of the store has ended");
        self.0.send(Box::new(Work { work, answer })).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn read(connection: &Connection, jobs: &Receiver<Box<dyn Job>>) {
    while let Ok(job) = jobs.recv() {
        (job.run(connection).answer)(Ok(()));
    }
}

/// Does what is waiting in one transaction: whoever comes while the disk syncs shares the next sync.
fn write(connection: &Connection, jobs: &Receiver<Box<dyn Job>>) {
    while let Ok(first) = jobs.recv() {
        let waiting = jobs.try_iter().take(BATCH - 1);
        let batch: Vec<_> = std::iter::once(first).chain(waiting).collect();
        if let Err(error) = run(connection, "begin immediate") {
            for job in batch {
                job.refuse(unavailable(STORE, error.to_string()));
            }
            continue;
        }
        let done = work(connection, batch);
        let kept = end(connection, done.iter().any(|done| done.keep));
        for done in done {
            (done.answer)(kept.clone().map_err(|said| unavailable(STORE, said)));
        }
    }
}

/// Does all of a batch. What is alone needs no savepoint: it is undone with its transaction.
fn work(connection: &Connection, batch: Vec<Box<dyn Job>>) -> Vec<Done> {
    let alone = batch.len() == 1;
    let each =
        |job: Box<dyn Job>| if alone { job.run(connection) } else { savepoint(connection, job) };
    batch.into_iter().map(each).collect()
}

/// Ends a transaction in which something is to be kept, or nothing. If it cannot be kept, then what others in it have
/// seen was never true, and they are told so, too.
fn end(connection: &Connection, keep: bool) -> Result<(), String> {
    let kept =
        if keep { run(connection, "commit").map_err(|error| error.to_string()) } else { Ok(()) };
    if !keep || kept.is_err() {
        let _ = run(connection, "rollback");
    }
    kept
}

/// Runs a statement that is kept for the next time.
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// One job inside the transaction: if it fails, its changes alone are undone.
fn savepoint(connection: &Connection, job: Box<dyn Job>) -> Done {
    let begun = run(connection, "savepoint job");
    let done = job.run(connection);
    let ended = match done.keep {
        true => run(connection, "release job"),
        false => run(connection, "rollback to job").and_then(|()| run(connection, "release job")),
    };
    match begun.and(ended) {
        Ok(()) => done,
        Err(error) => {
            let said = error.to_string();
            let answer = move |_| (done.answer)(Err(unavailable(STORE, said)));
            Done { keep: false, answer: Box::new(answer) }
        }
    }
}

/// Connections for short looks, used where they are asked for.
///
/// A row whose pages are in memory is read in less time than a hop to a thread and back takes. Nobody
/// waits here: if all connections are in use, or the file is locked, the look is left to a lane.
#[derive(Debug)]
pub(super) struct Near([Mutex<Connection>; 4]);

impl Near {
    /// Opens the connections.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let connect = || {
            let connection = connect(path)?;
            connection.busy_timeout(Duration::ZERO).map_err(fault)?;
            Ok::<_, StoreError>(Mutex::new(connection))
        };
        Ok(Self([connect()?, connect()?, connect()?, connect()?]))
    }

    /// What `look` sees, unless that would have to be waited for.
    pub(super) fn look<T>(
        &self,
        look: impl Fn(&Connection) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        let free = self.0.iter().find_map(|connection| connection.try_lock().ok())?;
        match look(&free) {
            Err(StoreError::Unavailable { .. }) => None,
            seen => Some(seen),
        }
    }
}

/// Opens a connection that waits for other writers, syncs before it answers, and heeds references.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path).map_err(fault)?;
    connection.busy_timeout(BUSY).map_err(fault)?;
    let set = |name, value: &str| connection.pragma_update(None, name, value);
    let ready = set("synchronous", "full").and_then(|()| set("foreign_keys", "on"));
    ready.map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Puts a file into WAL mode, where it stays. Of several processes that do this to a new file at once
/// SQLite tells some that it is locked without waiting, so the waiting is done here.
pub(super) fn use_wal(connection: &Connection) -> Result<(), StoreError> {
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if failure.code == ErrorCode::DatabaseBusy && waited < BUSY =>
            {
                thread::sleep(step);
                waited += step;
            }
            done => return done.map_err(fault),
        }
    }
}

/// Creates the file for its owner alone, and the folders above it, unless they are there.
pub(super) fn create(path: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // SQLite gives its -wal and -shm files the mode of the main file.
    let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        // It was there before, open to others; what goes into it now is not for them.
        file.set_permissions(std::fs::Permissions::from_mode(mode & 0o700))?;
    }
    path.canonicalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of two jobs that share a transaction: both are asked for while the thread is busy with another one.
    async fn together<A, B>(
        lane: &Lane,
        one: impl Future<Output = A>,
        other: impl Future<Output = B>,
    ) -> (A, B) {
        let ((started, running), (go, wait)) = (oneshot::channel(), channel::<()>());
        let busy = lane.run(move |_| {
            let _ = started.send(());
            let _ = wait.recv();
            Ok(())
        });
        let both = async {
            running.await.unwrap();
            tokio::join!(one, other, async { go.send(()).unwrap() })
        };
        let (_, (one, other, ())) = tokio::join!(busy, both);
        (one, other)
    }

    /// Who saw what was not kept in the end is not told of it as if it were true.
    #[tokio::test]
    async fn what_was_seen_of_others_counts_only_if_they_are_kept() {
        let db = Connection::open_in_memory().unwrap();
        let tables = "pragma foreign_keys = on;
            create table parent (id integer primary key);
            create table child (parent integer references parent deferrable initially deferred)";
        db.execute_batch(tables).unwrap();
        let lane = Lane::new(db, Kind::Write).unwrap();
        // Fails when the transaction ends, and not before.
        let orphan =
            lane.run(|db| db.execute("insert into child values (7)", []).map(drop).map_err(fault));
        let look = lane.run(|db| {
            let seen = db.query_row("select count(*) from child", [], |row| row.get::<_, i64>(0));
            if seen.map_err(fault)? > 0 { Err(StoreError::Missing) } else { Ok(()) }
        });
        let (orphan, look) = together(&lane, orphan, look).await;
        assert!(matches!(orphan, Err(StoreError::Unavailable { .. })), "{orphan:?}");
        assert!(matches!(look, Err(StoreError::Unavailable { .. })), "{look:?}");
        assert!(lane.run(|_| Ok(())).await.is_ok(), "the next one is as if nothing had been");
    }

    /// What fails leaves nothing behind and says why, alone or in one transaction with others; what is beside it stays.
    #[tokio::test]
    async fn what_fails_is_undone_alone() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("create table note (text text)").unwrap();
        let lane = Lane::new(db, Kind::Write).unwrap();
        let add = |text: &'static str, fails: bool| {
            lane.run(move |db| {
                db.execute("insert into note values (?1)", [text]).map_err(fault)?;
                if fails { Err(StoreError::Stale) } else { Ok(()) }
            })
        };
        assert!(matches!(add("alone", true).await, Err(StoreError::Stale)));
        add("kept alone", false).await.unwrap();
        let (failed, kept) =
            together(&lane, add("with others", true), add("kept with others", false)).await;
        assert!(matches!(failed, Err(StoreError::Stale)));
        kept.unwrap();
        let all = lane.run(|db| {
            let mut all = db.prepare("select text from note").map_err(fault)?;
            let all = all.query_map([], |row| row.get::<_, String>(0)).map_err(fault)?;
            all.collect::<Result<Vec<_>, _>>().map_err(fault)
        });
        assert_eq!(all.await.unwrap(), ["kept alone", "kept with others"]);
    }
}
