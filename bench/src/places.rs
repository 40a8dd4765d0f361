//! Which processors a server has, and which its callers.

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// A server has a processor of its own, and whoever calls it the others: otherwise its thread is moved about, and what that
/// costs is not of the server. Where there is one processor they share it. Dropped, everybody may be everywhere again.
pub(crate) struct Places {
    all: CpuSet,
    server: CpuSet,
    callers: CpuSet,
}

impl Places {
    /// Sends this process to its place.
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

    /// Starts something at the place of the server: what is started is where the thread is that starts it.
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
        // One that has ended meanwhile needs none.
        let _ = sched_setaffinity(Pid::from_raw(id), place);
    }
}
