//! SQLite connections on threads of their own.

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode};
use stayput_core::{Outage, StoreError};
use stayput_sync::Mutex;
use tokio::sync::oneshot;

use super::{STORE, fault, file::DatabaseFile};
use crate::error::unavailable;

/// Time for which SQLite waits for another process that writes to the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum writes in one transaction, and so in one sync of the disk.
const MAX_BATCH: usize = 128;

/// Job for the worker thread.
trait Job: Send {
    /// Runs the job. The answer is held back until the changes are durable.
    fn run(self: Box<Self>, connection: &Connection) -> FinishedJob;

    /// Answers with an error without running the job.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct QueuedJob<F, T> {
    work: F,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

/// Job that has run and was not answered yet.
struct FinishedJob {
    /// Whether its changes are committed.
    commit: bool,
    /// Known reason why it failed.
    outage: Option<Outage>,
    answer: Box<dyn FnOnce(Result<(), StoreError>)>,
}

impl<F, T> Job for QueuedJob<F, T>
where
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
    T: Send + 'static,
{
    fn run(self: Box<Self>, connection: &Connection) -> FinishedJob {
        let Self { work, answer } = *self;
        let result = work(connection);
        let commit = result.is_ok();
        let outage = result.as_ref().err().and_then(|error| match error {
            StoreError::Unavailable { source, .. } => source.downcast_ref().copied(),
            _ => None,
        });
        // The caller may be gone meanwhile.
        let answer = move |committed: Result<(), _>| drop(answer.send(committed.and(result)));
        FinishedJob { commit, outage, answer: Box::new(answer) }
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        drop(self.answer.send(Err(error)));
    }
}

/// Kind of a worker.
#[derive(Debug)]
pub(super) enum Mode {
    Read,
    /// Writes, unless the file has an outage.
    Write(Option<Arc<DatabaseFile>>),
}

/// Cause of a failed transaction, for each of its jobs.
#[derive(Clone)]
enum Cause {
    Known(Outage),
    Other(String),
}

impl From<rusqlite::Error> for Cause {
    fn from(error: rusqlite::Error) -> Self {
        super::outage(&error).map_or_else(|| Self::Other(error.to_string()), Self::Known)
    }
}

impl Cause {
    fn into_error(self) -> StoreError {
        match self {
            Self::Known(outage) => unavailable(STORE, outage),
            Self::Other(text) => unavailable(STORE, text),
        }
    }

    fn outage(&self) -> Option<Outage> {
        match self {
            Self::Known(outage) => Some(*outage),
            Self::Other(_) => None,
        }
    }
}

/// Thread with a connection, and the queue to it. The thread ends when the worker is dropped.
#[derive(Debug)]
pub(super) struct Worker(Sender<Box<dyn Job>>);

impl Worker {
    /// Starts a worker on a connection.
    pub(super) fn new(connection: Connection, mode: Mode) -> std::io::Result<Self> {
        let (queue, jobs) = channel();
        let name = if matches!(mode, Mode::Read) { "Read" } else { "Write" };
        let run = move || match mode {
            Mode::Read => run_reads(&connection, &jobs),
            Mode::Write(file) => run_writes(&connection, &jobs, file.as_deref()),
        };
        thread::Builder::new().name(format!("stayput-sqlite-{name}")).spawn(run)?;
        Ok(Self(queue))
    }

    /// Runs `work` on the worker's thread. It runs to its end even if the future is dropped after
    /// its first poll.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let gone = || unavailable(STORE, "the thread of the store has ended");
        self.0.send(Box::new(QueuedJob { work, answer })).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn run_reads(connection: &Connection, jobs: &Receiver<Box<dyn Job>>) {
    while let Ok(job) = jobs.recv() {
        (job.run(connection).answer)(Ok(()));
    }
}

/// Runs all queued jobs in one transaction: jobs that arrive during the sync share the next one.
fn run_writes(connection: &Connection, jobs: &Receiver<Box<dyn Job>>, file: Option<&DatabaseFile>) {
    while let Ok(first) = jobs.recv() {
        let waiting = jobs.try_iter().take(MAX_BATCH - 1);
        let batch: Vec<_> = std::iter::once(first).chain(waiting).collect();
        if let Err(cause) = begin_transaction(connection, file) {
            for job in batch {
                job.refuse(cause.clone().into_error());
            }
            continue;
        }
        let done = run_batch(connection, batch);
        let commit = done.iter().any(|done| done.commit);
        let committed = end_transaction(connection, commit);
        let refused = done.iter().find_map(|done| done.outage);
        let outage = committed.as_ref().err().and_then(Cause::outage).or(refused);
        // A job that was refused for a reason of its own says nothing about the disk.
        if let Some(file) = file
            && (commit || outage.is_some())
        {
            file.wrote(outage);
        }
        for done in done {
            (done.answer)(committed.clone().map_err(Cause::into_error));
        }
    }
}

/// Begins a transaction, unless its changes would be lost with the file.
fn begin_transaction(connection: &Connection, file: Option<&DatabaseFile>) -> Result<(), Cause> {
    file.map_or(Ok(()), DatabaseFile::check).map_err(Cause::Known)?;
    Ok(run(connection, "begin immediate")?)
}

/// Runs all jobs of a batch. A single job needs no savepoint: it is undone with its transaction.
fn run_batch(connection: &Connection, batch: Vec<Box<dyn Job>>) -> Vec<FinishedJob> {
    let single = batch.len() == 1;
    let each = |job: Box<dyn Job>| {
        if single { job.run(connection) } else { run_in_savepoint(connection, job) }
    };
    batch.into_iter().map(each).collect()
}

/// Commits or rolls back a transaction. If the commit fails, the other jobs have read data that
/// never existed, so they get the error, too.
fn end_transaction(connection: &Connection, commit: bool) -> Result<(), Cause> {
    let committed = if commit { run(connection, "commit").map_err(Cause::from) } else { Ok(()) };
    if !commit || committed.is_err() {
        let _ = run(connection, "rollback");
    }
    committed
}

/// Runs a cached statement.
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Runs one job inside the transaction. If it fails, only its own changes are undone.
fn run_in_savepoint(connection: &Connection, job: Box<dyn Job>) -> FinishedJob {
    let begun = run(connection, "savepoint job");
    let done = job.run(connection);
    let ended = match done.commit {
        true => run(connection, "release job"),
        false => run(connection, "rollback to job").and_then(|()| run(connection, "release job")),
    };
    match begun.and(ended) {
        Ok(()) => done,
        Err(error) => {
            let cause = Cause::from(error);
            let outage = cause.outage().or(done.outage);
            let answer = move |_| (done.answer)(Err(cause.into_error()));
            FinishedJob { commit: false, outage, answer: Box::new(answer) }
        }
    }
}

/// Connections for short reads on the caller's thread.
///
/// A row whose pages are in memory is read faster than a thread can be woken. No caller waits here:
/// if all connections are in use, or the file is locked, the read is left to a worker.
#[derive(Debug)]
pub(super) struct ReadConnections([Mutex<Connection>; 4]);

impl ReadConnections {
    /// Opens the connections.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let connect = || {
            let connection = connect(path)?;
            connection.busy_timeout(Duration::ZERO).map_err(fault)?;
            Ok::<_, StoreError>(Mutex::new(connection))
        };
        Ok(Self([connect()?, connect()?, connect()?, connect()?]))
    }

    /// Returns the result of `read`, or `None` if that needs a wait.
    pub(super) fn try_read<T>(
        &self,
        read: impl Fn(&Connection) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        let free = self.0.iter().find_map(|connection| connection.try_lock())?;
        match read(&free) {
            Err(StoreError::Unavailable { .. }) => None,
            result => Some(result),
        }
    }
}

/// Opens a connection that waits for other writers, syncs before it answers, and enforces
/// references.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path).map_err(fault)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fault)?;
    let set = |name, value: &str| connection.pragma_update(None, name, value);
    let ready = set("synchronous", "full").and_then(|()| set("foreign_keys", "on"));
    ready.map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Switches the file to WAL mode, which is persistent. If several processes do this to a new file
/// at once, SQLite returns "busy" to some without waiting, so the wait is done here.
pub(super) fn use_wal(connection: &Connection) -> Result<(), StoreError> {
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if failure.code == ErrorCode::DatabaseBusy && waited < BUSY_TIMEOUT =>
            {
                thread::sleep(step);
                waited += step;
            }
            done => return done.map_err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs two jobs in one transaction: both are queued while the thread is busy with another one.
    async fn run_together<A, B>(
        worker: &Worker,
        one: impl Future<Output = A>,
        other: impl Future<Output = B>,
    ) -> (A, B) {
        let ((started, running), (go, wait)) = (oneshot::channel(), channel::<()>());
        let busy = worker.run(move |_| {
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

    /// A job that has read uncommitted data of another one does not answer with it if the commit
    /// fails.
    #[tokio::test]
    async fn failed_commit_fails_all_jobs_of_the_transaction() {
        let db = Connection::open_in_memory().unwrap();
        let tables = "pragma foreign_keys = on;
            create table parent (id integer primary key);
            create table child (parent integer references parent deferrable initially deferred)";
        db.execute_batch(tables).unwrap();
        let worker = Worker::new(db, Mode::Write(None)).unwrap();
        // Fails at the end of the transaction, and not before.
        let orphan = worker
            .run(|db| db.execute("insert into child values (7)", []).map(drop).map_err(fault));
        let look = worker.run(|db| {
            let seen = db.query_row("select count(*) from child", [], |row| row.get::<_, i64>(0));
            if seen.map_err(fault)? > 0 { Err(StoreError::Missing) } else { Ok(()) }
        });
        let (orphan, look) = run_together(&worker, orphan, look).await;
        assert!(matches!(orphan, Err(StoreError::Unavailable { .. })), "{orphan:?}");
        assert!(matches!(look, Err(StoreError::Unavailable { .. })), "{look:?}");
        assert!(worker.run(|_| Ok(())).await.is_ok(), "the next transaction works");
    }

    /// A failed job leaves no change and returns its error, alone or in one transaction with
    /// others; the others are committed.
    #[tokio::test]
    async fn failed_job_is_undone_alone() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("create table note (text text)").unwrap();
        let worker = Worker::new(db, Mode::Write(None)).unwrap();
        let add = |text: &'static str, fails: bool| {
            worker.run(move |db| {
                db.execute("insert into note values (?1)", [text]).map_err(fault)?;
                if fails { Err(StoreError::Stale) } else { Ok(()) }
            })
        };
        assert!(matches!(add("alone", true).await, Err(StoreError::Stale)));
        add("kept alone", false).await.unwrap();
        let (failed, committed) =
            run_together(&worker, add("with others", true), add("kept with others", false)).await;
        assert!(matches!(failed, Err(StoreError::Stale)));
        committed.unwrap();
        let all = worker.run(|db| {
            let mut all = db.prepare("select text from note").map_err(fault)?;
            let all = all.query_map([], |row| row.get::<_, String>(0)).map_err(fault)?;
            all.collect::<Result<Vec<_>, _>>().map_err(fault)
        });
        assert_eq!(all.await.unwrap(), ["kept alone", "kept with others"]);
    }

    /// The message names a full disk: an operator can end that, and nothing else is broken.
    #[tokio::test]
    async fn full_disk_is_named() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("create table note (text blob); pragma max_page_count = 3").unwrap();
        let worker = Worker::new(db, Mode::Write(None)).unwrap();
        let add = |size: i64| {
            let add = "insert into note values (zeroblob(?1))";
            worker.run(move |db| db.execute(add, [size]).map(drop).map_err(fault))
        };
        let error = add(1 << 20).await.unwrap_err();
        assert_eq!(error.to_string(), "the sqlite store does not answer: its disk is full");
        add(10).await.unwrap();
    }
}
