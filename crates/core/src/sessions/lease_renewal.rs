//! Renewal of the lease of this process.

use std::{sync::atomic::Ordering, time::Duration};

use super::Sessions;
use crate::{LeaseValidity, StoreError};

/// Pause before a failed renewal is tried again: when a short outage of the store ends, the lease is
/// renewed before it expires.
const RENEWAL_RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// Outcome of a lease renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRenewal {
    /// The lease was extended.
    Renewed,
    /// The lease had expired, and a new one was acquired. All sessions were released; see
    /// [`Sessions::reclaim`].
    Replaced,
}

impl Sessions {
    /// Renews the lease. Call it again after [`Sessions::renewal_interval`].
    ///
    /// Call [`Sessions::reclaim`] afterwards, whatever the result.
    ///
    /// # Errors
    /// An error of the store; the lease is then valid until it expires. [`StoreError::LeaseLost`]
    /// after [`Sessions::close`].
    pub async fn renew(&self) -> Result<LeaseRenewal, StoreError> {
        let Some(_guard) = self.renewing.try_enter() else { return Ok(LeaseRenewal::Renewed) };
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::LeaseLost);
        }
        let (requested, ttl) = (self.clock.reading(), self.settings().lease);
        let lease = self.validity().renewable_lease();
        match self.store.renew_lease(lease, ttl).await {
            Ok(()) => {
                self.set_validity(LeaseValidity::new(lease, requested, ttl));
                Ok(LeaseRenewal::Renewed)
            }
            Err(StoreError::LeaseLost) => {
                tracing::warn!(epoch = ?lease.epoch, "the lease was lost; its sessions are claimed again");
                self.release_all();
                let requested = self.clock.reading();
                let lease = self.store.acquire_lease(&self.holder, ttl).await?;
                self.table.set_lease(lease);
                self.set_validity(LeaseValidity::new(lease, requested, ttl));
                Ok(LeaseRenewal::Replaced)
            }
            Err(error) => {
                tracing::debug!(%error, "the lease was not renewed");
                Err(error)
            }
        }
    }

    /// Returns the time until the next renewal: a third of the lease, or much less after a failure.
    #[must_use]
    pub fn renewal_interval(&self, last: &Result<LeaseRenewal, StoreError>) -> Duration {
        let third = self.settings().lease / 3;
        if last.is_ok() { third } else { third.min(RENEWAL_RETRY_INTERVAL) }
    }

    pub(super) fn validity(&self) -> LeaseValidity {
        *self.validity.read()
    }

    pub(super) fn set_validity(&self, validity: LeaseValidity) {
        let mut known = self.validity.write();
        *known = validity;
        // Under the lock, so that both always come from the same update.
        self.deadline.set(&validity);
    }
}
