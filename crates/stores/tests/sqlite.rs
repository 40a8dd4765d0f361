//! Conformance of the SQLite store (R061), and tests of its file.

// The lint does not see that helpers outside of test functions are tests; tasks of tests belong to no session.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]
#![cfg(feature = "sqlite")]

use stayput_core::conformance::Fixture;
use stayput_testkit::fixture::Opened;
use tempfile::TempDir;

async fn open() -> Opened<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    Opened::at(&url, folder).await
}

stayput_core::store_conformance!(open);
stayput_core::event_log_conformance!(open);

#[test]
fn sqlite_store_matches_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let opened = runtime.block_on(open());
    stayput_testkit::stories::one_by_one(&runtime, &opened.store(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_store_is_consistent_under_concurrency() {
    stayput_testkit::stories::all_at_once(open().await.store(), 8, 60).await;
}

mod file {
    //! Durability, permissions and schema of the file.

    use std::{
        io::{BufRead, BufReader},
        os::unix::fs::PermissionsExt,
        path::Path,
        process::{Command, Stdio},
        sync::Arc,
        time::Duration,
    };

    use stayput_core::{
        Blame, ExpectedValue, Expiry, Generation, Holder, Outage, Owner, Record, Retry,
        StateLimits, StateWrite, Store, StoreError, Timestamp,
    };
    use stayput_stores::{Database, StoreOpenError};

    async fn open(path: &Path) -> Result<Database, StoreOpenError> {
        stayput_stores::open(&format!("sqlite:{}", path.display())).await
    }

    fn record() -> Record {
        Record::new(Owner::local(), Expiry::NEVER, Timestamp::from_millis(1))
    }

    fn put<'a>(key: &'a str, bytes: &'a [u8]) -> StateWrite<'a> {
        StateWrite { key, bytes, expected: ExpectedValue::Any, limits: StateLimits::default() }
    }

    fn sqlite3(path: &Path) -> rusqlite::Connection {
        rusqlite::Connection::open(path).unwrap()
    }

    #[tokio::test]
    async fn file_and_folders_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/deep/a.db");
        let database = open(&path).await.unwrap();
        database.store.insert(&record(), None).await.unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("new")), 0o700);
        for name in ["a.db", "a.db-wal", "a.db-shm"] {
            assert_eq!(mode(&folder.path().join("new/deep").join(name)), 0o600, "{name}");
        }
    }

    #[tokio::test]
    async fn stored_data_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let kept = record();
        let first = open(&path).await.unwrap();
        first.store.insert(&kept, None).await.unwrap();
        first.store.put_state(kept.id, put("x", b"1"), None).await.unwrap();
        drop(first);
        let second = open(&path).await.unwrap();
        assert_eq!(second.store.load(kept.id).await.unwrap(), Some(kept.clone()));
        assert_eq!(second.store.load_state(kept.id, "x").await.unwrap().unwrap().bytes, b"1");
    }

    /// Invariant 12: acknowledged writes survive `kill -9` in the middle of writes.
    #[test]
    fn acknowledged_writes_survive_kill_nine() {
        const FILE: &str = "STAYPUT_TEST_WRITE_TO";
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        if let Ok(path) = std::env::var(FILE) {
            // This is the child that will be killed: it prints what was acknowledged, and goes on.
            return runtime.block_on(write_forever(Path::new(&path)));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        for round in 0..5 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["file::acknowledged_writes_survive_kill_nine", "--exact", "--nocapture"])
                .env(FILE, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let written = lines.map_while(Result::ok).filter(|line| line.starts_with("wrote "));
            let mut last: Vec<_> = written.take(50 + round * 37).collect();
            child.kill().unwrap();
            child.wait().unwrap();
            let last = last.pop().unwrap();
            let mut words = last.split_whitespace().skip(1);
            let (id, count) = (words.next().unwrap(), words.next().unwrap());
            runtime.block_on(async {
                let store = open(&path).await.unwrap().store;
                let id = id.parse().unwrap();
                let found = store.load_state(id, "count").await.unwrap().unwrap();
                let found: u64 = String::from_utf8(found.bytes).unwrap().parse().unwrap();
                assert!(found >= count.parse().unwrap(), "{found} of {count} are left");
                // Both were written by one call each, one after the other: never only the second.
                let behind = store.load_state(id, "behind").await.unwrap();
                let behind =
                    behind.map_or(0, |it| String::from_utf8(it.bytes).unwrap().parse().unwrap());
                assert!(behind == found || behind + 1 == found, "{behind} and {found}");
            });
            let check: String =
                sqlite3(&path).query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
        }
    }

    async fn write_forever(path: &Path) {
        let store = open(path).await.unwrap().store;
        let record = record();
        store.insert(&record, None).await.unwrap();
        for count in 1u64..1_000_000 {
            let text = count.to_string();
            store.put_state(record.id, put("count", text.as_bytes()), None).await.unwrap();
            store.put_state(record.id, put("behind", text.as_bytes()), None).await.unwrap();
            println!("wrote {} {count}", record.id);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn locked_file_is_unavailable_until_it_is_unlocked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = open(&path).await.unwrap().store;
        let kept = record();
        store.insert(&kept, None).await.unwrap();
        let other = sqlite3(&path);
        other.execute_batch("begin immediate").unwrap();
        let refused =
            tokio::time::timeout(Duration::from_secs(60), store.insert(&record(), None)).await;
        let error = refused.expect("an answer").unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { store: "sqlite", .. }), "{error:?}");
        assert_eq!((error.retry(), error.blame()), (Retry::Later, Blame::Store));
        assert_eq!(store.load(kept.id).await.unwrap(), Some(kept), "reads work meanwhile");
        other.execute_batch("rollback").unwrap();
        store.insert(&record(), None).await.unwrap();
    }

    #[tokio::test]
    async fn newer_schema_is_refused_and_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        drop(open(&path).await.unwrap());
        sqlite3(&path).execute_batch("pragma user_version = 7").unwrap();
        let error = open(&path).await.unwrap_err();
        assert!(
            matches!(error, StoreOpenError::NewerSchema { found: 7, known: 4, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("run the newer version"), "{error}");
        let version: i64 =
            sqlite3(&path).query_row("pragma user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 7);
    }

    /// Schemas before 3 stored other field names, so they are not migrated.
    #[tokio::test]
    async fn older_schema_is_refused_and_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        drop(open(&path).await.unwrap());
        sqlite3(&path).execute_batch("pragma user_version = 2").unwrap();
        let error = open(&path).await.unwrap_err();
        let older = matches!(error, StoreOpenError::OlderSchema { found: 2, oldest: 3, .. });
        assert!(older && error.to_string().contains("name another store"), "{error}");
        let version: i64 =
            sqlite3(&path).query_row("pragma user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
    }

    /// A file of schema 3 has no counter.
    #[tokio::test]
    async fn schema_three_is_migrated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let (kept, first) = (record(), open(&path).await.unwrap());
        first.store.insert(&kept, None).await.unwrap();
        drop(first);
        sqlite3(&path).execute_batch("drop table counter; pragma user_version = 3").unwrap();
        let again = open(&path).await.unwrap();
        assert_eq!(again.store.load(kept.id).await.unwrap(), Some(kept));
        assert!(again.warnings.is_empty(), "{:?}", again.warnings);
        again.store.acquire_lease(&Holder::unreachable(), Duration::from_secs(9)).await.unwrap();
    }

    /// All state of sessions in an older copy counts as lost, once. Another database is not an older copy.
    #[tokio::test]
    async fn older_copy_loses_the_state_of_its_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (kept, holder) = (record(), Holder::unreachable());
        let lease = async |store: &Arc<dyn Store>| {
            store.acquire_lease(&holder, Duration::from_secs(9)).await.unwrap();
        };
        let store = open(&at("a.db")).await.unwrap().store;
        store.insert(&kept, None).await.unwrap();
        lease(&store).await;
        sqlite3(&at("a.db")).execute("vacuum into ?1", [at("copy.db").to_str()]).unwrap();
        lease(&store).await;
        drop(store);
        assert!(open(&at("a.db")).await.unwrap().warnings.is_empty());
        for (name, count) in [("other.db", 0), ("copy.db", 1)] {
            let other = open(&at(name)).await.unwrap();
            lease(&other.store).await;
            drop(other);
            std::fs::copy(at("a.db-counter"), at(&format!("{name}-counter"))).unwrap();
            // The copy was used once, which brought it up to the number of the first.
            let behind = "update counter set number = number - 1";
            sqlite3(&at(name)).execute(behind, []).unwrap();
            let opened = open(&at(name)).await.unwrap();
            assert_eq!(opened.warnings.len(), count, "{name}: {:?}", opened.warnings);
        }
        let opened = open(&at("copy.db")).await.unwrap();
        assert!(opened.warnings.is_empty(), "{:?}", opened.warnings);
        let lost = opened.store.load(kept.id).await.unwrap().unwrap();
        assert_eq!(lost.unacknowledged_loss(), Some(Generation(1)));
        assert!(lost.revision > kept.revision);
    }

    /// Nothing is acknowledged that would be lost with the file.
    #[tokio::test]
    async fn write_to_a_deleted_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let database = open(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let error = database.store.insert(&record(), None).await.unwrap_err();
        assert!(error.to_string().ends_with("its database file was deleted"), "{error}");
        assert_eq!(database.file.unwrap().outage(), Some(Outage::FileDeleted));
    }

    #[tokio::test]
    async fn file_that_is_no_database_is_refused_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "no database, but a text that is long enough to be taken for one")
            .unwrap();
        for bad in [path.clone(), folder.path().to_owned(), path.join("below.db")] {
            let error = open(&bad).await.unwrap_err();
            assert!(matches!(error, StoreOpenError::File { .. }), "{error:?}");
            assert!(error.to_string().contains(&bad.display().to_string()), "{error}");
        }
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("no database"));
    }

    #[tokio::test]
    async fn database_of_another_program_is_refused_and_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("photos.db");
        sqlite3(&path).execute_batch("create table photo (id)").unwrap();
        let error = open(&path).await.unwrap_err();
        assert!(error.to_string().contains("name a file of its own"), "{error}");
        let tables = "select count(*) from sqlite_master";
        let tables: i64 = sqlite3(&path).query_row(tables, [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
    }

    #[tokio::test]
    async fn existing_file_is_made_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        drop(open(&path).await.unwrap());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// A record that cannot be decoded does not keep the others from ending.
    #[tokio::test]
    async fn list_due_skips_undecodable_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = open(&path).await.unwrap().store;
        let over =
            || Record::new(Owner::local(), Expiry::idle(Duration::ZERO), Timestamp::from_millis(1));
        let (bad, good) = (over(), over());
        store.insert(&bad, None).await.unwrap();
        store.insert(&good, None).await.unwrap();
        let spoil = "update session set detail = 'secret' where id = ?1";
        sqlite3(&path).execute(spoil, [bad.id.to_string()]).unwrap();
        let due = store.list_due(Timestamp::MAX, None, 9).await.unwrap();
        assert_eq!(due.iter().map(|record| record.id).collect::<Vec<_>>(), [good.id]);
        let error = store.load(bad.id).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Corrupt { .. }) && !format!("{error:?}").contains("secret")
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_opens_of_a_new_file_succeed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let opening = (0..8).map(|_| {
            let path = path.clone();
            tokio::task::spawn(async move { open(&path).await.unwrap().store })
        });
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for opened in opening.collect::<Vec<_>>() {
            stores.push(opened.await.unwrap());
        }
        let kept = record();
        stores[0].insert(&kept, None).await.unwrap();
        for store in stores {
            assert_eq!(store.load(kept.id).await.unwrap().as_ref(), Some(&kept));
        }
    }
}
