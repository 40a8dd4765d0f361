//! Description of one process of a child's tree.

use std::fs;

use crate::procfs::{self, ProcessRef, Stat};

/// Process of a child's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Pid of the process.
    pub pid: u32,
    /// Pid of its parent.
    pub parent: u32,
    /// Name of its program, without arguments: they may hold secrets.
    pub name: String,
    /// Proportional memory (PSS) in bytes.
    pub memory: u64,
}

impl ProcessInfo {
    /// Reads the description of a process. `None` if it has ended.
    pub(crate) fn read(process: ProcessRef) -> Option<Self> {
        let stat = Stat::read(process.pid)?;
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        Some(Self {
            pid: process.pid.unsigned_abs(),
            parent: stat.parent.unsigned_abs(),
            name: name.trim_end().to_owned(),
            memory: procfs::memory(process.pid).unwrap_or_default(),
        })
    }
}
