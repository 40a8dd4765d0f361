//! Cost of held sessions.

use std::{collections::HashMap, hint::black_box, sync::Arc, time::Duration};

use stayput_core::{
    Agent, Expiry, Handle, Holder, Key, MemoryStore, OpenOptions, Owner, SessionId, SessionLimits,
    Sessions, Settings, SystemClock,
};

use crate::{
    HEAP,
    report::{best, head, line, nanos_each},
};

const SIZES: [usize; 2] = [1_000, 100_000];
/// Sessions per owner, as in practice.
const PER_OWNER: usize = 10;
const LOOKUPS: usize = 200_000;

/// Sessions, and their names for lookups.
struct HeldSessions {
    sessions: Sessions,
    requests: Vec<(Owner, Key, SessionId)>,
    handles: Vec<(Owner, Handle)>,
    bytes: usize,
    /// Plain map, as the minimal cost of a lookup.
    bare: HashMap<SessionId, usize>,
}

async fn hold(count: usize) -> HeldSessions {
    let clock = Arc::new(SystemClock);
    let limits = SessionLimits { per_owner: usize::MAX, ..SessionLimits::default() };
    let settings = Settings { lease: Duration::MAX, sessions: limits, ..Settings::default() };
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let sessions = Sessions::start(store, clock, Holder::unreachable(), settings).await.unwrap();
    let owner =
        |n: usize| Owner::verified("https://id.example.com", &format!("user-{n:06}")).unwrap();
    let mut names = Vec::with_capacity(count);
    let before = HEAP.allocated();
    for group in 0..count / PER_OWNER {
        let owner = owner(group);
        for n in 0..PER_OWNER {
            let key = Key::named(&format!("conversation-{n:04}")).unwrap();
            let wish = OpenOptions::with_key(owner.clone(), Agent::none(), key.clone())
                .expiry(Expiry::default());
            let id = sessions.open(&wish).await.unwrap().session.id();
            names.push((owner.clone(), key, id));
        }
    }
    // The names are not counted: their vector existed before, and their texts belong to the sessions.
    let bytes = HEAP.allocated() - before;
    let mut handles = Vec::new();
    for (owner, _, id) in &names {
        let session = sessions.find_by_id(owner, *id).await.unwrap();
        let handle = sessions.issue_handle(&session).await.unwrap();
        drop(sessions.find_by_handle(owner, &handle).await.unwrap());
        handles.push((owner.clone(), handle));
    }
    let fresh = |owner: &Owner| owner.as_str().parse::<Owner>().unwrap();
    let requests = requests(count, |n| {
        let (owner, key, id) = &names[n];
        (fresh(owner), key.as_str().parse().unwrap(), *id)
    });
    let handles = self::requests(count, |n| {
        let (owner, handle) = &handles[n];
        (fresh(owner), handle.expose().parse().unwrap())
    });
    let bare = names.iter().enumerate().map(|(n, (_, _, id))| (*id, n)).collect();
    HeldSessions { sessions, requests, handles, bytes, bare }
}

/// Runs the measurements.
pub(crate) async fn run() {
    head(
        "HeldSessions sessions, on the store in memory: heap of record, indexes and session together",
    );
    let mut held = Vec::new();
    let mut each = Vec::new();
    for size in SIZES {
        held.push(hold(size).await);
        each.push(held.last().unwrap().bytes / size);
        let bytes = each.last().copied().unwrap_or_default();
        line(
            &format!("bytes per idle session at {size}"),
            &bytes.to_string(),
            Some(("≤ 1024", bytes <= 1024)),
        );
    }
    let growth = each[1] as f64 / each[0] as f64;
    line(
        "growth from 1,000 to 100,000 sessions",
        &format!("× {growth:.2}"),
        Some(("≤ 1.10", growth <= 1.1)),
    );

    head("Finding a held session, and keeping it in use until it is dropped");
    let ways = [
        ("by key", by_key as fn(&HeldSessions)),
        ("by handle", by_handle),
        ("by id", by_id),
        ("in a bare HashMap", bare),
    ];
    let mut growths = Vec::new();
    for (what, find) in ways {
        let [small, large] =
            [&held[0], &held[1]].map(|held| nanos_each(best(7, || find(held)), LOOKUPS));
        for (size, nanos) in SIZES.iter().zip([small, large]) {
            let target = what.starts_with("by").then_some(("< 1000", nanos < 1_000.0));
            line(&format!("ns {what}, of {size}"), &format!("{nanos:.0}"), target);
        }
        growths.push((what, large / small));
    }
    for (what, growth) in growths {
        line(&format!("growth from 1,000 to 100,000, {what}"), &format!("× {growth:.2}"), None);
    }
}

/// Returns the output of a lookup that does not wait, which is ready at the first poll.
fn now<F: Future>(future: F) -> F::Output {
    let waker = std::task::Waker::noop();
    match std::pin::pin!(future).poll(&mut std::task::Context::from_waker(waker)) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("a held session was looked for in the store"),
    }
}

/// Returns names in an order that no cache can predict, in separate memory in that order: like the names of requests,
/// which have just been read from a socket.
fn requests<T>(count: usize, name: impl Fn(usize) -> T) -> Vec<T> {
    (0..LOOKUPS).map(|n| name(n.wrapping_mul(7_919_993) % count)).collect()
}

fn by_key(held: &HeldSessions) {
    let agent = Agent::none();
    for (owner, key, _) in &held.requests {
        drop(black_box(now(held.sessions.find_by_key(owner, &agent, key)).unwrap()));
    }
}

fn by_handle(held: &HeldSessions) {
    for (owner, handle) in &held.handles {
        drop(black_box(now(held.sessions.find_by_handle(owner, handle)).unwrap()));
    }
}

fn by_id(held: &HeldSessions) {
    for (owner, _, id) in &held.requests {
        drop(black_box(now(held.sessions.find_by_id(owner, *id)).unwrap()));
    }
}

fn bare(held: &HeldSessions) {
    for (_, _, id) in &held.requests {
        black_box(held.bare.get(id));
    }
}
