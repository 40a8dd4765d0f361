//! Processor affinity of a server and its callers.

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Processor sets: the server has its own processor, and its callers have the others. Otherwise the scheduler moves
/// its thread, which costs time that is not the server's. With a single processor they share it. Dropping it restores
/// the affinity.
pub(crate) struct Places {
    all: CpuSet,
    server: CpuSet,
    callers: CpuSet,
}

impl Places {
    /// Moves this process to the processors of the callers.
    pub(crate) fn take() -> Self {
        let all = sched_getaffinity(None).unwrap();
        let (mut server, mut callers) = (all, all);
        if all.count() > 1 {
            let last = (0..CpuSet::MAX_CPU).rfind(|cpu| all.is_set(*cpu)).unwrap();
            server.clear();
            server.set(last);
            callers.unset(last);
        }
        every_thread(&callers);
        Self { all, server, callers }
    }

    /// Starts a process on the processor of the server: a child inherits the affinity of the starting thread.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> T) -> T {
        sched_setaffinity(None, &self.server).unwrap();
        let started = start();
        sched_setaffinity(None, &self.callers).unwrap();
        started
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        every_thread(&self.all);
    }
}

fn every_thread(place: &CpuSet) {
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let id = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // A thread that has ended meanwhile needs none.
        let _ = sched_setaffinity(Pid::from_raw(id), place);
    }
}
