//! Periodic maintenance.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use stayput_core::{SessionOpenError, StoreError};

use super::SessionRegistry;

const SWEEP_BATCH: usize = 256;

/// Time after which an unused session is removed from the cache.
const CACHE_IDLE: Duration = Duration::from_secs(60);

impl SessionRegistry {
    /// Returns the interval between sweeps: a quarter of the shortest idle time, within bounds.
    fn sweep_interval(&self) -> Duration {
        let idle = self.settings.expiry.idle.unwrap_or(Duration::MAX);
        let shortest = idle.min(self.settings.provisional);
        (shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(15))
    }

    /// Spawns the task that sweeps. It ends when the registry is dropped.
    pub(crate) fn spawn_sweeper(self: &Arc<Self>, runtime: &tokio::runtime::Handle) {
        let (weak, interval): (Weak<Self>, _) = (Arc::downgrade(self), self.sweep_interval());
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(registry) = weak.upgrade() else { return };
                // Work that failed is done in the next round.
                let _ = registry.sweep().await;
            }
        });
    }

    /// Writes times of last use, ends expired sessions, and purges old tombstones.
    pub(crate) async fn sweep(&self) -> Result<(), SessionOpenError> {
        self.flush().await?;
        let now = self.now();
        let mut after = None;
        loop {
            let page = self.store.list_due(now, after, SWEEP_BATCH).await?;
            for record in &page {
                let reason = record.expiry.due(record.created, record.last_used, now);
                // A session with a holder belongs to another program that uses the same store.
                if let Some(reason) = reason
                    && record.holder.is_none()
                    && !self.cache.is_in_use(record.id)
                {
                    self.expire(record, reason).await?;
                }
            }
            after = page.last().and_then(|last| Some((last.deadline()?, last.id)));
            if after.is_none() {
                break;
            }
        }
        self.store.purge(now.before(self.settings.retention), SWEEP_BATCH).await?;
        self.cache.prune(now.before(CACHE_IDLE), now);
        Ok(())
    }

    /// Writes times of last use to the store.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let now = self.now();
        let used = self.cache.all().into_iter();
        let mut used: Vec<_> =
            used.filter_map(|session| Some((session.unwritten(now)?, session))).collect();
        // Ids are ordered by creation, as are the rows of most stores, so a batch touches few pages.
        used.sort_unstable_by_key(|(_, session)| session.id());
        for batch in used.chunks(SWEEP_BATCH) {
            let times: Vec<_> = batch.iter().map(|(used, session)| (session.id(), *used)).collect();
            self.store.touch(&times, None).await?;
            batch.iter().for_each(|(used, session)| session.mark_written(*used));
        }
        Ok(())
    }
}
