//! Link budget: admission, queueing and eviction.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use stayput_core::Owner;
use stayput_upstream::*;

#[path = "budget/model.rs"]
mod model;

const PROCESS: Cost = Cost { process: true };
const LINK: Cost = Cost { process: false };

pub(crate) fn owner(name: &str) -> Owner {
    Owner::verified("i", name).unwrap()
}

fn limits(processes: usize, links: usize) -> Limits {
    let per_owner = PerOwner { processes: 2, links: 3 };
    Limits { processes, links, per_owner, ..Limits::default() }
}

/// Idle links that can be evicted, and the requests for eviction.
#[derive(Default)]
struct Idle {
    links: Mutex<Vec<Permit>>,
    leaving: Mutex<Vec<Permit>>,
    asked: Mutex<Vec<(Option<Owner>, bool)>>,
}

impl Recycle for Idle {
    fn recycle(&self, wanted: RecycleFilter<'_>) -> bool {
        self.asked.lock().unwrap().push((wanted.owner.cloned(), wanted.process));
        let mut links = self.links.lock().unwrap();
        let fits = |permit: &Permit| wanted.owner.is_none_or(|owner| permit.owner() == Some(owner));
        let Some(at) = links.iter().position(fits) else { return false };
        let permit = links.remove(at);
        permit.leaving();
        self.leaving.lock().unwrap().push(permit);
        true
    }
}

impl Idle {
    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Finishes all evictions that are under way.
    fn finish(&self) {
        let gone = std::mem::take(&mut *self.leaving.lock().unwrap());
        drop(gone);
    }
}

type Admission<'a> = Pin<Box<dyn Future<Output = Result<Permit, AtCapacity>> + Send + 'a>>;

fn admission<'a>(
    budget: &'a Budget,
    owner: &'a Owner,
    cost: Cost,
    idle: &'a Idle,
) -> Admission<'a> {
    Box::pin(budget.admit(Some(owner), cost, idle))
}

/// Polls the future once.
pub(crate) fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn taken(admission: &mut Admission<'_>) -> Option<Permit> {
    poll(admission).map(Result::unwrap)
}

#[tokio::test(start_paused = true)]
async fn freed_place_goes_to_the_waiting_request() {
    let (budget, idle, ann, bob) =
        (Budget::new(limits(1, 9)), Idle::default(), owner("ann"), owner("bob"));
    let first = admission(&budget, &ann, PROCESS, &idle).await.unwrap();
    let mut second = admission(&budget, &bob, PROCESS, &idle);
    assert!(taken(&mut second).is_none());
    assert_eq!(budget.used(), BudgetUsage { processes: 1, links: 1, waiting: 1 });
    drop(first);
    let permit = taken(&mut second).unwrap();
    assert_eq!(permit.owner(), Some(&bob));
    drop(permit);
    assert_eq!(budget.used(), BudgetUsage::default());
}

#[tokio::test(start_paused = true)]
async fn idle_link_of_the_right_kind_is_evicted_at_a_cap() {
    let (idle, ann, bob) = (Idle::default(), owner("ann"), owner("bob"));
    let budget = Budget::new(limits(3, 4));
    for owner in [&ann, &ann, &bob] {
        let permit = admission(&budget, owner, PROCESS, &idle).await.unwrap();
        idle.links.lock().unwrap().push(permit);
    }
    let mut third = admission(&budget, &ann, PROCESS, &idle);
    assert!(taken(&mut third).is_none());
    assert_eq!(*idle.asked.lock().unwrap(), [(Some(ann.clone()), true)], "its own cap");
    idle.finish();
    let _third = taken(&mut third).unwrap();

    let mut other = admission(&budget, &bob, PROCESS, &idle);
    assert!(taken(&mut other).is_none());
    assert_eq!(idle.asked.lock().unwrap()[1], (None, true), "the cap of all");
    idle.finish();
    let _other = taken(&mut other).unwrap();

    let _last = admission(&budget, &bob, LINK, &idle).await.unwrap();
    let mut link = admission(&budget, &ann, LINK, &idle);
    assert!(taken(&mut link).is_none());
    assert_eq!(idle.asked.lock().unwrap()[2], (None, false), "any link will do");
}

/// Design §4.2: an idle link holds state of a session, so only as many are evicted as needed.
#[tokio::test(start_paused = true)]
async fn each_waiting_request_evicts_one_link() {
    let (idle, ann, bob) = (Idle::default(), owner("ann"), owner("bob"));
    let budget = Budget::new(limits(4, 9));
    for owner in [&ann, &ann, &bob, &bob] {
        let permit = admission(&budget, owner, PROCESS, &idle).await.unwrap();
        idle.links.lock().unwrap().push(permit);
    }
    let carl = owner("carl");
    let mut first = admission(&budget, &carl, PROCESS, &idle);
    for _ in 0..5 {
        assert!(taken(&mut first).is_none());
        budget.idle();
    }
    assert_eq!(idle.leaving.lock().unwrap().len(), 1);
    let mut second = admission(&budget, &carl, PROCESS, &idle);
    assert!(taken(&mut second).is_none() && taken(&mut first).is_none());
    assert_eq!(idle.leaving.lock().unwrap().len(), 2);

    // A request that waits for its own owner's cap needs no link of another owner.
    let mut third = admission(&budget, &carl, PROCESS, &idle);
    idle.finish();
    let _held = (taken(&mut first).unwrap(), taken(&mut second).unwrap());
    assert!(taken(&mut third).is_none());
    budget.idle();
    assert!(taken(&mut third).is_none());
    let dora = owner("dora");
    let mut fourth = admission(&budget, &dora, PROCESS, &idle);
    for _ in 0..5 {
        assert!(taken(&mut fourth).is_none() && taken(&mut third).is_none());
        budget.idle();
    }
    assert_eq!(idle.leaving.lock().unwrap().len(), 1, "one for dora, none for carl");
}

#[tokio::test(start_paused = true)]
async fn link_that_becomes_idle_later_is_evicted() {
    let (budget, idle, ann) = (Budget::new(limits(1, 9)), Idle::default(), owner("ann"));
    let busy = admission(&budget, &ann, PROCESS, &idle).await.unwrap();
    let bob = owner("bob");
    let waiting = admission(&budget, &bob, PROCESS, &idle);
    let (permit, ()) = tokio::join!(waiting, async {
        tokio::task::yield_now().await;
        assert_eq!(idle.asked(), 1);
        idle.links.lock().unwrap().push(busy);
        budget.idle();
        tokio::task::yield_now().await;
        assert_eq!(idle.asked(), 2);
        idle.finish();
    });
    assert_eq!(permit.unwrap().owner(), Some(&bob));
}

/// A link that ends can free a place under one limit and none under another.
#[tokio::test(start_paused = true)]
async fn next_obstacle_is_tried_when_one_is_removed() {
    let (idle, ann) = (Idle::default(), owner("ann"));
    let budget = Budget::new(Limits { memory: Some(100), ..limits(9, 9) });
    let _busy = admission(&budget, &ann, LINK, &idle).await.unwrap();
    for cost in [LINK, PROCESS] {
        let permit = admission(&budget, &ann, cost, &idle).await.unwrap();
        idle.links.lock().unwrap().push(permit);
    }
    budget.set_memory(101, 1);
    let mut waiting = admission(&budget, &ann, PROCESS, &idle);
    assert!(taken(&mut waiting).is_none());
    idle.finish();
    assert!(taken(&mut waiting).is_none());
    assert_eq!(*idle.asked.lock().unwrap(), [(Some(ann.clone()), false), (None, true)]);
    idle.finish();
    assert!(taken(&mut waiting).is_some());
}

#[tokio::test(start_paused = true)]
async fn owners_are_served_in_turn_and_one_owner_in_order() {
    let (idle, ann, bob) = (Idle::default(), owner("ann"), owner("bob"));
    let per_owner = PerOwner { processes: 9, links: 9 };
    let budget = Budget::new(Limits { per_owner, ..limits(1, 9) });
    let mut held = Some(admission(&budget, &ann, PROCESS, &idle).await.unwrap());
    let order = [&ann, &ann, &ann, &bob, &bob];
    let mut line: Vec<_> =
        order.iter().map(|owner| admission(&budget, owner, PROCESS, &idle)).collect();
    assert!(line.iter_mut().all(|waiting| taken(waiting).is_none()));
    let mut served = Vec::new();
    while served.len() < order.len() {
        drop(held.take());
        for (number, waiting) in line.iter_mut().enumerate() {
            if !served.contains(&number)
                && let Some(permit) = taken(waiting)
            {
                served.push(number);
                assert!(held.replace(permit).is_none(), "two at once");
            }
        }
        assert!(held.is_some(), "nobody was served after {served:?}");
    }
    assert_eq!(served, [0, 3, 1, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn owner_at_its_cap_does_not_block_others() {
    let (budget, idle) = (Budget::new(limits(9, 9)), Idle::default());
    let (ann, bob) = (owner("ann"), owner("bob"));
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(admission(&budget, &ann, PROCESS, &idle).await.unwrap());
    }
    let mut own = admission(&budget, &ann, PROCESS, &idle);
    assert!(taken(&mut own).is_none());
    let _bob = taken(&mut admission(&budget, &bob, PROCESS, &idle)).expect("held up by ann");
    let _link = taken(&mut admission(&budget, &ann, LINK, &idle)).expect("held up by a process");
    let _all = poll(&mut (Box::pin(budget.admit(None, PROCESS, &idle)) as Admission<'_>))
        .expect("nobody's link has an owner's cap")
        .unwrap();
    held.pop();
    assert!(taken(&mut own).is_some());
}

/// Invariant 6: whenever a request is dropped, its place is not lost.
#[tokio::test(start_paused = true)]
async fn place_granted_to_a_dropped_request_goes_to_the_next() {
    let (budget, idle, ann, bob) =
        (Budget::new(limits(1, 9)), Idle::default(), owner("ann"), owner("bob"));
    let held = admission(&budget, &ann, PROCESS, &idle).await.unwrap();
    let mut line = Vec::new();
    for _ in 0..4 {
        let mut waiting = admission(&budget, &bob, PROCESS, &idle);
        assert!(taken(&mut waiting).is_none());
        line.push(waiting);
    }
    let mut line = line.into_iter();
    drop(line.next());
    let given = line.next().unwrap();
    drop(held);
    assert_eq!(budget.used(), BudgetUsage { processes: 1, links: 1, waiting: 2 });
    drop(given);
    let mut next = line.next().unwrap();
    assert!(taken(&mut next).is_some());
    drop(next);
    drop(line);
    assert_eq!(budget.used(), BudgetUsage::default());
    drop(admission(&budget, &bob, PROCESS, &idle));
    assert_eq!(budget.used(), BudgetUsage::default(), "a future that never ran took a place");
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_too_long_fails_with_a_retry_hint() {
    let (idle, ann, bob) = (Idle::default(), owner("ann"), owner("bob"));
    let budget = Budget::new(Limits { wait: Duration::from_secs(7), ..limits(2, 9) });
    let _held = (
        admission(&budget, &ann, PROCESS, &idle).await.unwrap(),
        admission(&budget, &ann, PROCESS, &idle).await.unwrap(),
    );
    let begun = tokio::time::Instant::now();
    let error = admission(&budget, &bob, PROCESS, &idle).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(7));
    assert_eq!(error.obstacle, Obstacle::Processes(2));
    assert_eq!(
        error.to_string(),
        "at capacity: there are 2 server processes, as many as are allowed, and none of them is \
         idle; end a session, raise the limit, or try again in 5 seconds"
    );
    let error = admission(&budget, &ann, PROCESS, &idle).await.unwrap_err();
    assert_eq!(error.obstacle, Obstacle::OwnerProcesses(2));
    assert_eq!(budget.used().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn request_over_an_absolute_limit_fails_at_once() {
    let (idle, ann) = (Idle::default(), owner("ann"));
    let budget = Budget::new(limits(0, 9));
    let refused = poll(&mut admission(&budget, &ann, PROCESS, &idle)).expect("it waits");
    assert_eq!(refused.unwrap_err().obstacle, Obstacle::Processes(0));
    assert_eq!(idle.asked(), 0);
    assert!(taken(&mut admission(&budget, &ann, LINK, &idle)).is_some());
}

#[tokio::test(start_paused = true)]
async fn process_above_the_memory_limit_replaces_another() {
    let (idle, ann, bob) = (Idle::default(), owner("ann"), owner("bob"));
    let budget = Budget::new(Limits { memory: Some(100), ..limits(9, 9) });
    budget.set_memory(101, 1);
    let first = taken(&mut admission(&budget, &ann, PROCESS, &idle)).expect("there is none yet");
    let mut second = admission(&budget, &bob, PROCESS, &idle);
    let mut third = admission(&budget, &bob, PROCESS, &idle);
    assert!(taken(&mut second).is_none() && taken(&mut third).is_none());
    assert_eq!(idle.asked.lock().unwrap()[0], (None, true));
    let _link = taken(&mut admission(&budget, &bob, LINK, &idle)).expect("a link takes none");
    drop(first);
    let second = taken(&mut second).expect("one has gone");
    assert!(taken(&mut third).is_none(), "two came for one");
    budget.set_memory(100, 1);
    let _third = taken(&mut third).expect("there is memory again");
    drop(second);
}

/// Processes that were started since the last sample count: before the first one with an assumption, then with the
/// average.
#[tokio::test(start_paused = true)]
async fn processes_since_the_last_sample_count_as_memory() {
    let (idle, ann) = (Idle::default(), owner("ann"));
    let per_owner = PerOwner { processes: 99, links: 99 };
    let budget = Budget::new(Limits { memory: Some(100 << 20), per_owner, ..limits(99, 99) });
    let admit = async || taken(&mut admission(&budget, &ann, PROCESS, &idle));
    let mut held = Vec::new();
    while let Some(permit) = admit().await {
        held.push(permit);
    }
    assert_eq!(held.len(), 4, "each counts as 32 MiB");
    budget.set_memory(40 << 20, 4);
    while let Some(permit) = admit().await {
        held.push(permit);
    }
    assert_eq!(held.len(), 4 + 7, "each of the new ones counts as 10 MiB");
    // A sample that was taken while three of them were still starting.
    budget.set_memory(80 << 20, 8);
    assert!(admit().await.is_none(), "80 MiB and three times 10 MiB are over the limit");
    budget.set_memory(88 << 20, 11);
    assert!(admit().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn spare_counts_for_the_owner_that_takes_it() {
    let (budget, idle, ann) = (Budget::new(limits(9, 9)), Idle::default(), owner("ann"));
    let mut spares = Vec::new();
    for _ in 0..3 {
        spares.push(budget.admit(None, PROCESS, &idle).await.unwrap());
    }
    let mut own = Vec::new();
    for mut spare in spares.drain(..2) {
        spare.assign(Some(&ann)).unwrap();
        spare.assign(Some(&ann)).unwrap();
        own.push(spare);
    }
    let error = spares[0].assign(Some(&ann)).unwrap_err();
    assert_eq!((error.obstacle, spares[0].owner()), (Obstacle::OwnerProcesses(2), None));
    assert_eq!(budget.used(), BudgetUsage { processes: 3, links: 3, waiting: 0 });
    let mut more = admission(&budget, &ann, PROCESS, &idle);
    assert!(taken(&mut more).is_none());
    own.pop();
    assert!(taken(&mut more).is_some());
}

/// Many threads at once: no limit is exceeded, and every request is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn caps_hold_and_every_request_is_served_under_load() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    let budget = Budget::new(limits(3, 9));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..300 {
        let budget = budget.clone();
        tasks.spawn(async move {
            let (owner, idle) = (owner(&(number % 7).to_string()), Idle::default());
            let mut waiting = admission(&budget, &owner, PROCESS, &idle);
            if number % 5 == 0 {
                // Polled once and dropped, each at another time.
                drop(poll(&mut waiting));
                return;
            }
            let permit = waiting.await.unwrap();
            assert!(LIVE.fetch_add(1, Ordering::SeqCst) < 3);
            tokio::task::yield_now().await;
            LIVE.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("somebody was forgotten");
    assert_eq!(budget.used(), BudgetUsage::default());
}
