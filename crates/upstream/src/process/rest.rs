//! What is left of a child when its group is dead: whatever carries its mark, and what that started.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Signal, getpid};

use super::proc::{self, Marked, Seen, Stat};

/// How often is looked again. What was killed is gone in a moment, so this many rounds are seen only
/// when the kernel does not let something die.
const ROUNDS: u32 = 120;

/// How often is looked at a process that has no environment now, and may have one in a moment.
const LOOKS: u32 = 4;

/// The longest pause between two rounds.
const PAUSE: Duration = Duration::from_millis(20);

/// Where to look for what is left.
#[derive(Debug)]
pub(super) enum Ground {
    /// All processes of our user.
    Machine,
    /// What was orphaned below a warden. Everything else below it descends from a leader that lives.
    Orphans {
        /// The warden.
        of: i32,
        /// Its children that are no orphans.
        leaders: HashSet<i32>,
    },
}

impl Ground {
    /// Who could carry a mark.
    fn candidates(&self) -> Vec<i32> {
        let Self::Orphans { of, leaders } = self else { return proc::ours() };
        let mut found = Vec::new();
        for orphan in proc::children(*of).into_iter().filter(|pid| !leaders.contains(pid)) {
            found.push(orphan);
            found.extend(proc::below(orphan).iter().map(|seen| seen.pid));
        }
        found
    }

    /// All that carries a mark that `wanted` knows, with what `wanted` says of it.
    pub(super) fn carriers<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> Vec<(T, Seen)> {
        let me = getpid().as_raw_pid();
        let mut open = self.candidates();
        open.retain(|pid| *pid != me);
        let mut found = Vec::new();
        for look in 0..LOOKS {
            if open.is_empty() {
                break;
            }
            if look > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            open.retain(|pid| {
                // Seen first: if the pid changes hands in between, the mark is not its own.
                let Some(seen) = Seen::at(*pid) else { return false };
                let marked = Marked::of(*pid);
                if let Marked::With(mark) = &marked
                    && let Some(what) = wanted(mark)
                    && seen.lives()
                {
                    found.push((what, seen));
                }
                marked == Marked::Unclear
            });
        }
        found
    }
}

/// What is to be dead, and what was killed for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim {
    /// The group whose members are no leftovers.
    group: Option<i32>,
    /// Processes that have to go whether they carry the mark or not.
    known: Vec<Seen>,
    /// Never killed, whatever they carry.
    spared: Vec<i32>,
    killed: HashSet<Seen>,
}

impl Claim {
    pub(super) fn new(group: i32, known: Vec<Seen>) -> Self {
        Self { group: Some(group), known, ..Self::default() }
    }

    /// Nothing is known but the marks; `spared` are not touched, nor what they started without a mark.
    pub(super) fn sparing(spared: Vec<i32>) -> Self {
        Self { spared, ..Self::default() }
    }

    /// The leader of a group and what descends from it now.
    pub(super) fn tree(leader: Seen) -> Self {
        let mut known = proc::below(leader.pid);
        known.push(leader);
        Self::new(leader.pid, known)
    }

    pub(super) fn add(&mut self, known: Vec<Seen>) {
        self.known.extend(known);
    }

    /// Whether anything of it that is known still lives.
    pub(super) fn lives(&self) -> bool {
        self.known.iter().any(|seen| seen.lives())
    }

    pub(super) fn leftovers(&self) -> usize {
        self.killed.len()
    }

    fn living(&self) -> Vec<Seen> {
        self.known.iter().copied().filter(|seen| seen.lives()).collect()
    }

    /// Kills `roots` and what descends from them; whether there was any.
    fn kill(&mut self, roots: &[Seen]) -> bool {
        let roots = roots.iter().filter(|root| !self.spared.contains(&root.pid));
        // The whole tree is looked at before the first of it dies and its children move elsewhere.
        let below = roots.clone().flat_map(|root| proc::below(root.pid));
        let tree: HashSet<Seen> = roots.copied().chain(below).collect();
        let me = getpid().as_raw_pid();
        let mut any = false;
        for seen in tree.into_iter().filter(|seen| seen.pid != me && seen.lives()) {
            any = true;
            if self.group.is_none() || Stat::of(seen.pid).map(|stat| stat.group) != self.group {
                self.killed.insert(seen);
            }
            seen.signal(Signal::KILL);
        }
        any
    }
}

/// Kills until nothing is found. `wanted` tells the place in `claims` that a mark belongs to;
/// `between` runs before each new look.
pub(super) fn clear(
    ground: &Ground,
    claims: &mut [Claim],
    wanted: impl Fn(&str) -> Option<usize>,
    mut between: impl FnMut(),
) {
    let mut pause = Duration::from_millis(1);
    for _ in 0..ROUNDS {
        let mut roots: Vec<Vec<Seen>> = claims.iter().map(Claim::living).collect();
        for (place, seen) in ground.carriers(&wanted) {
            if let Some(roots) = roots.get_mut(place) {
                roots.push(seen);
            }
        }
        let mut any = false;
        for (claim, roots) in claims.iter_mut().zip(&roots) {
            any |= claim.kill(roots);
        }
        if !any {
            return;
        }
        thread::sleep(pause);
        pause = PAUSE.min(pause * 2);
        between();
    }
}

/// Looks through the machine once for all who wait for it: a hundred children that end together are
/// not a hundred looks at every process there is.
#[derive(Debug, Default)]
pub(super) struct Broom {
    waiting: Mutex<Vec<Job>>,
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Job {
    mark: String,
    claim: Claim,
    done: Arc<OnceLock<usize>>,
}

impl Broom {
    /// Kills all that carries `mark` or is in `claim`; how many there were. Blocks.
    pub(super) fn sweep(&self, mark: String, claim: Claim) -> usize {
        let done = Arc::new(OnceLock::new());
        let job = Job { mark, claim, done: done.clone() };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if done.get().is_none() {
            self.sweep_all();
        }
        done.get().copied().unwrap_or(0)
    }

    fn sweep_all(&self) {
        let jobs = mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let mut places = HashMap::new();
        let mut claims = Vec::new();
        let mut waiters = Vec::new();
        for (place, job) in jobs.into_iter().enumerate() {
            places.insert(job.mark, place);
            claims.push(job.claim);
            waiters.push(job.done);
        }
        clear(&Ground::Machine, &mut claims, |mark| places.get(mark).copied(), || {});
        for (done, claim) in waiters.iter().zip(&claims) {
            let _ = done.set(claim.leftovers());
        }
    }
}
