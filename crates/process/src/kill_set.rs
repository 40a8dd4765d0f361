//! Kills the leftovers of a child whose group is dead by SIGKILL: processes that carry its mark, and their descendants.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rustix::process::{Signal, getpid};
use stayput_sync::Mutex;

use super::{
    mark::MarkLookup,
    procfs::{self, ProcessRef, Stat},
};

/// Maximum number of search rounds. A killed process is gone in a moment, so all rounds are used only when the
/// kernel does not let a process die.
const ROUNDS: u32 = 120;

/// Number of checks of a process that has a command line and no environment. It may get one in a moment.
const MAX_CHECKS: u32 = 4;

/// Number of checks of a process that is just executing another program. On a busy machine it waits for its turn on a
/// processor before it has a command line and an environment.
const LOOKS_AT_EXEC: u32 = 100;

/// Longest pause between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Longest pause between two rounds.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Set of processes that is searched for leftovers.
#[derive(Debug)]
pub(super) enum SearchScope {
    /// All processes of the current user.
    Machine,
    /// Orphans below a warden, and their descendants. Everything else below the warden descends from a live
    /// leader.
    Orphans {
        /// Pid of the warden.
        of: i32,
        /// Children of the warden that are not orphans.
        leaders: HashSet<i32>,
    },
}

impl SearchScope {
    /// Returns the processes that could carry a mark.
    fn candidates(&self) -> Vec<i32> {
        let Self::Orphans { of, leaders } = self else { return procfs::ours() };
        let mut found = Vec::new();
        for orphan in procfs::children(*of).into_iter().filter(|pid| !leaders.contains(pid)) {
            found.push(orphan);
            found.extend(procfs::below(orphan).iter().map(|process| process.pid));
        }
        found
    }

    /// Returns all processes with a mark that `wanted` accepts, each with the value that `wanted` returned.
    pub(super) fn find_marked<T>(
        &self,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Vec<(T, ProcessRef)> {
        let me = getpid().as_raw_pid();
        let mut open = self.candidates();
        open.retain(|pid| *pid != me);
        let mut found = Vec::new();
        for look in 0..LOOKS_AT_EXEC {
            if open.is_empty() {
                break;
            }
            if look > 0 {
                thread::sleep(
                    LOOK_INTERVAL.min(Duration::from_millis(1) * look.div_ceil(MAX_CHECKS)),
                );
            }
            open.retain(|pid| {
                // The identity is read first: if the pid is reused in between, the mark belongs to another
                // process.
                let Some(process) = ProcessRef::at(*pid) else { return false };
                let marked = MarkLookup::read(*pid);
                if let MarkLookup::With(mark) = &marked
                    && let Some(what) = wanted(mark)
                    && process.lives()
                {
                    found.push((what, process));
                }
                match marked {
                    MarkLookup::Executing => true,
                    MarkLookup::Empty => look < MAX_CHECKS,
                    MarkLookup::With(_) | MarkLookup::No => false,
                }
            });
        }
        found
    }
}

/// Processes to kill, and those that were killed.
#[derive(Debug, Clone, Default)]
pub(super) struct KillSet {
    /// Group whose members do not count as leftovers.
    group: Option<i32>,
    /// Processes to kill whether they carry the mark or not.
    known: Vec<ProcessRef>,
    /// Processes that are never killed, whatever mark they carry.
    spared: Vec<i32>,
    killed: HashSet<ProcessRef>,
}

impl KillSet {
    pub(super) fn new(group: i32, known: Vec<ProcessRef>) -> Self {
        Self { group: Some(group), known, ..Self::default() }
    }

    /// Creates a set that is found by marks only. The `spared` processes are not killed, nor what they started
    /// without a mark.
    pub(super) fn sparing(spared: Vec<i32>) -> Self {
        Self { spared, ..Self::default() }
    }

    /// Creates the set of a group leader and its current descendants.
    pub(super) fn tree(leader: ProcessRef) -> Self {
        let mut known = procfs::below(leader.pid);
        known.push(leader);
        Self::new(leader.pid, known)
    }

    pub(super) fn add(&mut self, known: Vec<ProcessRef>) {
        self.known.extend(known);
    }

    /// Returns whether any of the known processes still lives.
    pub(super) fn lives(&self) -> bool {
        self.known.iter().any(|process| process.lives())
    }

    pub(super) fn leftovers(&self) -> usize {
        self.killed.len()
    }

    fn living(&self) -> Vec<ProcessRef> {
        self.known.iter().copied().filter(|process| process.lives()).collect()
    }

    /// Kills `roots` and their descendants. Returns whether any of them lived.
    fn kill(&mut self, roots: &[ProcessRef]) -> bool {
        let roots = roots.iter().filter(|root| !self.spared.contains(&root.pid));
        // Reads the whole tree before the first process dies, because then its children move to another parent.
        let below = roots.clone().flat_map(|root| procfs::below(root.pid));
        let tree: HashSet<ProcessRef> = roots.copied().chain(below).collect();
        let me = getpid().as_raw_pid();
        let mut any = false;
        for process in tree.into_iter().filter(|process| process.pid != me && process.lives()) {
            any = true;
            if self.group.is_none() || Stat::read(process.pid).map(|stat| stat.group) != self.group
            {
                self.killed.insert(process);
            }
            process.signal(Signal::KILL);
        }
        any
    }
}

/// Kills until a search finds nothing. `wanted` returns the index in `kill_sets` that a mark belongs to; `between`
/// runs before each new search.
pub(super) fn clear(
    search_scope: &SearchScope,
    kill_sets: &mut [KillSet],
    wanted: impl Fn(&str) -> Option<usize>,
    mut between: impl FnMut(),
) {
    let mut pause = Duration::from_millis(1);
    for _ in 0..ROUNDS {
        let mut roots: Vec<Vec<ProcessRef>> = kill_sets.iter().map(KillSet::living).collect();
        for (place, process) in search_scope.find_marked(&wanted) {
            if let Some(roots) = roots.get_mut(place) {
                roots.push(process);
            }
        }
        let mut any = false;
        for (kill_set, roots) in kill_sets.iter_mut().zip(&roots) {
            any |= kill_set.kill(roots);
        }
        if !any {
            return;
        }
        thread::sleep(pause);
        pause = POLL_INTERVAL.min(pause * 2);
        between();
    }
}

/// Searches the machine once for all waiting callers: a hundred children that end together must not cause a
/// hundred scans of all processes.
#[derive(Debug, Default)]
pub(super) struct Cleanup {
    waiting: Mutex<Vec<Job>>,
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Job {
    mark: String,
    kill_set: KillSet,
    done: Arc<OnceLock<usize>>,
}

impl Cleanup {
    /// Kills all processes that carry `mark` or are in `kill_set`. Returns the number of leftovers. Blocks.
    pub(super) fn sweep(&self, mark: String, kill_set: KillSet) -> usize {
        let done = Arc::new(OnceLock::new());
        let job = Job { mark, kill_set, done: done.clone() };
        self.waiting.lock().push(job);
        let _turn = self.turn.lock();
        if done.get().is_none() {
            self.sweep_all();
        }
        done.get().copied().unwrap_or(0)
    }

    fn sweep_all(&self) {
        let jobs = mem::take(&mut *self.waiting.lock());
        let mut places = HashMap::new();
        let mut kill_sets = Vec::new();
        let mut waiters = Vec::new();
        for (place, job) in jobs.into_iter().enumerate() {
            places.insert(job.mark, place);
            kill_sets.push(job.kill_set);
            waiters.push(job.done);
        }
        clear(&SearchScope::Machine, &mut kill_sets, |mark| places.get(mark).copied(), || {});
        for (done, kill_set) in waiters.iter().zip(&kill_sets) {
            let _ = done.set(kill_set.leftovers());
        }
    }
}
