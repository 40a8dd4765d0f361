//! Opening, finding, keeping and ending sessions.

// Helpers stand outside of the tests that the lint knows.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "sessions/connections.rs"]
mod connections;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use stayput_core::{
    Agent, Attachment, Clock, EndReason, Expiry, Generation, Handle, Holder, Key, ManualClock,
    MemoryStore, OpenError, Origin, Owner, Record, Renewed, Retry, SessionId, SessionLimits,
    Sessions, Settings, State, StateError, StateLimits, Store, StoreError, Timestamp, Wish,
};
use stayput_testkit::faulty::Faulty;

const MINUTE: Duration = Duration::from_secs(60);

/// A store, a clock, and processes on top of them.
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

    /// A process on the same store, which can be told to fail or to wait.
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

fn chat(name: &str) -> Wish {
    Wish::keyed(ann(), Agent::none(), Key::named(name).unwrap())
}

fn ids(records: &[Record]) -> Vec<SessionId> {
    records.iter().map(|record| record.id).collect()
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
async fn a_key_leads_to_one_session() {
    let sessions = World::new().process().await;
    let first = sessions.open(&chat("a")).await.unwrap();
    assert_eq!(first.origin, Origin::Fresh);
    let again = sessions.open(&chat("a")).await.unwrap();
    assert_eq!((again.origin, again.session.id()), (Origin::Kept, first.session.id()));
    let other = sessions.open(&chat("b")).await.unwrap();
    assert_ne!(other.session.id(), first.session.id());
    let unnamed = sessions.open(&Wish::new(ann())).await.unwrap();
    assert_ne!(unnamed.session.id(), sessions.open(&Wish::new(ann())).await.unwrap().session.id());
    let key = Key::named("a").unwrap();
    let found = sessions.by_key(&ann(), &Agent::none(), &key).await.unwrap();
    assert_eq!(found.id(), first.session.id());
    assert_fails!(sessions.by_key(&eve(), &Agent::none(), &key).await, OpenError::Unknown);
    let agent = Agent::named("x").unwrap();
    assert_fails!(sessions.by_key(&ann(), &agent, &key).await, OpenError::Unknown);
}

/// Invariant 4, R019, R129: fifty first calls at once make one session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_opens_make_one_session() {
    let world = World::new();
    let sessions = Arc::new(world.process().await);
    for round in 0..20 {
        let wish = chat(&format!("chat-{round}"));
        let opening = (0..50).map(|_| {
            let (sessions, wish) = (sessions.clone(), wish.clone());
            tokio::task::spawn_blocking(move || {
                tokio::runtime::Handle::current()
                    .block_on(async { sessions.open(&wish).await.unwrap() })
            })
        });
        let opened: Vec<_> = join_all(opening).await.into_iter().map(Result::unwrap).collect();
        let fresh = opened.iter().filter(|it| it.origin == Origin::Fresh).count();
        assert_eq!(fresh, 1, "round {round}");
        assert!(opened.iter().all(|it| it.session.id() == opened[0].session.id()));
        assert_eq!(world.store.list(None, None, 99).await.unwrap().len(), round + 1);
    }
}

/// E30, E31, invariant 1: unknown and foreign are the same, by every name a session has.
#[tokio::test]
async fn a_foreign_session_is_an_unknown_one() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    let id = opened.session.id();
    assert_eq!(sessions.by_handle(&ann(), &handle).await.unwrap().id(), id);
    assert_eq!(sessions.by_id(&ann(), id).await.unwrap().id(), id);
    let unknown = SessionId::generate(world.clock.now());
    let answers = [
        sessions.by_handle(&eve(), &handle).await.unwrap_err(),
        sessions.by_handle(&eve(), &Handle::generate()).await.unwrap_err(),
        sessions.by_handle(&ann(), &Handle::generate()).await.unwrap_err(),
        sessions.by_id(&eve(), id).await.unwrap_err(),
        sessions.by_id(&eve(), unknown).await.unwrap_err(),
        sessions.revive(&eve(), id).await.unwrap_err(),
    ];
    for answer in answers {
        assert_fails!(Err::<(), _>(&answer), OpenError::Unknown);
        assert_eq!(answer.to_string(), "there is no such session; open a new one");
    }
    sessions.end(opened.session.session()).await.unwrap();
    assert_fails!(sessions.by_handle(&ann(), &handle).await, OpenError::Over(_));
    assert_fails!(sessions.by_handle(&eve(), &handle).await, OpenError::Unknown);
    assert_fails!(sessions.by_id(&eve(), id).await, OpenError::Unknown);
}

#[tokio::test]
async fn every_handle_that_was_issued_is_good() {
    let sessions = World::new().process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    for _ in 0..3 {
        let handle = sessions.issue_handle(&opened.session).await.unwrap();
        for _ in 0..2 {
            let found = sessions.by_handle(&ann(), &handle).await.unwrap();
            assert_eq!(found.id(), opened.session.id());
        }
    }
}

/// A held session is found without the store: "no database on the hot path".
#[tokio::test]
async fn a_held_session_is_found_without_the_store() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    drop(sessions.by_handle(&ann(), &handle).await.unwrap());
    // Behind the back of the process, the store forgets it; nobody here notices until it writes.
    let lease = world.store.load(opened.session.id()).await.unwrap().unwrap().holder;
    world.store.remove(opened.session.id(), lease).await.unwrap();
    assert_eq!(sessions.open(&chat("a")).await.unwrap().origin, Origin::Kept);
    assert!(sessions.by_handle(&ann(), &handle).await.is_ok());
    assert!(sessions.by_id(&ann(), opened.session.id()).await.is_ok());
    assert_fails!(
        sessions.extend(&opened.session, Expiry::NEVER).await,
        OpenError::Store(StoreError::Missing)
    );
}

// ── expiry ──────────────────────────────────────────────────────────────────────────────────────────

/// R033, R059, R071, E20: the idle clock starts when the last use ended.
#[tokio::test]
async fn an_unused_session_idles_out_and_its_owner_is_told() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    let id = opened.session.id();
    drop(opened);
    world.clock.advance(MINUTE * 29);
    drop(sessions.by_id(&ann(), id).await.unwrap());
    world.clock.advance(MINUTE * 29);
    assert!(sessions.sweep().await.ended.is_empty(), "used 29 minutes ago");
    world.clock.advance(MINUTE);
    let swept = sessions.sweep().await;
    assert_eq!(ids(&swept.ended), [id]);
    assert_eq!(swept.ended[0].ended.unwrap().reason, EndReason::Idle);
    assert!(sessions.sweep().await.ended.is_empty(), "told once");
    let error = sessions.by_handle(&ann(), &handle).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("session {id} expired after 30 min idle; its state is gone, open a new one")
    );
    assert_eq!(error.retry(), Retry::Never);
}

/// R069, E33: whoever insists on a new session does not get somebody else's.
#[tokio::test]
async fn a_new_session_takes_nobodys_key() {
    let world = World::new();
    let one = world.process().await;
    let id = SessionId::generate(world.clock.now());
    let made = one.open_new(&chat("a").id(id)).await.unwrap();
    assert_eq!((made.session.id(), made.origin), (id, Origin::Fresh));
    let refused = one.open_new(&chat("a")).await.unwrap_err();
    assert!(matches!(refused, OpenError::Store(StoreError::Taken { by }) if by == id));
    assert_eq!(one.open(&chat("a")).await.unwrap().session.id(), id);
    drop(made);
    world.clock.advance(MINUTE * 30);
    // Its time has come, though nobody has swept yet.
    assert_ne!(one.open_new(&chat("a")).await.unwrap().session.id(), id);
}

/// Invariant 3: a loss is told to everybody who comes, until somebody says that it was told; a restart
/// in between changes nothing.
#[tokio::test]
async fn a_loss_is_told_until_it_was_told() {
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
    assert_eq!((opened.origin, opened.session.lost()), (lost, Some(Generation(1))));
    two.told(&opened.session, Generation(1)).await.unwrap();
    assert_eq!(two.open(&chat("a")).await.unwrap().origin, Origin::Kept);
    assert_eq!(opened.session.lost(), None);
}

/// Invariant 7: a session with a call in flight never idles out.
#[tokio::test]
async fn a_session_in_use_never_idles_out() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let (id, second) =
        (opened.session.id(), sessions.by_id(&ann(), opened.session.id()).await.unwrap());
    for _ in 0..5 {
        world.clock.advance(MINUTE * 60);
        sessions.flush().await.unwrap();
        assert!(sessions.sweep().await.ended.is_empty());
        let kept = world.store.load(id).await.unwrap().unwrap();
        assert!(kept.is_live());
        assert_eq!(kept.last_used, world.clock.now(), "and others see that it is used");
    }
    drop(opened);
    world.clock.advance(MINUTE * 40);
    assert!(sessions.sweep().await.ended.is_empty(), "one of two uses is left");
    drop(second);
    assert!(sessions.sweep().await.ended.is_empty(), "idle from now on");
    world.clock.advance(MINUTE * 30);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
}

/// Age is checked at the door: who is inside stays, nobody else gets in.
#[tokio::test]
async fn a_session_of_full_age_lets_nobody_in() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    world.clock.advance(MINUTE * 60 * 24);
    assert!(sessions.sweep().await.ended.is_empty(), "in use");
    let next = sessions.open(&chat("a")).await.unwrap();
    assert_ne!(next.session.id(), opened.session.id());
    assert!(matches!(next.origin, Origin::Lost(_)));
    assert!(opened.session.is_over() && opened.session.is_in_use());
    assert!(sessions.sweep().await.ended.is_empty(), "its links are still needed");
    let id = opened.session.id();
    drop(opened);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
}

/// An expired session is over when its time comes, not when a sweep comes by.
#[tokio::test]
async fn an_expired_session_is_not_found_before_the_sweep() {
    let world = World::new();
    let sessions = world.process().await;
    let first = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    assert_fails!(sessions.by_id(&ann(), first).await, OpenError::Over(_));
    let opened = sessions.open(&chat("a")).await.unwrap();
    assert_eq!(opened.origin, Origin::Lost(Generation(1)), "invariant 3: the loss is told");
    assert_ne!(opened.session.id(), first);
    assert_eq!(
        ids(&sessions.sweep().await.ended),
        [first],
        "its links must be closed all the same"
    );
}

/// E33: `extend` really extends, here and in the store.
#[tokio::test]
async fn extend_really_extends() {
    let world = World::new();
    let sessions = world.process().await;
    let id = {
        let opened = sessions.open(&chat("a")).await.unwrap();
        sessions.extend(&opened.session, Expiry::idle(MINUTE * 90)).await.unwrap();
        opened.session.id()
    };
    world.clock.advance(MINUTE * 89);
    assert!(sessions.sweep().await.ended.is_empty());
    assert!(world.store.due(world.clock.now(), None, 9).await.unwrap().is_empty());
    world.clock.advance(MINUTE);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
}

/// What a dead process left behind is ended by the others.
#[tokio::test]
async fn a_sweep_ends_what_nobody_holds() {
    let world = World::new();
    let settings = Settings { lease: MINUTE, ..Settings::default() };
    let dead = world.process_with(settings).await;
    let id = dead.open(&chat("a")).await.unwrap().session.id();
    let sessions = world.process().await;
    world.clock.advance(MINUTE * 30);
    assert_eq!(ids(&sessions.sweep().await.ended), [id]);
    assert!(!world.store.load(id).await.unwrap().unwrap().is_live());
}

/// A live holder alone knows whether its session is in use.
#[tokio::test]
async fn a_sweep_leaves_alone_what_others_hold() {
    let world = World::new();
    let (holder, other) = (world.process().await, world.process().await);
    let opened = holder.open(&chat("a")).await.unwrap();
    world.clock.advance(MINUTE * 60);
    assert!(other.sweep().await.ended.is_empty());
    assert!(world.store.load(opened.session.id()).await.unwrap().unwrap().is_live());
}

#[tokio::test]
async fn tombstones_are_forgotten_after_their_retention() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    world.clock.advance(MINUTE * 60 * 24 * 7);
    assert_eq!(sessions.sweep().await.purged, 0);
    assert_fails!(sessions.by_handle(&ann(), &handle).await, OpenError::Over(_));
    world.clock.advance(MINUTE);
    assert_eq!(sessions.sweep().await.purged, 1);
    assert_fails!(sessions.by_handle(&ann(), &handle).await, OpenError::Unknown);
    assert_eq!(sessions.open(&chat("a")).await.unwrap().origin, Origin::Fresh);
}

// ── ending ──────────────────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn an_ended_session_says_what_to_close() {
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
    assert!(sessions.sweep().await.ended.is_empty(), "somebody is still inside");
    drop(opened);
    let swept = sessions.sweep().await;
    assert_eq!(swept.ended[0].attachments["browser"], attachment);
    assert_eq!(swept.ended.len(), 1);
    let tombstone = world.store.load(session.id()).await.unwrap().unwrap();
    assert!(tombstone.attachments.is_empty() && tombstone.holder.is_none());
    let next = sessions.open(&chat("a")).await.unwrap();
    assert_eq!(next.origin, Origin::Lost(Generation(3)), "above every generation of before");
    assert_fails!(sessions.by_id(&ann(), session.id()).await, OpenError::Over(_));
}

/// E37: an end that is cancelled at any point is finished by the next sweep, and leaks nothing.
#[tokio::test]
async fn a_cancelled_end_is_finished_by_the_sweep() {
    let world = World::new();
    let (slow, sessions) = world.faulty_process(SessionLimits::default()).await;
    let session = sessions.open(&chat("a")).await.unwrap().session.session().clone();
    slow.hang(true);
    let mut ending = Box::pin(sessions.end(&session));
    assert!(futures_util::poll!(&mut ending).is_pending());
    drop(ending);
    slow.hang(false);
    assert!(session.is_over());
    assert_eq!(ids(&sessions.sweep().await.ended), [session.id()]);
    assert!(!world.store.load(session.id()).await.unwrap().unwrap().is_live());
}

/// Invariant 6: an open that is cancelled at any point leaks nothing and keeps nobody out.
#[tokio::test]
async fn a_cancelled_open_leaves_the_key_usable() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 1, ..SessionLimits::default() };
    let (slow, sessions) = world.faulty_process(limits).await;
    for steps in 1.. {
        let done = slow.cut(steps, sessions.open(&chat("a"))).await.is_some();
        // The place that was promised is free again, and the key leads somewhere.
        let opened = sessions.open(&chat("a")).await.unwrap();
        let session = opened.session.session().clone();
        drop(opened);
        sessions.end(&session).await.unwrap();
        assert_eq!(sessions.sweep().await.ended.len(), 1);
        assert!(sessions.held().is_empty());
        if done {
            assert!(steps > 1, "the open never had to wait");
            return;
        }
        assert!(steps < 100, "the open never ends");
    }
}

/// A session that ended while another opener had just read it is not held as if it lived.
#[tokio::test]
async fn what_ended_meanwhile_is_not_held() {
    let world = World::new();
    let before = world.process().await;
    let id = before.open(&chat("a")).await.unwrap().session.id();
    before.close().await.unwrap();
    let (slow, sessions) = world.faulty_process(SessionLimits::default()).await;
    // One opener has claimed the session and waits for the answer …
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    let claimed = async || world.store.load(id).await.unwrap().unwrap().holder.unwrap().holder;
    while claimed().await != sessions.holder().id {
        slow.step();
        assert!(futures_util::poll!(&mut opening).is_pending());
    }
    // … while another one opens it too and ends it.
    slow.hang(false);
    let other = sessions.open(&wish).await.unwrap();
    assert_eq!((other.session.id(), other.origin), (id, Origin::Kept));
    sessions.end(other.session.session()).await.unwrap();
    slow.step();
    let opened = opening.await.unwrap();
    assert_ne!(opened.session.id(), id);
    assert_eq!(opened.origin, Origin::Lost(Generation(1)));
    assert_eq!(sessions.held().len(), 1);
}

/// Two updates at once, on a store that lets them meet: none is lost.
#[tokio::test]
async fn updates_that_meet_are_tried_again() {
    let store: Arc<dyn Store> = Arc::new(Faulty::new(World::new().store));
    stayput_core::promises::concurrent_updates_lose_nothing(store).await;
}

/// Invariant 2: an update whose write may have happened is not tried again.
#[tokio::test]
async fn an_update_is_not_repeated_when_its_outcome_is_unknown() {
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
    assert_eq!(state.get::<u32>("n").await.unwrap(), Some(1), "it did happen, once");
}

#[tokio::test]
async fn a_revived_session_has_its_id_and_says_lost() {
    let world = World::new();
    let sessions = world.process().await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    assert_eq!(sessions.sweep().await.ended.len(), 1);
    let revived = sessions.revive(&ann(), id).await.unwrap();
    assert_eq!((revived.session.id(), revived.origin), (id, Origin::Lost(Generation(1))));
    assert_eq!(sessions.open(&chat("a")).await.unwrap().session.id(), id);
    let again = sessions.revive(&ann(), id).await.unwrap().origin;
    assert_eq!(again, Origin::Lost(Generation(1)), "it lives, but nobody was told yet");
    sessions.told(&revived.session, Generation(1)).await.unwrap();
    assert_eq!(sessions.revive(&ann(), id).await.unwrap().origin, Origin::Kept);
    drop(revived);
    world.clock.advance(MINUTE * 29);
    assert!(sessions.sweep().await.ended.is_empty(), "its time begins anew");
}

// ── provisional sessions and limits ─────────────────────────────────────────────────────────────────

#[tokio::test]
async fn a_provisional_session_ends_soon_unless_its_handle_comes_back() {
    let world = World::new();
    let sessions = world.process().await;
    let mint = async || {
        let opened = sessions.open(&Wish::new(ann()).provisional()).await.unwrap();
        let handle = sessions.issue_handle(&opened.session).await.unwrap();
        (opened.session.id(), handle)
    };
    let (forgotten, _) = mint().await;
    let (wanted, handle) = mint().await;
    drop(sessions.by_handle(&ann(), &handle).await.unwrap());
    world.clock.advance(MINUTE * 2);
    assert_eq!(ids(&sessions.sweep().await.ended), [forgotten]);
    let record = world.store.load(wanted).await.unwrap().unwrap();
    assert!(!record.provisional && record.expiry == Expiry::default());
    world.clock.advance(MINUTE * 27);
    assert!(sessions.by_handle(&ann(), &handle).await.is_ok());
}

/// Whoever ends a session on behalf of one client has to know whether another one counts on it.
#[tokio::test]
async fn that_a_handle_led_to_a_session_is_known_for_ever() {
    let world = World::new();
    let sessions = world.process().await;
    let session = sessions.open(&Wish::new(ann())).await.unwrap().session;
    let handle = sessions.issue_handle(&session).await.unwrap();
    let kept = async || world.store.load(session.id()).await.unwrap().unwrap();
    assert!(!session.record().named && !kept().await.named, "given out, and not come back yet");
    let expiry = session.record().expiry;
    drop(sessions.by_handle(&ann(), &handle).await.unwrap());
    assert!(session.record().named && kept().await.named);
    assert_eq!(kept().await.expiry, expiry);
}

#[tokio::test]
async fn an_owner_sees_its_own_sessions_page_by_page() {
    let world = World::new();
    let sessions = world.process().await;
    let mut mine = Vec::new();
    for name in ["a", "b", "c"] {
        mine.push(sessions.open(&chat(name)).await.unwrap().session.id());
        world.clock.advance(Duration::from_millis(1));
    }
    drop(sessions.open(&Wish::new(eve())).await.unwrap());
    let page = sessions.list(&ann(), None, 2).await.unwrap();
    assert_eq!(ids(&page), mine[..2]);
    let rest = sessions.list(&ann(), Some(mine[1]), 2).await.unwrap();
    assert_eq!(ids(&rest), mine[2..]);
}

#[tokio::test]
async fn at_a_limit_the_oldest_provisional_session_makes_room() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 4, provisional_per_owner: 2 };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let sessions = world.process_with(settings).await;
    let mut minted = Vec::new();
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(1));
        let opened = sessions.open(&Wish::new(ann()).provisional()).await.unwrap();
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
    assert!(matches!(error, OpenError::AtCapacity { limit: 4 }), "{error:?}");
    assert_eq!(error.retry(), Retry::Later);
    assert!(sessions.open(&chat("a")).await.is_ok(), "what there is can be used");
    let other = Wish::keyed(eve(), Agent::none(), Key::named("e").unwrap());
    assert!(sessions.open(&other).await.is_ok(), "one owner's limit is not another's");
    sessions.end(sessions.open(&chat("a")).await.unwrap().session.session()).await.unwrap();
    assert!(sessions.open(&chat("e")).await.is_ok());
}

#[tokio::test]
async fn a_provisional_session_in_use_makes_no_room() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 9, provisional_per_owner: 1 };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let sessions = world.process_with(settings).await;
    let wish = Wish::new(ann()).provisional();
    let opened = sessions.open(&wish).await.unwrap();
    assert_fails!(sessions.open(&wish).await, OpenError::AtCapacity { limit: 1 });
    drop(opened);
    assert!(sessions.open(&wish).await.is_ok());
}

/// The limit holds against many openers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_openers_at_the_limit_none_gets_past_it() {
    let world = World::new();
    let limits = SessionLimits { per_owner: 10, ..SessionLimits::default() };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let sessions = Arc::new(world.process_with(settings).await);
    let opening = (0..50).map(|n| {
        let sessions = sessions.clone();
        tokio::task::spawn_blocking(move || {
            let wish = chat(&n.to_string());
            tokio::runtime::Handle::current().block_on(async { sessions.open(&wish).await.is_ok() })
        })
    });
    let opened = join_all(opening).await.into_iter().filter(|it| *it.as_ref().unwrap()).count();
    assert_eq!(opened, 10);
    assert_eq!(world.store.list(None, None, 99).await.unwrap().len(), 10);
}

// ── several processes ───────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn what_another_process_holds_is_named_not_stolen() {
    let world = World::new();
    let (one, two) = (world.process().await, world.process().await);
    let opened = one.open(&chat("a")).await.unwrap();
    let handle = one.issue_handle(&opened.session).await.unwrap();
    for answer in [
        two.open(&chat("a")).await.map(|it| it.session),
        two.by_handle(&ann(), &handle).await,
        two.by_id(&ann(), opened.session.id()).await,
    ] {
        match answer {
            Err(OpenError::HeldElsewhere { holder }) => assert_eq!(&holder, one.holder()),
            other => panic!("{other:?}"),
        }
    }
    assert_fails!(two.by_handle(&eve(), &handle).await, OpenError::Unknown);
}

/// A process that was killed and started again under its name does not wait for its own lease.
#[tokio::test]
async fn a_process_takes_over_from_an_earlier_one_of_its_name() {
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
    assert_fails!(stranger.open(&chat("a")).await, OpenError::HeldElsewhere { .. });
    let found = again.by_id(&ann(), opened.session.id()).await.unwrap();
    assert_eq!(found.id(), opened.session.id());
    // What the earlier one still writes is refused, and the other one waits as before.
    let late = killed.extend(&opened.session, Expiry::NEVER).await;
    assert_fails!(late, OpenError::Store(StoreError::NotHolder));
    assert_fails!(stranger.open(&chat("a")).await, OpenError::HeldElsewhere { .. });
    assert_eq!(again.renew().await.unwrap(), Renewed::Kept);
}

/// A restart on the same store: sessions are known, state is there, times of use were written back.
#[tokio::test]
async fn after_a_clean_end_another_process_goes_on() {
    let world = World::new();
    let one = world.process().await;
    let opened = one.open(&chat("a")).await.unwrap();
    let (id, handle) = (opened.session.id(), one.issue_handle(&opened.session).await.unwrap());
    one.state(&opened.session).unwrap().set("n", &41).await.unwrap();
    world.clock.advance(MINUTE * 5);
    drop(opened);
    let used = world.clock.now();
    one.close().await.unwrap();
    assert_eq!(one.lost().len(), 1);
    world.clock.advance(MINUTE * 29);
    let two = world.process().await;
    assert!(two.sweep().await.ended.is_empty());
    let found = two.by_handle(&ann(), &handle).await.unwrap();
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
    assert_eq!(two.open(&chat("a")).await.unwrap().origin, Origin::Kept);
}

/// §7: who cannot renew stops by itself, before others may take over.
#[tokio::test]
async fn a_process_without_its_lease_uses_nothing() {
    let world = World::new();
    let settings = Settings { lease: MINUTE, ..Settings::default() };
    let late = world.process_with(settings).await;
    let opened = late.open(&chat("a")).await.unwrap();
    world.clock.advance(Duration::from_secs(54));
    assert_fails!(late.open(&chat("a")).await, OpenError::LeaseLost);
    assert_fails!(late.open(&chat("b")).await, OpenError::LeaseLost);
    assert_fails!(late.state(&opened.session), OpenError::LeaseLost);
    assert!(matches!(late.renew().await.unwrap(), Renewed::Kept), "it was not too late");
    assert!(late.open(&chat("a")).await.is_ok());

    world.clock.advance(MINUTE);
    let next = world.process_with(settings).await;
    let taken = next.open(&chat("a")).await.unwrap();
    assert_eq!((taken.origin, taken.session.id()), (Origin::Kept, opened.session.id()));
    assert_eq!(late.renew().await.unwrap(), Renewed::Regained);
    assert_eq!(late.lost().len(), 1);
    assert!(opened.session.is_over() && late.held().is_empty());
    let refused = late.extend(&opened.session, Expiry::NEVER).await;
    assert_fails!(refused, OpenError::Store(StoreError::NotHolder));
    let refused = late.issue_handle(&opened.session).await;
    assert_fails!(refused, OpenError::Store(StoreError::NotHolder));
    assert_fails!(late.open(&chat("a")).await, OpenError::HeldElsewhere { .. });
    assert!(late.open(&chat("b")).await.is_ok(), "with a new lease it goes on");
}

/// A write that is refused tells a process that its session is another's now.
#[tokio::test]
async fn a_refused_write_lets_go_of_the_session() {
    let world = World::new();
    let (one, two) = (world.process().await, world.process().await);
    let opened = one.open(&chat("a")).await.unwrap();
    let lease = opened.session.record().holder.unwrap();
    world.store.release(opened.session.id(), lease).await.unwrap();
    drop(two.open(&chat("a")).await.unwrap());
    assert_fails!(
        one.extend(&opened.session, Expiry::NEVER).await,
        OpenError::Store(StoreError::NotHolder)
    );
    assert!(opened.session.is_over() && one.held().is_empty());
    assert_eq!(one.lost()[0].id(), opened.session.id());
    assert_fails!(one.open(&chat("a")).await, OpenError::HeldElsewhere { .. });
}

/// R058: when a session was made and last used is known, and survives the process.
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
        drop(sessions.by_id(&ann(), *id).await.unwrap());
    }
    assert_eq!(sessions.flush().await.unwrap(), 600);
    assert_eq!(sessions.flush().await.unwrap(), 0);
    let record = world.store.load(all[599]).await.unwrap().unwrap();
    assert_eq!(record.last_used, world.clock.now());
    assert_eq!(record.revision, stayput_core::Revision(0), "a touch is no change");
}

/// R058: what is used all the time is not written all the time; what the store knows is never too old by more than a
/// thirtieth of the idle time.
#[tokio::test]
async fn times_of_use_are_written_back_when_they_matter() {
    let world = World::new();
    let sessions = world.process().await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    // A thirtieth of half an hour is nearly four steps.
    let step = MINUTE / 4;
    let mut written = 0;
    for _ in 0..32 {
        world.clock.advance(step);
        drop(sessions.by_id(&ann(), id).await.unwrap());
        written += sessions.write_back().await.unwrap();
        let known = world.store.load(id).await.unwrap().unwrap().last_used;
        assert!(world.clock.now() < known.after(MINUTE), "{known:?}");
    }
    assert_eq!(written, 8);
    world.clock.advance(step);
    drop(sessions.by_id(&ann(), id).await.unwrap());
    assert_eq!(sessions.write_back().await.unwrap(), 0);
    let told = sessions.list(&ann(), None, 1).await.unwrap();
    assert_eq!(
        told[0].last_used,
        world.clock.now(),
        "whoever asks here is told what is known here"
    );
    assert_eq!(sessions.flush().await.unwrap(), 1, "before the end all is written");
    world.clock.advance(MINUTE);
    assert_eq!(sessions.write_back().await.unwrap(), 0, "nobody used it");
}

// ── a store that fails ──────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn a_store_that_is_gone_is_an_error_and_loses_nothing() {
    let world = World::new();
    let (faulty, sessions) = world.faulty_process(SessionLimits::default()).await;
    let kept = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE);
    drop(sessions.open(&chat("a")).await.unwrap());
    faulty.fail(true);
    let error = sessions.open(&chat("b")).await.unwrap_err();
    assert!(matches!(error, OpenError::Store(StoreError::Unavailable { .. })));
    assert_eq!(error.retry(), Retry::Later);
    assert!(sessions.open(&chat("a")).await.is_ok(), "what is held goes on");
    assert!(sessions.flush().await.is_err());
    world.clock.advance(MINUTE * 60);
    let swept = sessions.sweep().await;
    assert!(swept.error.is_some() && swept.ended.is_empty());
    faulty.fail(false);
    assert_eq!(ids(&sessions.sweep().await.ended), [kept], "and is ended when the store is back");
    assert!(sessions.open(&chat("b")).await.is_ok());
}

/// A process that comes back under its old name has at once what it held; under another name it waits.
#[tokio::test]
async fn who_comes_back_under_its_name_does_not_wait_for_itself() {
    let world = World::new();
    let named = |holder: Holder| {
        let settings = Settings { lease: Duration::MAX, ..Settings::default() };
        Sessions::start(world.store.clone(), world.clock.clone(), holder, settings)
    };
    let holder = Holder::unreachable();
    let first = named(holder.clone()).await.unwrap();
    let id = first.open(&chat("a")).await.unwrap().session.id();
    // Killed: it says nothing to the store.
    std::mem::forget(first);
    let other = named(Holder::unreachable()).await.unwrap();
    assert_fails!(other.by_id(&ann(), id).await, OpenError::HeldElsewhere { .. });
    let again = named(holder).await.unwrap();
    assert_eq!(again.by_id(&ann(), id).await.unwrap().id(), id);
}
