//! Helpers of the race tests.

use std::{sync::Arc, time::Duration};

use stayput_core::{
    Agent, Holder, Key, ManualClock, MemoryStore, OpenOptions, Owner, SessionId, Sessions,
    Settings, Store, Timestamp,
};
use stayput_testkit::faulty::Faulty;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
}
impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        Self { store: Arc::new(MemoryStore::new(clock.clone())), clock }
    }
    pub(crate) async fn on(&self, store: Arc<dyn Store>, settings: Settings) -> Sessions {
        Sessions::start(store, self.clock.clone(), Holder::at("x").unwrap(), settings)
            .await
            .unwrap()
    }
    pub(crate) async fn process(&self) -> Sessions {
        self.on(self.store.clone(), lease_forever()).await
    }
}
pub(crate) fn lease_forever() -> Settings {
    Settings { lease: Duration::MAX, ..Settings::default() }
}
pub(crate) fn ann() -> Owner {
    Owner::verified("https://i", "ann").unwrap()
}
pub(crate) fn chat(name: &str) -> OpenOptions {
    OpenOptions::with_key(ann(), Agent::none(), Key::named(name).unwrap())
}
pub(crate) async fn poll_steps<F: Future + Unpin>(slow: &Faulty, f: &mut F, n: usize) -> bool {
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

pub(crate) async fn id_of_key_a(world: &World) -> SessionId {
    world
        .store
        .find_by_key(&ann(), &Agent::none(), &Key::named("a").unwrap())
        .await
        .unwrap()
        .unwrap()
        .id
}
