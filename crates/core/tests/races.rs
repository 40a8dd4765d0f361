//! What happens at once, half-way or against a store that fails: nothing is lost, leaked or held twice.

// Helpers stand outside of the tests that the lint knows.
#![allow(clippy::unwrap_used, clippy::panic)]

use futures_util::future::join_all;
use stayput_core::{
    Agent, Attachment, Connection, Expiry, Generation, Handle, Holder, Key, ManualClock,
    MemoryStore, OpenError, Origin, Owner, Renewed, SessionId, SessionLimits, Sessions, Settings,
    Store, Timestamp, Wish,
};
use stayput_testkit::faulty::Faulty;
use std::{sync::Arc, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);
struct World {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
}
impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        Self { store: Arc::new(MemoryStore::new(clock.clone())), clock }
    }
    async fn on(&self, store: Arc<dyn Store>, settings: Settings) -> Sessions {
        Sessions::start(store, self.clock.clone(), Holder::at("x").unwrap(), settings)
            .await
            .unwrap()
    }
    async fn process(&self) -> Sessions {
        self.on(self.store.clone(), forever()).await
    }
}
fn forever() -> Settings {
    Settings { lease: Duration::MAX, ..Settings::default() }
}
fn ann() -> Owner {
    Owner::verified("https://i", "ann").unwrap()
}
fn chat(name: &str) -> Wish {
    Wish::keyed(ann(), Agent::none(), Key::named(name).unwrap())
}
async fn poll_steps<F: Future + Unpin>(slow: &Faulty, f: &mut F, n: usize) -> bool {
    for _ in 0..n {
        slow.step();
        for _ in 0..3 {
            if futures_util::poll!(&mut *f).is_ready() {
                return true;
            }
            tokio::task::yield_now().await;
        }
    }
    false
}

/// close() during a sweep: sessions are let go, not ended.
#[tokio::test]
async fn close_during_sweep_ends_nothing() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    for n in 0..8 {
        drop(sessions.open(&chat(&format!("due{n}")).expiry(Expiry::idle(MINUTE))).await.unwrap());
    }
    let mut keep = vec![];
    for n in 0..40 {
        keep.push(
            sessions
                .open(&chat(&format!("k{n}")).expiry(Expiry::NEVER))
                .await
                .unwrap()
                .session
                .id(),
        );
    }
    world.clock.advance(MINUTE);
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    poll_steps(&slow, &mut sweep, 1).await; // inside the first finish
    slow.hang(false);
    sessions.close().await.unwrap();
    slow.step();
    slow.step();
    let _ = sweep.await;
    let mut dead = 0;
    for id in &keep {
        if !world.store.load(*id).await.unwrap().unwrap().is_live() {
            dead += 1;
        }
    }
    assert_eq!(dead, 0, "of 40 sessions that never expire, ended by sweep during close");
}

/// after close() nothing may be opened under the lease that was given up.
#[tokio::test]
async fn after_close_nothing_is_held() {
    let world = World::new();
    let one = world.process().await;
    one.close().await.unwrap();
    let mine = one.open(&chat("a")).await;
    let two = world.process().await;
    let theirs = two.open(&chat("a")).await;
    assert!(
        !(mine.is_ok() && theirs.is_ok()),
        "two processes hold {:?}",
        theirs.unwrap().session.id()
    );
}

/// renew: lost, then hold fails: the lost sessions must be told some time.
#[tokio::test]
async fn lost_sessions_are_told_even_if_hold_fails() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE);
    slow.hang(true);
    let mut renew = Box::pin(sessions.renew());
    poll_steps(&slow, &mut renew, 3).await; // renew answered, inside hold
    drop(renew); // or: hold answers Unavailable
    slow.hang(false);
    assert_eq!(sessions.renew().await.unwrap(), Renewed::Regained);
    let lost: Vec<_> = sessions.lost().iter().map(|session| session.id()).collect();
    assert_eq!(lost, [id], "nobody is told that it was lost");
}

/// a claim made under the old lease is not held under the new one.
#[tokio::test]
async fn claim_in_flight_over_lease_loss() {
    let world = World::new();
    let before = world.process().await;
    drop(before.open(&chat("a")).await.unwrap());
    before.close().await.unwrap();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 3).await; // insert answered Taken; claim done, answer on its way
    assert!(world.store.load(before_id(&world).await).await.unwrap().unwrap().holder.is_some());
    slow.hang(false);
    world.clock.advance(MINUTE); // the process slept
    assert_eq!(sessions.renew().await.unwrap(), Renewed::Regained);
    slow.step();
    slow.step();
    let mine = opening.await;
    let two = world.process().await;
    let theirs = two.open(&chat("a")).await;
    assert!(!(mine.is_ok() && theirs.is_ok()), "two processes hold one session");
}
async fn before_id(world: &World) -> SessionId {
    world.store.find(&ann(), &Agent::none(), &Key::named("a").unwrap()).await.unwrap().unwrap().id
}

/// end() that was cancelled (or whose answer got lost) still says which links to close.
#[tokio::test]
async fn lost_answer_of_end_keeps_attachments() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions
        .change(&opened.session, |r| {
            r.attach("browser", Attachment::new(Generation(1), "up"));
        })
        .await
        .unwrap();
    let session = opened.session.session().clone();
    drop(opened);
    slow.lose_the_next_answer();
    assert!(sessions.end(&session).await.is_err());
    let swept = sessions.sweep().await;
    assert_eq!(swept.ended.len(), 1);
    assert!(
        swept.ended[0].attachments.contains_key("browser"),
        "the link to close is forgotten: {:?}",
        swept.ended[0]
    );
}

/// ended is told once.
#[tokio::test]
async fn told_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    slow.fail(true);
    assert!(sessions.by_id(&ann(), id).await.is_err()); // closes the gate, cannot write
    slow.fail(false);
    assert!(matches!(sessions.by_id(&ann(), id).await, Err(OpenError::Over(_))));
    let n = sessions.sweep().await.ended.len() + sessions.sweep().await.ended.len();
    assert_eq!(n, 1, "told twice");
}

/// a key whose session is being ended can be opened again.
#[tokio::test]
async fn open_while_end_is_under_way_or_was_cancelled() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let session = opened.session.session().clone();
    drop(opened);
    slow.hang(true);
    let mut end = Box::pin(sessions.end(&session));
    assert!(futures_util::poll!(&mut end).is_pending());
    drop(end); // cancelled before the store did anything
    slow.hang(false);
    let again = sessions.open(&chat("a")).await;
    assert!(again.is_ok(), "{:?}", again.unwrap_err());
}

/// a store failure at eviction keeps nobody out of his session until a sweep.
#[tokio::test]
async fn failed_eviction() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world
        .on(
            slow.clone(),
            Settings {
                sessions: SessionLimits { per_owner: 9, provisional_per_owner: 1 },
                ..forever()
            },
        )
        .await;
    let opened = sessions.open(&Wish::new(ann()).provisional()).await.unwrap();
    let h = sessions.issue_handle(&opened.session).await.unwrap();
    drop(opened);
    slow.fail(true);
    assert!(sessions.open(&Wish::new(ann()).provisional()).await.is_err());
    slow.fail(false);
    match sessions.by_handle(&ann(), &h).await {
        Ok(_) | Err(OpenError::Over(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// a limit on provisional sessions holds against many at once.
#[tokio::test]
async fn provisional_limit_at_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let wish = Wish::new(ann()).provisional();
    let opened = join_all((0..100).map(|_| sessions.open(&wish))).await;
    let n = opened.iter().filter(|opened| opened.is_ok()).count();
    assert!(n <= 8, "{n} provisional sessions, 8 allowed");
}

/// a wish'sessions expiry survives the coming back of the handle.
#[tokio::test]
async fn provisional_expiry() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions
        .open(&Wish::new(ann()).expiry(Expiry::idle(MINUTE * 90)).provisional())
        .await
        .unwrap();
    let h = sessions.issue_handle(&opened.session).await.unwrap();
    let found = sessions.by_handle(&ann(), &h).await.unwrap();
    assert_eq!(found.record().expiry, Expiry::idle(MINUTE * 90));
}

/// 256 sessions that are past their age but in use must not starve the sweep.
#[tokio::test]
async fn sweep_is_not_starved() {
    let world = World::new();
    let sessions = world.process().await;
    let mut inuse = vec![];
    for n in 0..256 {
        inuse.push(sessions.open(&chat(&n.to_string())).await.unwrap());
    }
    world.clock.advance(MINUTE);
    let dead =
        world.on(world.store.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    let id = dead
        .open(&chat("dead").expiry(Expiry { idle: None, absolute: Some(MINUTE * 60 * 24) }))
        .await
        .unwrap()
        .session
        .id();
    world.clock.advance(MINUTE * 60 * 48);
    for _ in 0..10 {
        sessions.flush().await.unwrap();
        let _ = sessions.sweep().await;
    }
    assert!(
        !world.store.load(id).await.unwrap().unwrap().is_live(),
        "a day too old and ten sweeps later it lives"
    );
}

/// a sweep that is cancelled still tells what it ended.
#[tokio::test]
async fn cancelled_sweep_tells() {
    let world = World::new();
    let dead =
        world.on(world.store.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    drop(dead.open(&chat("a")).await.unwrap());
    world.clock.advance(MINUTE * 30);
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    while !world.store.list(None, None, 9).await.unwrap().is_empty() {
        assert!(!poll_steps(&slow, &mut sweep, 1).await, "the sweep ended nothing");
    }
    drop(sweep);
    slow.hang(false);
    assert_eq!(sessions.sweep().await.ended.len(), 1, "ended, and nobody was told");
}

/// who opens the key of a session that is over is told of the loss, also after a cancelled opener.
#[tokio::test]
async fn loss_after_a_cancelled_open() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    drop(opened);
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await; // inserted, answer on its way
    drop(opening); // the client went away
    slow.hang(false);
    assert_eq!(sessions.open(&wish).await.unwrap().origin, Origin::Lost(Generation(1)));
}

/// who chose the id of a session comes back by it after a cancelled opener, and no sweep ends it in between.
#[tokio::test]
async fn a_chosen_id_is_no_stray() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = SessionId::generate(Timestamp::from_millis(1));
    let wish = Wish::new(ann()).id(id);
    slow.hang(true);
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await; // inserted, answer on its way
    drop(opening);
    slow.hang(false);
    drop(sessions.open(&wish).await.unwrap());
    assert!(sessions.sweep().await.ended.is_empty());
    let found = sessions.by_id(&ann(), id).await.unwrap();
    // Who ends it for good leaves nothing to be remembered.
    let session = found.session().clone();
    drop(found);
    sessions.forget(&session).await.unwrap();
    assert!(world.store.load(id).await.unwrap().is_none());
    assert_eq!(sessions.sweep().await.ended.len(), 1, "its links are to be closed");
    assert!(matches!(sessions.by_id(&ann(), id).await, Err(OpenError::Unknown)));
}

/// and when unrelated sessions end meanwhile.
#[tokio::test]
async fn loss_while_others_end() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    drop(opened);
    let mut others = vec![];
    for n in 0..600 {
        others.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.session().clone());
    }
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await;
    slow.hang(false);
    for opened in &others {
        sessions.end(opened).await.unwrap();
    }
    slow.step();
    assert_eq!(opening.await.unwrap().origin, Origin::Lost(Generation(1)));
}

/// and an unnamed session is made once.
#[tokio::test]
async fn unnamed_made_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let mut others = vec![];
    for n in 0..600 {
        others.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.session().clone());
    }
    slow.hang(true);
    let wish = Wish::new(ann());
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await;
    slow.hang(false);
    for opened in &others {
        sessions.end(opened).await.unwrap();
    }
    slow.step();
    drop(opening.await.unwrap());
    assert_eq!(
        world.store.list(None, None, 99).await.unwrap().len(),
        1,
        "live sessions in the store"
    );
}

/// revive by many at once.
#[tokio::test]
async fn revive_many() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    let _ = sessions.sweep().await;
    let a = ann();
    let r = join_all((0..5).map(|_| sessions.revive(&a, id))).await;
    for r in &r {
        assert!(r.is_ok(), "{:?}", r.as_ref().unwrap_err());
    }
}

/// a question about a tombstone must not unclaim what is being revived.
#[tokio::test]
async fn revive_and_look() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    for lag in 0..12 {
        let sessions = world.on(slow.clone(), forever()).await;
        let id = sessions.open(&chat("a")).await.unwrap().session.id();
        world.clock.advance(MINUTE * 30);
        let _ = sessions.sweep().await;
        let a = ann();
        let look = async {
            for _ in 0..lag {
                tokio::task::yield_now().await;
            }
            sessions.by_id(&a, id).await
        };
        let (revived, _) = futures_util::join!(sessions.revive(&a, id), look);
        let Ok(revived) = revived else { panic!("{revived:?}") };
        let holder = world.store.load(id).await.unwrap().unwrap().holder;
        let two = world.process().await;
        assert!(
            two.by_id(&a, id).await.is_err(),
            "lag {lag}: held here ({}), and claimed by another (holder was {holder:?})",
            !revived.session.is_over()
        );
        drop(revived);
        sessions.close().await.unwrap();
        let x = two.by_id(&a, id).await.unwrap();
        two.end(x.session()).await.unwrap();
    }
}

/// extend and issue_handle on a session that is over.
#[tokio::test]
async fn extend_over() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    assert!(
        sessions.extend(&opened.session, Expiry::NEVER).await.is_err(),
        "extend of a session that is over says Ok"
    );
}
#[tokio::test]
async fn handle_over() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    assert!(
        sessions.issue_handle(&opened.session).await.is_err(),
        "a handle for a session that is over"
    );
}

/// end by an old Arc must not leave a revived session open but not held.
#[tokio::test]
async fn end_twice_over_revive() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let old = opened.session.session().clone();
    drop(opened);
    sessions.end(&old).await.unwrap();
    let _ = sessions.sweep().await;
    let revived = sessions.revive(&ann(), old.id()).await.unwrap();
    sessions.end(&old).await.unwrap(); // a second DELETE of the same client
    let live = world.store.load(old.id()).await.unwrap().unwrap().is_live();
    assert!(live != revived.session.is_over(), "over in the store, and its gate is open");
    assert!(
        sessions.sweep().await.ended.is_empty(),
        "somebody is inside, and its links are closed"
    );
}

/// the handles a process remembers are those the store knows.
#[tokio::test]
async fn handles() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let first = sessions.issue_handle(&opened.session).await.unwrap();
    drop(sessions.by_handle(&ann(), &first).await.unwrap());
    for _ in 0..1000 {
        let h = sessions.issue_handle(&opened.session).await.unwrap();
        drop(sessions.by_handle(&ann(), &h).await.unwrap());
    }
    let stored = world.store.find_handle(first.hash(&ann())).await.unwrap().is_some();
    assert_eq!(sessions.by_handle(&ann(), &first).await.is_ok(), stored, "here and in the store");
}

/// Debug shows no connection'sessions body.
#[tokio::test]
async fn debug() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let name = Handle::generate().hash(&ann());
    world
        .store
        .put_connection(
            &Connection { name, session: opened.session.id(), body: b"hunter2".to_vec() },
            opened.session.record().holder,
        )
        .await
        .unwrap();
    world.store.put_content(b"hunter2").await.unwrap();
    let bytes = format!("{:?}", b"hunter2".to_vec());
    let bytes = &bytes[1..bytes.len() - 1];
    assert!(
        !format!("{:?}", sessions.state(&opened.session).unwrap()).contains(bytes),
        "Debug of State dumps the whole store"
    );
}

/// errors show no value.
#[tokio::test]
async fn decode() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let st = sessions.state(&opened.session).unwrap();
    st.set("token", "hunter2").await.unwrap();
    let e = st.get::<u32>("token").await.unwrap_err();
    assert!(
        !format!("{e:?} {:?}", std::error::Error::source(&e).map(ToString::to_string))
            .contains("hunter2"),
        "{e:?}"
    );
}

/// close() without lease, or with a store that fails, still says what was held.
#[tokio::test]
async fn close_fails() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    slow.fail(true);
    assert!(sessions.close().await.is_err());
    slow.fail(false);
    let lost: Vec<_> = sessions.lost().iter().map(|session| session.id()).collect();
    assert_eq!(lost, [id], "nobody is told that it was held");
}

/// one session that cannot be ended does not keep the others from ending.
#[tokio::test]
async fn sweep_lost_reopen() {
    // sweep × renew(lost) × reopen: sweep'sessions snapshot holds an old Arc whose `ending` was set by let_go.
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions =
        world.on(slow.clone(), Settings { lease: MINUTE * 10, ..Settings::default() }).await;
    for n in 0..8 {
        drop(sessions.open(&chat(&format!("due{n}")).expiry(Expiry::idle(MINUTE))).await.unwrap());
    }
    for n in 0..20 {
        drop(sessions.open(&chat(&format!("k{n}")).expiry(Expiry::NEVER)).await.unwrap());
    }
    world.clock.advance(MINUTE * 5);
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    poll_steps(&slow, &mut sweep, 1).await;
    slow.hang(false);
    world.clock.advance(MINUTE * 10);
    assert_eq!(sessions.renew().await.unwrap(), Renewed::Regained);
    let mut reopened = vec![];
    for n in 0..20 {
        reopened.push(sessions.open(&chat(&format!("k{n}"))).await.unwrap());
    }
    slow.step();
    slow.step();
    let _ = sweep.await;
    let mut dead = 0;
    for opened in &reopened {
        if !world.store.load(opened.session.id()).await.unwrap().unwrap().is_live() {
            dead += 1;
        }
    }
    assert_eq!(dead, 0, "of 20 sessions in use, with expiry NEVER, ended by a sweep");
}
