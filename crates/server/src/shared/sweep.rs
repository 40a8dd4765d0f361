//! What has to be done from time to time.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use stayput_core::{OpenError, StoreError};

use super::Shared;

const BATCH: usize = 256;

/// How long a session that nobody uses is remembered here.
const MEMORY: Duration = Duration::from_secs(60);

impl Shared {
    /// How often there is something to be done: several times in the shortest idle time.
    fn period(&self) -> Duration {
        let idle = self.settings.expiry.idle.unwrap_or(Duration::MAX);
        let shortest = idle.min(self.settings.provisional);
        (shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(15))
    }

    /// Writes times of use, ends what is due, and forgets what is over for long, until nobody has
    /// sessions any more.
    pub(crate) fn tend(self: &Arc<Self>, runtime: &tokio::runtime::Handle) {
        let (weak, period): (Weak<Self>, _) = (Arc::downgrade(self), self.period());
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(period).await;
                let Some(shared) = weak.upgrade() else { return };
                // What the store did not do now, it does next time.
                let _ = shared.sweep().await;
            }
        });
    }

    /// One round of all that.
    pub(crate) async fn sweep(&self) -> Result<(), OpenError> {
        self.flush().await?;
        let now = self.now();
        let mut after = None;
        loop {
            let page = self.store.due(now, after, BATCH).await?;
            for record in &page {
                let reason = record.expiry.due(record.created, record.last_used, now);
                // One that a process holds is not ours: other programs may use the same store.
                if let Some(reason) = reason
                    && record.holder.is_none()
                    && !self.table.is_in_use(record.id)
                {
                    self.finish(record, reason).await?;
                }
            }
            after = page.last().and_then(|last| Some((last.deadline()?, last.id)));
            if after.is_none() {
                break;
            }
        }
        self.store.purge(now.before(self.settings.retention), BATCH).await?;
        self.table.trim(now.before(MEMORY), now);
        Ok(())
    }

    /// Writes times of use back.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let now = self.now();
        let used = self.table.all().into_iter();
        let mut used: Vec<_> = used.filter_map(|held| Some((held.unwritten(now)?, held))).collect();
        // As they were made, which is how most stores have them: a batch is then in few places.
        used.sort_unstable_by_key(|(_, held)| held.id());
        for batch in used.chunks(BATCH) {
            let times: Vec<_> = batch.iter().map(|(used, held)| (held.id(), *used)).collect();
            self.store.touch(&times, None).await?;
            batch.iter().for_each(|(used, held)| held.wrote(*used));
        }
        Ok(())
    }
}
