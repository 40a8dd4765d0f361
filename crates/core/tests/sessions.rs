//! Opening, finding, holding and ending sessions.

// Helpers stand outside of the tests that the lint knows.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "sessions/connections.rs"]
mod connections;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use stayput_core::{
    Agent, Attachment, Clock, EndReason, Expiry, Generation, Handle, Holder, Key, LeaseRenewal,
    LostReason, ManualClock, MemoryStore, OpenOptions, Origin, Owner, Record, Retry, Session,
    SessionId, SessionLimits, SessionOpenError, Sessions, Settings, State, StateError, StateLimits,
    Store, StoreError, Timestamp,
};
use stayput_testkit::faulty::Faulty;

const MINUTE: Duration = Duration::from_secs(60);

/// Store, clock, and processes on top of them.
struct World {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        Self { store: Arc::new(MemoryStore::new(clock.clone())), clock }
    }

    async fn process(&self) -> Sessions {
        self.process_with(Settings { lease: Duration::MAX, ..Settings::default() }).await
    }

    /// Starts a process on the same store, which can be made to fail or to wait.
    async fn faulty_process(&self, sessions: SessionLimits) -> (Arc<Faulty>, Sessions) {
        let faulty = Arc::new(Faulty::new(self.store.clone()));
        let settings = Settings { lease: Duration::MAX, sessions, ..Settings::default() };
        let (store, clock) = (faulty.clone(), self.clock.clone());
        let process = Sessions::start(store, clock, Holder::unreachable(), settings).await.unwrap();
        (faulty, process)
    }

    async fn process_with(&self, settings: Settings) -> Sessions {
        let holder = Holder::at("http://127.0.0.1:1").unwrap();
        Sessions::start(self.store.clone(), self.clock.clone(), holder, settings).await.unwrap()
    }
}

fn ann() -> Owner {
    Owner::verified("https://id.example.com", "ann").unwrap()
}

fn eve() -> Owner {
    Owner::verified("https://id.example.com", "eve").unwrap()
}

fn chat(name: &str) -> OpenOptions {
    OpenOptions::with_key(ann(), Agent::none(), Key::named(name).unwrap())
}

fn ids(records: &[Record]) -> Vec<SessionId> {
    records.iter().map(|record| record.id).collect()
}

/// Records the sessions that a process loses.
fn record_losses(sessions: &Sessions) -> Arc<Mutex<Vec<(SessionId, LostReason)>>> {
    let lost: Arc<Mutex<Vec<_>>> = Arc::default();
    let losses = lost.clone();
    sessions.on_lost(move |id, reason| losses.lock().unwrap().push((id, reason)));
    lost
}

macro_rules! assert_fails {
    ($result:expr, $error:pat) => {
        match $result {
            Err($error) => {}
            other => panic!("expected {}, got {other:?}", stringify!($error)),
        }
    };
}

// ── finding ─────────────────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn concurrent_opens_of_one_key_find_one_session() {
    let sessions = World::new().process().await;
    let first = sessions.open(&chat("a")).await.unwrap();
    assert_eq!(first.origin, Origin::New);
    let again = sessions.open(&chat("a")).await.unwrap();
    assert_eq!((again.origin, again.session.id()), (Origin::Existing, first.session.id()));
    let other = sessions.open(&chat("b")).await.unwrap();
    assert_ne!(other.session.id(), first.session.id());
    let unnamed = sessions.open(&OpenOptions::new(ann())).await.unwrap();
    assert_ne!(
        unnamed.session.id(),
        sessions.open(&OpenOptions::new(ann())).await.unwrap().session.id()
    );
    let key = Key::named("a").unwrap();
    let found = sessions.find_by_key(&ann(), &Agent::none(), &key).await.unwrap();
    assert_eq!(found.id(), first.session.id());
    assert_fails!(
        sessions.find_by_key(&eve(), &Agent::none(), &key).await,
        SessionOpenError::Unknown
    );
    let agent = Agent::named("x").unwrap();
    assert_fails!(sessions.find_by_key(&ann(), &agent, &key).await, SessionOpenError::Unknown);
}

/// Invariant 4, R019, R129: fifty concurrent first calls create one session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_first_opens_create_one_session() {
    let world = World::new();
    let sessions = Arc::new(world.process().await);
    for round in 0..20 {
        let options = chat(&format!("chat-{round}"));
        let opening = (0..50).map(|_| {
            let (sessions, options) = (sessions.clone(), options.clone());
            tokio::task::spawn_blocking(move || {
                tokio::runtime::Handle::current()
                    .block_on(async { sessions.open(&options).await.unwrap() })
            })
        });
        let opened: Vec<_> = join_all(opening).await.into_iter().map(Result::unwrap).collect();
        let fresh = opened.iter().filter(|it| it.origin == Origin::New).count();
        assert_eq!(fresh, 1, "round {round}");
        assert!(opened.iter().all(|it| it.session.id() == opened[0].session.id()));
        assert_eq!(world.store.list(None, None, 99).await.unwrap().len(), round + 1);
    }
}

/// E30, E31, invariant 1: an unknown and a foreign session give the same error, by every name.
#[tokio::test]
async fn foreign_session_is_reported_as_unknown() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    let id = opened.session.id();
    assert_eq!(sessions.find_by_handle(&ann(), &handle).await.unwrap().id(), id);
    assert_eq!(sessions.find_by_id(&ann(), id).await.unwrap().id(), id);
    let unknown = SessionId::generate(world.clock.now());
    let answers = [
        sessions.find_by_handle(&eve(), &handle).await.unwrap_err(),
        sessions.find_by_handle(&eve(), &Handle::generate()).await.unwrap_err(),
        sessions.find_by_handle(&ann(), &Handle::generate()).await.unwrap_err(),
        sessions.find_by_id(&eve(), id).await.unwrap_err(),
        sessions.find_by_id(&eve(), unknown).await.unwrap_err(),
        sessions.revive(&eve(), id).await.unwrap_err(),
    ];
    for answer in answers {
        assert_fails!(Err::<(), _>(&answer), SessionOpenError::Unknown);
        assert_eq!(answer.to_string(), "there is no such session; open a new one");
    }
    sessions.end(opened.session.session()).await.unwrap();
    assert_fails!(sessions.find_by_handle(&ann(), &handle).await, SessionOpenError::Ended(_));
    assert_fails!(sessions.find_by_handle(&eve(), &handle).await, SessionOpenError::Unknown);
    assert_fails!(sessions.find_by_id(&eve(), id).await, SessionOpenError::Unknown);
}

#[tokio::test]
async fn every_issued_handle_finds_the_session() {
    let sessions = World::new().process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    for _ in 0..3 {
        let handle = sessions.issue_handle(&opened.session).await.unwrap();
        for _ in 0..2 {
            let found = sessions.find_by_handle(&ann(), &handle).await.unwrap();
            assert_eq!(found.id(), opened.session.id());
        }
    }
}

/// A held session is found without the store: no database on the hot path.
#[tokio::test]
async fn held_session_is_found_without_the_store() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    drop(sessions.find_by_handle(&ann(), &handle).await.unwrap());
    // Removed from the store directly; the process does not notice until it writes.
    let lease = world.store.load(opened.session.id()).await.unwrap().unwrap().holder;
    world.store.remove(opened.session.id(), lease).await.unwrap();
    assert_eq!(sessions.open(&chat("a")).await.unwrap().origin, Origin::Existing);
    assert!(sessions.find_by_handle(&ann(), &handle).await.is_ok());
    assert!(sessions.find_by_id(&ann(), opened.session.id()).await.is_ok());
    assert_fails!(
        sessions.set_expiry(&opened.session, Expiry::NEVER).await,
        SessionOpenError::Store(StoreError::Missing)
    );
}

// ── expiry ──────────────────────────────────────────────────────────────────────────────────────────

/// R033, R059, R071, E20: the idle time starts when the last use ends.
#[tokio::test]
async fn idle_session_expires_and_its_owner_gets_the_reason() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    let id = opened.session.id();
    drop(opened);
    world.clock.advance(MINUTE * 29);
    drop(sessions.find_by_id(&ann(), id).await.unwrap());
    world.clock.advance(MINUTE * 29);
    assert!(sessions.sweep().await.ended.is_empty(), "used 29 minutes ago");
    world.clock.advance(MINUTE);
    let swept = sessions.sweep().await;
    assert_eq!(ids(&swept.ended), [id]);
    assert_eq!(swept.ended[0].ended.unwrap().reason, EndReason::Idle);
    assert!(sessions.sweep().await.ended.is_empty(), "reported once");
    let error = sessions.find_by_handle(&ann(), &handle).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("session {id} expired after 30 min idle; its state is gone, open a new one")
    );
    assert_eq!(error.retry(), Retry::Never);
}

/// A session that is used while another one is being released stays, and can be used at once.
#[tokio::test]
async fn session_used_during_a_release_is_not_released() {
    let world = World::new();
    let sessions = world.process().await;
    let mut open = Vec::new();
    for name in ["a", "b"] {
        open.push(sessions.open(&chat(name)).await.unwrap().session.id());
    }
    world.clock.advance(MINUTE);
    // Closing the links of the first one takes long enough for a call in the other one.
    let use_other = |closed: SessionId| {
        let other = open.iter().find(|id| **id != closed).copied().unwrap();
        let (sessions, clock) = (&sessions, &world.clock);
        async move {
            clock.advance(Duration::from_millis(5));
            drop(sessions.find_by_id(&ann(), other).await.unwrap());
        }
    };
    let released = sessions.release_idle(MINUTE / 2, |_| true, use_other).await.unwrap();
    let held: Vec<_> = sessions.held_sessions().iter().map(|session| session.id()).collect();
    assert_eq!((released, held.len()), (1, 1));
    drop(sessions.find_by_id(&ann(), held[0]).await.unwrap());
    world.clock.advance(MINUTE);
    let released = sessions.release_idle(MINUTE / 2, |_| true, |_| async {}).await.unwrap();
    assert_eq!(released, 1, "it is released once it is idle again");
}

/// R069, E33: `open_new` never returns an existing session.
#[tokio::test]
async fn open_new_refuses_a_taken_key() {
    let world = World::new();
    let one = world.process().await;
    let id = SessionId::generate(world.clock.now());
    let made = one.open_new(&chat("a").id(id)).await.unwrap();
    assert_eq!((made.session.id(), made.origin), (id, Origin::New));
    let refused = one.open_new(&chat("a")).await.unwrap_err();
    assert!(matches!(refused, SessionOpenError::Store(StoreError::Taken { by }) if by == id));
    assert_eq!(one.open(&chat("a")).await.unwrap().session.id(), id);
    drop(made);
    world.clock.advance(MINUTE * 30);
    // It has expired, though no sweep has run yet.
    assert_ne!(one.open_new(&chat("a")).await.unwrap().session.id(), id);
}

/// Invariant 3: every opener gets the loss until it is acknowledged; a restart in between changes
/// nothing.
#[tokio::test]
async fn loss_is_reported_until_it_is_acknowledged() {
    let world = World::new();
    let one = world.process().await;
    drop(one.open(&chat("a")).await.unwrap());
    world.clock.advance(MINUTE * 30);
    let lost = Origin::Lost(Generation(1));
    assert_eq!(one.open(&chat("a")).await.unwrap().origin, lost);
    assert_eq!(one.open(&chat("a")).await.unwrap().origin, lost);
    one.close().await.unwrap();
    let two = world.process().await;
    let opened = two.open(&chat("a")).await.unwrap();
    assert_eq!(
        (opened.origin, opened.session.latest_unacknowledged_loss()),
        (lost, Some(Generation(1)))
    );
    two.acknowledge_loss(&opened.session, Generation(1)).await.unwrap();
    assert_eq!(two.open(&chat("a")).await.unwrap().origin, Origin::Existing);
    assert_eq!(opened.session.latest_unacknowledged_loss(), None);
}

/// Invariant 7: a session with a call in flight never expires by idling.
#[tokio::test]
async fn session_in_use_does_not_expire() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let (id, second) =
        (opened.session.id(), sessions.find_by_id(&ann(), opened.session.id()).await.unwrap());
    for _ in 0..5 {
        world.clock.advance(MINUTE * 60);
        sessions.flush().await.unwrap();
        assert!(sessions.sweep().await.ended.is_empty());
        let kept = world.store.load(id).await.unwrap().unwrap();
        assert!(kept.is_live());
        assert_eq!(kept.last_used, world.clock.now(), "other processes see its use");
    }
    drop(opened);
    world.clock.advance(MINUTE * 40);
    assert!(sessions.sweep().await.ended.is_empty(), "one of two users is left");
    drop(second);
    assert!(sessions.sweep().await.ended.is_empty(), "idle from now on");
    world.clock.advance(MINUTE * 30);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
}

/// The maximum age is checked on entry: current users finish, new ones are refused.
#[tokio::test]
async fn session_at_maximum_age_refuses_new_users() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    world.clock.advance(MINUTE * 60 * 24);
    assert!(sessions.sweep().await.ended.is_empty(), "in use");
    let next = sessions.open(&chat("a")).await.unwrap();
    assert_ne!(next.session.id(), opened.session.id());
    assert!(matches!(next.origin, Origin::Lost(_)));
    assert!(opened.session.is_closed() && opened.session.is_in_use());
    assert!(sessions.sweep().await.ended.is_empty(), "its links are still needed");
    let id = opened.session.id();
    drop(opened);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
}

/// An expired session ends at its deadline, not at the next sweep.
#[tokio::test]
async fn expired_session_is_not_found_before_the_sweep() {
    let world = World::new();
    let sessions = world.process().await;
    let first = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    assert_fails!(sessions.find_by_id(&ann(), first).await, SessionOpenError::Ended(_));
    let opened = sessions.open(&chat("a")).await.unwrap();
    assert_eq!(opened.origin, Origin::Lost(Generation(1)), "invariant 3: the loss is reported");
    assert_ne!(opened.session.id(), first);
    assert_eq!(ids(&sessions.sweep().await.ended), [first], "its links must be closed");
}

/// E33: `set_expiry` changes the deadline here and in the store.
#[tokio::test]
async fn set_expiry_extends_the_session() {
    let world = World::new();
    let sessions = world.process().await;
    let id = {
        let opened = sessions.open(&chat("a")).await.unwrap();
        sessions.set_expiry(&opened.session, Expiry::idle(MINUTE * 90)).await.unwrap();
        opened.session.id()
    };
    world.clock.advance(MINUTE * 89);
    assert!(sessions.sweep().await.ended.is_empty());
    assert!(world.store.list_due(world.clock.now(), None, 9).await.unwrap().is_empty());
    world.clock.advance(MINUTE);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
}

/// Sessions of a dead process are ended by the others.
#[tokio::test]
async fn sweep_ends_expired_sessions_without_a_holder() {
    let world = World::new();
    let settings = Settings { lease: MINUTE, ..Settings::default() };
    let dead = world.process_with(settings).await;
    let id = dead.open(&chat("a")).await.unwrap().session.id();
    let sessions = world.process().await;
    world.clock.advance(MINUTE * 30);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
    assert!(!world.store.load(id).await.unwrap().unwrap().is_live());
}

/// Only a live holder knows whether its session is in use.
#[tokio::test]
async fn sweep_skips_sessions_held_elsewhere() {
    let world = World::new();
    let (holder, other) = (world.process().await, world.process().await);
    let opened = holder.open(&chat("a")).await.unwrap();
    world.clock.advance(MINUTE * 60);
    assert!(other.sweep().await.ended.is_empty());
    assert!(world.store.load(opened.session.id()).await.unwrap().unwrap().is_live());
}

#[tokio::test]
async fn tombstones_are_purged_after_the_retention() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    world.clock.advance(MINUTE * 60 * 24 * 7);
    assert_eq!(sessions.sweep().await.purged, 0);
    assert_fails!(sessions.find_by_handle(&ann(), &handle).await, SessionOpenError::Ended(_));
    world.clock.advance(MINUTE);
    assert_eq!(sessions.sweep().await.purged, 1);
    assert_fails!(sessions.find_by_handle(&ann(), &handle).await, SessionOpenError::Unknown);
    assert_eq!(sessions.open(&chat("a")).await.unwrap().origin, Origin::New);
}

// ── ending ──────────────────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn ended_session_reports_its_attachments() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let attachment = Attachment::new(Generation(2), "upstream");
    sessions
        .change(&opened.session, |record| record.attach("browser", attachment.clone()))
        .await
        .unwrap();
    let session = opened.session.session().clone();
    sessions.end(&session).await.unwrap();
    sessions.end(&session).await.unwrap();
    assert!(sessions.sweep().await.ended.is_empty(), "it is still in use");
    drop(opened);
    let swept = sessions.sweep().await;
    assert_eq!(swept.ended[0].attachments["browser"], attachment);
    assert_eq!(swept.ended.len(), 1);
    let tombstone = world.store.load(session.id()).await.unwrap().unwrap();
    assert!(tombstone.attachments.is_empty() && tombstone.holder.is_none());
    let next = sessions.open(&chat("a")).await.unwrap();
    assert_eq!(next.origin, Origin::Lost(Generation(3)), "above every earlier generation");
    assert_fails!(sessions.find_by_id(&ann(), session.id()).await, SessionOpenError::Ended(_));
}

/// E37: an end that is cancelled at any point is completed by the next sweep, and leaks nothing.
#[tokio::test]
async fn cancelled_end_is_completed_by_the_sweep() {
    let world = World::new();
    let (slow, sessions) = world.faulty_process(SessionLimits::default()).await;
    let session = sessions.open(&chat("a")).await.unwrap().session.session().clone();
    slow.hang(true);
    let mut ending = Box::pin(sessions.end(&session));
    assert!(futures_util::poll!(&mut ending).is_pending());
    drop(ending);
    slow.hang(false);
    assert!(session.is_closed());
    assert_eq!(ids(&sessions.sweep().await.ended), [session.id()]);
    assert!(!world.store.load(session.id()).await.unwrap().unwrap().is_live());
}

/// Invariant 6: an open that is cancelled at any point leaks nothing and blocks no other opener.
#[tokio::test]
async fn cancelled_open_leaves_the_key_usable() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 1, ..SessionLimits::default() };
    let (slow, sessions) = world.faulty_process(limits).await;
    for steps in 1.. {
        let done = slow.cut(steps, sessions.open(&chat("a"))).await.is_some();
        // The reservation is free again, and the key can be opened.
        let opened = sessions.open(&chat("a")).await.unwrap();
        let session = opened.session.session().clone();
        drop(opened);
        sessions.end(&session).await.unwrap();
        assert_eq!(sessions.sweep().await.ended.len(), 1);
        assert!(sessions.held_sessions().is_empty());
        if done {
            assert!(steps > 1, "the open never had to wait");
            return;
        }
        assert!(steps < 100, "the open never ends");
    }
}

/// A session that ended while another opener had just read it is not held as live.
#[tokio::test]
async fn session_that_ended_meanwhile_is_not_held() {
    let world = World::new();
    let before = world.process().await;
    let id = before.open(&chat("a")).await.unwrap().session.id();
    before.close().await.unwrap();
    let (slow, sessions) = world.faulty_process(SessionLimits::default()).await;
    // One opener has claimed the session and waits for the answer …
    slow.hang(true);
    let options = chat("a");
    let mut opening = Box::pin(sessions.open(&options));
    let claimed = async || world.store.load(id).await.unwrap().unwrap().holder.unwrap().holder;
    while claimed().await != sessions.holder().id {
        slow.step();
        assert!(futures_util::poll!(&mut opening).is_pending());
    }
    // … while another one opens it too and ends it.
    slow.hang(false);
    let other = sessions.open(&options).await.unwrap();
    assert_eq!((other.session.id(), other.origin), (id, Origin::Existing));
    sessions.end(other.session.session()).await.unwrap();
    slow.step();
    let opened = opening.await.unwrap();
    assert_ne!(opened.session.id(), id);
    assert_eq!(opened.origin, Origin::Lost(Generation(1)));
    assert_eq!(sessions.held_sessions().len(), 1);
}

/// Two concurrent updates, on a store that interleaves them: no change is lost.
#[tokio::test]
async fn conflicting_updates_are_retried() {
    let store: Arc<dyn Store> = Arc::new(Faulty::new(World::new().store));
    stayput_core::conformance::concurrent_updates_lose_nothing(store).await;
}

/// Invariant 2: an update whose write may have happened is not repeated.
#[tokio::test]
async fn update_with_unknown_outcome_is_not_repeated() {
    let world = World::new();
    let faulty = Arc::new(Faulty::new(world.store.clone()));
    let record = Record::new(ann(), Expiry::NEVER, world.clock.now());
    faulty.insert(&record, None).await.unwrap();
    let state = State::new(faulty.clone(), record.id, None, StateLimits::default());
    let mut changes = 0;
    let update = state.update("n", |n: &mut u32| {
        changes += 1;
        *n += 1;
        faulty.lose_the_next_answer();
    });
    let error = update.await.unwrap_err();
    assert!(matches!(error, StateError::Store(StoreError::Unavailable { .. })), "{error:?}");
    assert_eq!(error.retry(), Retry::Later);
    assert_eq!(changes, 1);
    assert_eq!(state.get::<u32>("n").await.unwrap(), Some(1), "the write happened once");
}

#[tokio::test]
async fn revived_session_keeps_its_id_and_reports_a_loss() {
    let world = World::new();
    let sessions = world.process().await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    assert_eq!(sessions.sweep().await.ended.len(), 1);
    let revived = sessions.revive(&ann(), id).await.unwrap();
    assert_eq!((revived.session.id(), revived.origin), (id, Origin::Lost(Generation(1))));
    assert_eq!(sessions.open(&chat("a")).await.unwrap().session.id(), id);
    let again = sessions.revive(&ann(), id).await.unwrap().origin;
    assert_eq!(again, Origin::Lost(Generation(1)), "it is live, but the loss is unacknowledged");
    sessions.acknowledge_loss(&revived.session, Generation(1)).await.unwrap();
    assert_eq!(sessions.revive(&ann(), id).await.unwrap().origin, Origin::Existing);
    drop(revived);
    world.clock.advance(MINUTE * 29);
    assert!(sessions.sweep().await.ended.is_empty(), "its idle time restarted");
}

// ── provisional sessions and limits ─────────────────────────────────────────────────────────────────

#[tokio::test]
async fn provisional_session_expires_unless_its_handle_is_used() {
    let world = World::new();
    let sessions = world.process().await;
    let mint = async || {
        let opened = sessions.open(&OpenOptions::new(ann()).provisional()).await.unwrap();
        let handle = sessions.issue_handle(&opened.session).await.unwrap();
        (opened.session.id(), handle)
    };
    let (forgotten, _) = mint().await;
    let (confirmed_expiry, handle) = mint().await;
    drop(sessions.find_by_handle(&ann(), &handle).await.unwrap());
    world.clock.advance(MINUTE * 2);
    assert_eq!(ids(&sessions.sweep().await.ended), [forgotten]);
    let record = world.store.load(confirmed_expiry).await.unwrap().unwrap();
    assert!(!record.provisional && record.expiry == Expiry::default());
    world.clock.advance(MINUTE * 27);
    assert!(sessions.find_by_handle(&ann(), &handle).await.is_ok());
}

/// A caller that ends a session for one client must know whether another one relies on it.
#[tokio::test]
async fn use_of_a_handle_is_recorded_for_good() {
    let world = World::new();
    let sessions = world.process().await;
    let session = sessions.open(&OpenOptions::new(ann())).await.unwrap().session;
    let handle = sessions.issue_handle(&session).await.unwrap();
    let stored = async || world.store.load(session.id()).await.unwrap().unwrap();
    assert!(!session.record().handle_used && !stored().await.handle_used, "issued and not used");
    let expiry = session.record().expiry;
    drop(sessions.find_by_handle(&ann(), &handle).await.unwrap());
    assert!(session.record().handle_used && stored().await.handle_used);
    assert_eq!(stored().await.expiry, expiry);
}

#[tokio::test]
async fn owner_lists_its_own_sessions_in_pages() {
    let world = World::new();
    let sessions = world.process().await;
    let mut mine = Vec::new();
    for name in ["a", "b", "c"] {
        mine.push(sessions.open(&chat(name)).await.unwrap().session.id());
        world.clock.advance(Duration::from_millis(1));
    }
    drop(sessions.open(&OpenOptions::new(eve())).await.unwrap());
    let page = sessions.list(&ann(), None, 2).await.unwrap();
    assert_eq!(ids(&page), mine[..2]);
    let rest = sessions.list(&ann(), Some(mine[1]), 2).await.unwrap();
    assert_eq!(ids(&rest), mine[2..]);
}

#[tokio::test]
async fn oldest_provisional_session_is_evicted_at_the_limit() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 4, provisional_per_owner: 2 };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let sessions = world.process_with(settings).await;
    let mut minted = Vec::new();
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(1));
        let opened = sessions.open(&OpenOptions::new(ann()).provisional()).await.unwrap();
        minted.push(opened.session.id());
    }
    let swept = sessions.sweep().await;
    assert_eq!(ids(&swept.ended), [minted[0]]);
    assert_eq!(swept.ended[0].ended.unwrap().reason, EndReason::Evicted);
    for name in ["a", "b", "c", "d"] {
        drop(sessions.open(&chat(name)).await.unwrap());
    }
    assert_eq!(ids(&sessions.sweep().await.ended), [minted[1], minted[2]]);
    let error = sessions.open(&chat("e")).await.unwrap_err();
    assert!(matches!(error, SessionOpenError::AtCapacity { limit: 4 }), "{error:?}");
    assert_eq!(error.retry(), Retry::Later);
    assert!(sessions.open(&chat("a")).await.is_ok(), "an existing session can be used");
    let other = OpenOptions::with_key(eve(), Agent::none(), Key::named("e").unwrap());
    assert!(sessions.open(&other).await.is_ok(), "the limit is per owner");
    sessions.end(sessions.open(&chat("a")).await.unwrap().session.session()).await.unwrap();
    assert!(sessions.open(&chat("e")).await.is_ok());
}

#[tokio::test]
async fn provisional_session_in_use_is_not_evicted() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 9, provisional_per_owner: 1 };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let sessions = world.process_with(settings).await;
    let options = OpenOptions::new(ann()).provisional();
    let opened = sessions.open(&options).await.unwrap();
    assert_fails!(sessions.open(&options).await, SessionOpenError::AtCapacity { limit: 1 });
    drop(opened);
    assert!(sessions.open(&options).await.is_ok());
}

/// The limit holds against concurrent openers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_do_not_exceed_the_limit() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 10, ..SessionLimits::default() };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let sessions = Arc::new(world.process_with(settings).await);
    let opening = (0..50).map(|n| {
        let sessions = sessions.clone();
        tokio::task::spawn_blocking(move || {
            let options = chat(&n.to_string());
            tokio::runtime::Handle::current()
                .block_on(async { sessions.open(&options).await.is_ok() })
        })
    });
    let opened = join_all(opening).await.into_iter().filter(|it| *it.as_ref().unwrap()).count();
    assert_eq!(opened, 10);
    assert_eq!(world.store.list(None, None, 99).await.unwrap().len(), 10);
}

// ── several processes ───────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn session_held_elsewhere_is_refused_with_its_holder() {
    let world = World::new();
    let (one, two) = (world.process().await, world.process().await);
    let opened = one.open(&chat("a")).await.unwrap();
    let handle = one.issue_handle(&opened.session).await.unwrap();
    for answer in [
        two.open(&chat("a")).await.map(|it| it.session),
        two.find_by_handle(&ann(), &handle).await,
        two.find_by_id(&ann(), opened.session.id()).await,
    ] {
        match answer {
            Err(SessionOpenError::HeldElsewhere { holder }) => assert_eq!(&holder, one.holder()),
            other => panic!("{other:?}"),
        }
    }
    assert_fails!(two.find_by_handle(&eve(), &handle).await, SessionOpenError::Unknown);
}

/// A process that was killed and restarted under its holder id does not wait for its own lease.
#[tokio::test]
async fn restarted_process_takes_over_from_its_predecessor() {
    let world = World::new();
    let start = async |holder: &Holder| {
        let settings = Settings { lease: MINUTE, ..Settings::default() };
        let (store, clock) = (world.store.clone(), world.clock.clone());
        Sessions::start(store, clock, holder.clone(), settings).await.unwrap()
    };
    let (holder, other) = (Holder::unreachable(), Holder::unreachable());
    let killed = start(&holder).await;
    let opened = killed.open(&chat("a")).await.unwrap();
    let again = start(&holder).await;
    let stranger = start(&other).await;
    assert_fails!(stranger.open(&chat("a")).await, SessionOpenError::HeldElsewhere { .. });
    let found = again.find_by_id(&ann(), opened.session.id()).await.unwrap();
    assert_eq!(found.id(), opened.session.id());
    // Writes of the predecessor are refused, and the other process waits as before.
    let late = killed.set_expiry(&opened.session, Expiry::NEVER).await;
    assert_fails!(late, SessionOpenError::Store(StoreError::NotHolder));
    assert_fails!(stranger.open(&chat("a")).await, SessionOpenError::HeldElsewhere { .. });
    assert_eq!(again.renew().await.unwrap(), LeaseRenewal::Renewed);
}

/// Restart on the same store: sessions, state and times of use are there.
#[tokio::test]
async fn another_process_continues_after_a_clean_close() {
    let world = World::new();
    let one = world.process().await;
    let opened = one.open(&chat("a")).await.unwrap();
    let (id, handle) = (opened.session.id(), one.issue_handle(&opened.session).await.unwrap());
    one.state(&opened.session).unwrap().set("n", &41).await.unwrap();
    world.clock.advance(MINUTE * 5);
    drop(opened);
    let used = world.clock.now();
    let held = one.held_sessions();
    one.close().await.unwrap();
    assert!(held.len() == 1 && held[0].is_closed() && one.held_sessions().is_empty());
    world.clock.advance(MINUTE * 29);
    let two = world.process().await;
    assert!(two.sweep().await.ended.is_empty());
    let found = two.find_by_handle(&ann(), &handle).await.unwrap();
    assert_eq!((found.id(), found.record().last_used), (id, used));
    let n = two
        .state(&found)
        .unwrap()
        .update("n", |n: &mut u32| {
            *n += 1;
            *n
        })
        .await
        .unwrap();
    assert_eq!(n, 42);
    assert_eq!(two.open(&chat("a")).await.unwrap().origin, Origin::Existing);
}

/// A process that cannot renew stops by itself, before others may take over (§7).
#[tokio::test]
async fn process_without_its_lease_uses_no_session() {
    let world = World::new();
    let settings = Settings { lease: MINUTE, ..Settings::default() };
    let late = world.process_with(settings).await;
    let lost = record_losses(&late);
    let opened = late.open(&chat("a")).await.unwrap();
    world.clock.advance(Duration::from_secs(54));
    assert_fails!(late.open(&chat("a")).await, SessionOpenError::LeaseLost);
    assert_fails!(late.open(&chat("b")).await, SessionOpenError::LeaseLost);
    assert_fails!(late.state(&opened.session), SessionOpenError::LeaseLost);
    assert!(
        matches!(late.renew().await.unwrap(), LeaseRenewal::Renewed),
        "the lease was still valid"
    );
    assert!(late.open(&chat("a")).await.is_ok());

    world.clock.advance(MINUTE);
    let next = world.process_with(settings).await;
    let taken = next.open(&chat("a")).await.unwrap();
    assert_eq!((taken.origin, taken.session.id()), (Origin::Existing, opened.session.id()));
    assert_eq!(late.renew().await.unwrap(), LeaseRenewal::Replaced);
    late.reclaim().await;
    assert_eq!(*lost.lock().unwrap(), [(opened.session.id(), LostReason::Moved)]);
    assert!(opened.session.is_closed() && late.held_sessions().is_empty());
    let refused = late.set_expiry(&opened.session, Expiry::NEVER).await;
    assert_fails!(refused, SessionOpenError::Store(StoreError::NotHolder));
    let refused = late.issue_handle(&opened.session).await;
    assert_fails!(refused, SessionOpenError::Store(StoreError::NotHolder));
    assert_fails!(late.open(&chat("a")).await, SessionOpenError::HeldElsewhere { .. });
    assert!(late.open(&chat("b")).await.is_ok(), "it works with a new lease");
}

/// A refused write shows a process that another one holds its session now.
#[tokio::test]
async fn refused_write_releases_the_session() {
    let world = World::new();
    let (one, two) = (world.process().await, world.process().await);
    let lost = record_losses(&one);
    let opened = one.open(&chat("a")).await.unwrap();
    let lease = opened.session.record().holder.unwrap();
    world.store.release_claim(opened.session.id(), lease).await.unwrap();
    drop(two.open(&chat("a")).await.unwrap());
    assert_fails!(
        one.set_expiry(&opened.session, Expiry::NEVER).await,
        SessionOpenError::Store(StoreError::NotHolder)
    );
    assert!(opened.session.is_closed() && one.held_sessions().is_empty());
    one.reclaim().await;
    assert_eq!(*lost.lock().unwrap(), [(opened.session.id(), LostReason::Moved)]);
    assert_fails!(one.open(&chat("a")).await, SessionOpenError::HeldElsewhere { .. });
}

/// §7: a session that another process has used is reported as lost before it can be entered again,
/// once. One that no other process has used is not.
#[tokio::test]
async fn session_used_by_another_process_is_lost_before_it_is_entered() {
    let world = World::new();
    let settings = Settings { lease: MINUTE, ..Settings::default() };
    let late = world.process_with(settings).await;
    let lost = record_losses(&late);
    let attach = async |process: &Sessions, key: &str, generation: u64| {
        let session = process.open(&chat(key)).await.unwrap().session;
        let attachment = Attachment::new(Generation(generation), "child");
        let change = |record: &mut Record| record.attach("shell", attachment.clone());
        process.change(&session, change).await.unwrap();
        session.id()
    };
    let used = attach(&late, "used", 1).await;
    let kept = attach(&late, "kept", 1).await;
    let over = attach(&late, "over", 1).await;
    world.clock.advance(MINUTE);

    let next = world.process_with(settings).await;
    assert_eq!(attach(&next, "used", 2).await, used);
    drop(next.open(&chat("kept")).await.unwrap());
    let ended = next.open(&chat("over")).await.unwrap();
    next.end(ended.session.session()).await.unwrap();
    drop(ended);
    next.close().await.unwrap();

    assert_eq!(late.renew().await.unwrap(), LeaseRenewal::Replaced);
    let found = late.open(&chat("used")).await.unwrap();
    assert_eq!(*lost.lock().unwrap(), [(used, LostReason::Moved)]);
    assert_eq!(found.session.record().generation, Generation(2));
    late.reclaim().await;
    assert_eq!(*lost.lock().unwrap(), [(used, LostReason::Moved), (over, LostReason::Ended)]);
    assert!(late.get_held(kept).is_some(), "its links are open, so it is held");
    late.reclaim().await;
    assert_eq!(lost.lock().unwrap().len(), 2);
}

/// R058: times of creation and last use survive the process.
#[tokio::test]
async fn times_of_use_are_written_back_in_batches() {
    let world = World::new();
    let sessions = world.process().await;
    let mut all = Vec::new();
    for n in 0..600 {
        all.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.id());
    }
    assert_eq!(sessions.flush().await.unwrap(), 0, "nothing new");
    world.clock.advance(MINUTE);
    for id in &all {
        drop(sessions.find_by_id(&ann(), *id).await.unwrap());
    }
    assert_eq!(sessions.flush().await.unwrap(), 600);
    assert_eq!(sessions.flush().await.unwrap(), 0);
    let record = world.store.load(all[599]).await.unwrap().unwrap();
    assert_eq!(record.last_used, world.clock.now());
    assert_eq!(record.revision, stayput_core::Revision(0), "a touch is not a change");
}

/// R058: a session in constant use is not written constantly; the time in the store never lags by
/// more than a thirtieth of the idle time.
#[tokio::test]
async fn times_of_use_are_written_back_when_they_lag() {
    let world = World::new();
    let sessions = world.process().await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    // A thirtieth of half an hour is nearly four steps.
    let step = MINUTE / 4;
    let mut written = 0;
    for _ in 0..32 {
        world.clock.advance(step);
        drop(sessions.find_by_id(&ann(), id).await.unwrap());
        written += sessions.write_back().await.unwrap();
        let known = world.store.load(id).await.unwrap().unwrap().last_used;
        assert!(world.clock.now() < known.after(MINUTE), "{known:?}");
    }
    assert_eq!(written, 8);
    world.clock.advance(step);
    drop(sessions.find_by_id(&ann(), id).await.unwrap());
    assert_eq!(sessions.write_back().await.unwrap(), 0);
    let listed = sessions.list(&ann(), None, 1).await.unwrap();
    assert_eq!(listed[0].last_used, world.clock.now(), "the holder lists the most recent time");
    assert_eq!(sessions.flush().await.unwrap(), 1, "a flush writes all");
    world.clock.advance(MINUTE);
    assert_eq!(sessions.write_back().await.unwrap(), 0, "it was not used");
}

// ── a store that forgets ────────────────────────────────────────────────────────────────────────────

/// Removes a session and the lease of its holder from the store.
async fn forget(world: &World, record: &Record) {
    world.store.remove(record.id, record.holder).await.unwrap();
    world.store.release_lease(record.holder.unwrap()).await.unwrap();
}

const RESTORING: fn() -> Settings =
    || Settings { lease: MINUTE, restore: true, ..Settings::default() };

/// §7: a session that the store forgot is stored again with its generation, its key and its handles.
#[tokio::test]
async fn forgotten_session_is_stored_again() {
    let world = World::new();
    let sessions = world.process_with(RESTORING()).await;
    let lost = record_losses(&sessions);
    let opened = sessions.open(&chat("a")).await.unwrap().session;
    let attachment = Attachment::new(Generation(3), "child");
    let change = |record: &mut Record| record.attach("shell", attachment.clone());
    sessions.change(&opened, change).await.unwrap();
    let handle = sessions.issue_handle(&opened).await.unwrap();
    let (id, before) = (opened.id(), Record::clone(&opened.record()));
    drop(opened);
    // Whichever of these comes first after the loss of the lease.
    for first in 0..4 {
        let record = world.store.load(id).await.unwrap().unwrap();
        forget(&world, &record).await;
        assert_eq!(sessions.renew().await.unwrap(), LeaseRenewal::Replaced);
        match first {
            0 => sessions.reclaim().await,
            1 => drop(sessions.open(&chat("a")).await.unwrap()),
            2 => drop(sessions.find_by_handle(&ann(), &handle).await.unwrap()),
            _ => drop(sessions.find_by_id(&ann(), id).await.unwrap()),
        }
        let stored = world.store.load(id).await.unwrap().unwrap();
        assert_eq!((stored.generation, &stored.key), (before.generation, &before.key));
        assert_eq!(stored.attachments, before.attachments);
        assert_eq!(sessions.take_restored(), [id], "{first}");
        assert_fails!(sessions.find_by_id(&eve(), id).await, SessionOpenError::Unknown);
    }
    assert_eq!(*lost.lock().unwrap(), []);
}

/// A write to a held session that the store forgot stores the session again first.
#[tokio::test]
async fn write_to_a_forgotten_session_stores_it_again() {
    let world = World::new();
    let sessions = world.process_with(RESTORING()).await;
    let session = sessions.open(&chat("a")).await.unwrap().session;
    let remove = async || {
        let record = session.record();
        world.store.remove(record.id, record.holder).await.unwrap();
    };
    remove().await;
    sessions.set_expiry(&session, Expiry::NEVER).await.unwrap();
    remove().await;
    sessions.put_connection(&session, &Handle::generate(), b"body").await.unwrap();
    remove().await;
    sessions.issue_handle(&session).await.unwrap();
    assert_eq!(sessions.take_restored(), [session.id(); 3]);
    let stored = world.store.load(session.id()).await.unwrap().unwrap();
    assert_eq!(stored.expiry, Expiry::NEVER);
}

/// Invariant 3: if another process has taken the key of a forgotten session, the session is lost, and clients of the key
/// get that once.
#[tokio::test]
async fn forgotten_session_whose_key_is_taken_is_lost() {
    let world = World::new();
    let (one, two) = (world.process_with(RESTORING()).await, world.process_with(RESTORING()).await);
    let lost = record_losses(&one);
    let opened = one.open(&chat("a")).await.unwrap().session;
    let attachment = Attachment::new(Generation(0), "child");
    one.change(&opened, |record| record.attach("shell", attachment.clone())).await.unwrap();
    forget(&world, &opened.record()).await;
    let (id, other) = (opened.id(), two.open(&chat("a")).await.unwrap().session);
    drop(opened);
    assert_eq!(one.renew().await.unwrap(), LeaseRenewal::Replaced);
    one.reclaim().await;
    assert_eq!(*lost.lock().unwrap(), [(id, LostReason::Moved)]);
    // A client that has the id gets the loss.
    let left = one.find_by_id(&ann(), id).await.unwrap();
    assert_eq!(
        (left.record().key.as_ref(), left.unacknowledged_loss_on("shell")),
        (None, Some(Generation(1)))
    );
    // Clients of the key get it, too.
    assert_fails!(one.open(&chat("a")).await, SessionOpenError::HeldElsewhere { .. });
    let other_id = other.id();
    drop(other);
    two.close().await.unwrap();
    let found = one.open(&chat("a")).await.unwrap();
    assert_eq!((found.session.id(), found.origin), (other_id, Origin::Lost(Generation(1))));
    one.acknowledge_loss(&found.session, Generation(1)).await.unwrap();
    assert_eq!(one.open(&chat("a")).await.unwrap().origin, Origin::Existing);
}

// ── a store that fails ──────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn unavailable_store_is_an_error_and_loses_nothing() {
    let world = World::new();
    let (faulty, sessions) = world.faulty_process(SessionLimits::default()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE);
    drop(sessions.open(&chat("a")).await.unwrap());
    faulty.fail(true);
    let error = sessions.open(&chat("b")).await.unwrap_err();
    assert!(matches!(error, SessionOpenError::Store(StoreError::Unavailable { .. })));
    assert_eq!(error.retry(), Retry::Later);
    assert!(sessions.open(&chat("a")).await.is_ok(), "a held session works");
    assert!(sessions.flush().await.is_err());
    world.clock.advance(MINUTE * 60);
    let swept = sessions.sweep().await;
    assert!(swept.error.is_some() && swept.ended.is_empty());
    faulty.fail(false);
    assert_eq!(ids(&sessions.sweep().await.ended), [id], "it ends when the store is back");
    assert!(sessions.open(&chat("b")).await.is_ok());
}

/// A process that restarts under its old holder id gets its sessions at once; under another one it
/// waits.
#[tokio::test]
async fn restart_under_the_same_holder_id_needs_no_wait() {
    let world = World::new();
    let named = |holder: Holder| {
        let settings = Settings { lease: Duration::MAX, ..Settings::default() };
        Sessions::start(world.store.clone(), world.clock.clone(), holder, settings)
    };
    let holder = Holder::unreachable();
    let first = named(holder.clone()).await.unwrap();
    let id = first.open(&chat("a")).await.unwrap().session.id();
    // Killed: its lease is not released.
    std::mem::forget(first);
    let other = named(Holder::unreachable()).await.unwrap();
    assert_fails!(other.find_by_id(&ann(), id).await, SessionOpenError::HeldElsewhere { .. });
    let again = named(holder).await.unwrap();
    assert_eq!(again.find_by_id(&ann(), id).await.unwrap().id(), id);
}

/// A process that hands its sessions over serves those that it holds, and names the process for all others: the one that
/// holds a session, or its successor.
#[tokio::test]
async fn process_that_hands_over_claims_and_creates_nothing() {
    let world = World::new();
    let (leaving, other, next) =
        (world.process().await, world.process().await, world.process().await);
    drop(leaving.open(&chat("held")).await.unwrap());
    drop(other.open(&chat("elsewhere")).await.unwrap());
    drop(other.open(&chat("free")).await.unwrap());
    let own = other.open(&chat("own")).await.unwrap().session.id();
    let may_move =
        |session: &Session| session.record().key != Some(Key::named("elsewhere").unwrap());
    other
        .release_idle(Duration::ZERO, |it| may_move(it) && it.id() != own, |_| async {})
        .await
        .unwrap();
    let successor = next.holder().clone();
    leaving.begin_hand_over(move || Some(successor.clone()));
    drop(leaving.open(&chat("held")).await.unwrap());
    let to = async |name| match leaving.open(&chat(name)).await {
        Err(SessionOpenError::HeldElsewhere { holder }) => holder.id,
        opened => panic!("{opened:?}"),
    };
    assert_eq!(to("elsewhere").await, other.holder().id);
    assert_eq!(to("free").await, next.holder().id, "released");
    assert_eq!(to("new").await, next.holder().id);
    let released = leaving.release_idle(Duration::ZERO, |_| true, |_| async {}).await.unwrap();
    assert_eq!((released, leaving.count()), (1, 0));
    assert_eq!(to("held").await, next.holder().id);
    assert_eq!(next.open(&chat("held")).await.unwrap().origin, Origin::Existing);
    assert_eq!(to("held").await, next.holder().id);
}
