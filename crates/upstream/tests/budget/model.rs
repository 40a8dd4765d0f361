//! Random admissions, cancellations and ends, checked against a counting model.

use std::sync::Mutex;

use proptest::{collection::vec, prelude::*};
use stayput_core::Owner;
use stayput_upstream::*;

use super::{Admission, owner, poll};

#[derive(Clone, Debug)]
enum Step {
    Admit {
        payer: usize,
        process: bool,
    },
    Cancel(usize),
    /// The link has ended.
    End(usize),
    /// The link is no longer in use, and may be evicted.
    Rest(usize),
    /// All evictions are finished.
    Gone,
    Memory(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..PAYERS, any::<bool>()).prop_map(|(payer, process)| Step::Admit { payer, process }),
        2 => (0..64usize).prop_map(Step::Cancel),
        3 => (0..64usize).prop_map(Step::End),
        1 => (0..64usize).prop_map(Step::Rest),
        1 => Just(Step::Gone),
        1 => (0..3u64).prop_map(|half| Step::Memory(half * 60)),
    ];
    vec(step, 1..80)
}

/// Three owners, and none.
const PAYERS: usize = 4;

const LIMITS: Limits = Limits {
    processes: 4,
    links: 7,
    memory: Some(100),
    per_owner: PerOwner { processes: 2, links: 4 },
    wait: std::time::Duration::from_secs(60),
};

/// Live link.
struct Live {
    permit: Permit,
    process: bool,
}

#[derive(Default)]
struct BackingOff {
    idle: Mutex<Vec<Live>>,
    leaving: Mutex<Vec<Live>>,
}

impl Recycle for BackingOff {
    fn recycle(&self, wanted: RecycleFilter<'_>) -> bool {
        let mut idle = self.idle.lock().unwrap();
        let fits = |live: &Live| {
            (live.process || !wanted.process)
                && wanted.owner.is_none_or(|owner| live.permit.owner() == Some(owner))
        };
        let Some(at) = idle.iter().position(fits) else { return false };
        let live = idle.remove(at);
        live.permit.leaving();
        self.leaving.lock().unwrap().push(live);
        true
    }
}

struct Waiting<'a> {
    payer: usize,
    process: bool,
    admission: Admission<'a>,
}

struct World<'a> {
    budget: &'a Budget,
    owners: &'a [Owner],
    resting: &'a BackingOff,
    live: Vec<Live>,
    line: Vec<Waiting<'a>>,
    memory: u64,
}

impl World<'_> {
    fn owner(&self, payer: usize) -> Option<&Owner> {
        self.owners.get(payer)
    }

    fn step(&mut self, step: &Step) {
        let place = |at: usize, length: usize| (length > 0).then(|| at % length);
        match *step {
            Step::Admit { payer, process } => {
                let owner = self.owners.get(payer);
                let admission: Admission<'_> =
                    Box::pin(self.budget.admit(owner, Cost { process }, self.resting));
                self.line.push(Waiting { payer, process, admission });
            }
            Step::Cancel(at) => {
                if let Some(at) = place(at, self.line.len()) {
                    self.line.remove(at);
                }
            }
            Step::End(at) => {
                if let Some(at) = place(at, self.live.len()) {
                    self.live.remove(at);
                }
            }
            Step::Rest(at) => {
                if let Some(at) = place(at, self.live.len()) {
                    let live = self.live.remove(at);
                    self.resting.idle.lock().unwrap().push(live);
                    self.budget.idle();
                }
            }
            Step::Gone => {
                let gone = std::mem::take(&mut *self.resting.leaving.lock().unwrap());
                drop(gone);
            }
            Step::Memory(used) => {
                self.memory = used;
                // No process is in the sample, so the estimate for a new process stays at 0.
                self.budget.set_memory(used, 0);
            }
        }
    }

    /// Polls all waiting requests in order of arrival, and takes what was granted.
    fn settle(&mut self) {
        let mut at = 0;
        while at < self.line.len() {
            let Some(given) = poll(&mut self.line[at].admission) else {
                at += 1;
                continue;
            };
            let Waiting { payer, process, .. } = self.line.remove(at);
            let permit = given.expect("nobody waited for long");
            assert_eq!(permit.owner(), self.owner(payer));
            let earlier =
                self.line[..at].iter().any(|one| (one.payer, one.process) == (payer, process));
            assert!(!earlier, "somebody of the same owner was overtaken");
            self.live.push(Live { permit, process });
        }
    }

    /// Counts processes and links of all owners, or of one.
    fn count(&self, of: Option<&Owner>) -> (usize, usize) {
        let (idle, leaving) =
            (self.resting.idle.lock().unwrap(), self.resting.leaving.lock().unwrap());
        let all = self.live.iter().chain(idle.iter()).chain(leaving.iter());
        let counted: Vec<_> =
            all.filter(|live| of.is_none_or(|owner| live.permit.owner() == Some(owner))).collect();
        (counted.iter().filter(|live| live.process).count(), counted.len())
    }

    fn check(&self) {
        let (processes, links) = self.count(None);
        assert!(processes <= LIMITS.processes && links <= LIMITS.links);
        let waiting = self.line.len();
        assert_eq!(self.budget.used(), BudgetUsage { processes, links, waiting });
        for one in &self.line {
            assert!(!self.fits(one), "a place is free and somebody who could have it waits");
        }
        for owner in self.owners {
            let (processes, links) = self.count(Some(owner));
            assert!(processes <= LIMITS.per_owner.processes && links <= LIMITS.per_owner.links);
        }
    }

    fn fits(&self, one: &Waiting<'_>) -> bool {
        let (processes, links) = self.count(None);
        let own = self.owner(one.payer).is_none_or(|owner| {
            let (processes, links) = self.count(Some(owner));
            links < LIMITS.per_owner.links
                && (!one.process || processes < LIMITS.per_owner.processes)
        });
        let memory = self.memory <= 100 || processes == 0;
        own && links < LIMITS.links && (!one.process || processes < LIMITS.processes && memory)
    }
}

fn run(steps: &[Step]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let _inside = runtime.enter();
    let (budget, resting) = (Budget::new(LIMITS), BackingOff::default());
    // New processes count as 0, so the model needs the samples only.
    budget.set_memory(0, 1);
    let owners = ["ann", "bob", "carl"].map(owner);
    let mut support = World {
        budget: &budget,
        owners: &owners,
        resting: &resting,
        live: Vec::new(),
        line: Vec::new(),
        memory: 0,
    };
    for step in steps {
        support.step(step);
        support.settle();
        support.check();
    }
    // If all links end one after the other, every request is served.
    for _ in 0..steps.len() + 1 {
        support.step(&Step::Rest(0));
        support.settle();
        support.step(&Step::Gone);
        support.step(&Step::End(0));
        support.settle();
        support.check();
    }
    assert!(support.line.is_empty(), "somebody was forgotten");
    drop(support);
    drop(resting);
    assert_eq!(budget.used(), BudgetUsage::default());
}

/// Regression: this case was once forgotten.
#[test]
fn request_that_waits_for_memory_and_its_owner_is_served() {
    let admit = |payer, process| Step::Admit { payer, process };
    let (link, process) = (|payer| admit(payer, false), |payer| admit(payer, true));
    use Step::{End, Memory, Rest};
    run(&[
        link(0),
        Rest(0),
        Memory(120),
        link(0),
        link(0),
        link(0),
        End(0),
        link(0),
        link(1),
        link(1),
        Rest(0),
        link(1),
        Rest(32),
        process(0),
        End(8),
        Rest(21),
        End(0),
        End(32),
        process(1),
        link(0),
        process(0),
        End(44),
        Rest(30),
        link(0),
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2048)
    })]

    /// Invariant 6, design §4.2: no cap is exceeded, no place is lost, and each owner is served in order.
    #[test]
    fn places_are_neither_lost_nor_granted_twice(steps in steps()) {
        run(&steps);
    }

    /// While two owners wait for the same, neither is served twice before the other.
    #[test]
    fn owners_are_served_alternately(
        arrivals in vec((0..3usize, 0..3usize), 1..40),
        ends in vec(0..64usize, 120),
    ) {
        turns(&arrivals, &ends);
    }
}

/// Runs rounds in which some requests arrive and one place is freed. All are processes, so all wait for the same.
fn turns(arrivals: &[(usize, usize)], ends: &[usize]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let _inside = runtime.enter();
    let per_owner = PerOwner { processes: 2, links: 4 };
    let budget = Budget::new(Limits { processes: 3, per_owner, ..LIMITS });
    budget.set_memory(0, 1);
    let (resting, owners) = (BackingOff::default(), ["ann", "bob", "carl"].map(owner));
    let (budget, resting, owners) = (&budget, &resting, &owners);
    let mut support =
        World { budget, owners, resting, live: Vec::new(), line: Vec::new(), memory: 0 };
    // How often each owner was served since each other one began to wait or was last served.
    let mut served = [[0usize; 3]; 3];
    for (round, end) in ends.iter().enumerate() {
        if let Some((payer, count)) = arrivals.get(round) {
            for _ in 0..*count {
                support.step(&Step::Admit { payer: *payer, process: true });
            }
            support.settle();
        }
        let before: Vec<usize> = support.line.iter().map(|one| one.payer).collect();
        support.step(&Step::End(*end));
        let room = |payer: usize| support.count(Some(&owners[payer])).0 < 2;
        let could: Vec<bool> = (0..3).map(|one| before.contains(&one) && room(one)).collect();
        support.settle();
        let after: Vec<usize> = support.line.iter().map(|one| one.payer).collect();
        let number = |line: &[usize], payer| line.iter().filter(|one| **one == payer).count();
        for payer in (0..3).filter(|one| number(&before, *one) > number(&after, *one)) {
            for other in (0..3).filter(|other| *other != payer) {
                served[payer][other] += 1;
                let fair = !could[other] || served[payer][other] <= 1;
                assert!(fair, "{payer} was served twice before {other}");
            }
            served.iter_mut().for_each(|others| others[payer] = 0);
        }
        for one in (0..3).filter(|one| !after.contains(one)) {
            served.iter_mut().for_each(|others| others[one] = 0);
        }
    }
}
