//! Leftovers of killed processes: child processes and private directories.

use stayput_core::SessionId;

use super::Links;
use crate::UnremovedPaths;

/// Leftovers that [`Links::sweep`] found.
#[derive(Debug, Default)]
pub struct LinkSweepReport {
    /// Number of processes that were killed.
    pub processes: usize,
    /// Directories that could not be removed.
    pub kept: UnremovedPaths,
}

impl Links {
    /// Kills child processes that dead Stayput processes left on this machine, then removes the directories
    /// of sessions for which `is_live` returns false.
    ///
    /// The directories are listed when this function is called. Call it before the first link is opened:
    /// directories of later links are left alone.
    pub fn sweep<L, F>(
        &self,
        is_live: L,
    ) -> impl Future<Output = LinkSweepReport> + Send + use<L, F>
    where
        L: Fn(SessionId) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let processes = self.0.opener.processes.clone();
        let folders = self.0.opener.folders.sweep(is_live);
        // A process that is still alive may write to its directory.
        async move { LinkSweepReport { processes: processes.sweep().await, kept: folders.await } }
    }
}
