//! Hand-over: a process that is about to stop leaves sessions to another one.

use std::{fmt, sync::OnceLock};

use super::{OpenOptions, SessionOpenError, Sessions};
use crate::{Holder, SessionId, StoreError};

/// Function that names the process for sessions that this one does not claim or create.
type Successor = Box<dyn Fn() -> Option<Holder> + Send + Sync>;

/// Whether this process hands its sessions over, and to which process.
#[derive(Default)]
pub(super) struct HandOver(OnceLock<Successor>);

impl HandOver {
    pub(super) fn successor(&self) -> Option<Holder> {
        self.0.get()?()
    }
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandOver({})", self.0.get().is_some())
    }
}

impl Sessions {
    /// Stops claiming and creating sessions, for good. Held sessions are served as before; release them by
    /// [`Sessions::release_idle`]. A caller that needs another session gets [`SessionOpenError::HeldElsewhere`] with the
    /// process that holds it, or with the one that `successor` names, which claims or creates it. As long as `successor`
    /// names none, this process claims and creates sessions as before.
    pub fn begin_hand_over(&self, successor: impl Fn() -> Option<Holder> + Send + Sync + 'static) {
        let _ = self.hand_over.0.set(Box::new(successor));
    }

    /// Refuses to claim a session of the store if this process hands its sessions over.
    pub(super) async fn leave_claim(&self, id: SessionId) -> Result<(), SessionOpenError> {
        let Some(successor) = self.hand_over.successor() else { return Ok(()) };
        let Some(record) = self.store.load(id).await?.filter(|it| it.is_live()) else {
            return Ok(());
        };
        let holder = match record.holder {
            // Claimed by a caller that is gone: it is released with the others.
            Some(lease) if lease == self.current_lease() => return Ok(()),
            Some(lease) => self.store.lease_holder(lease).await?,
            None => None,
        };
        let holder = holder.filter(|it| it.id != self.holder.id).unwrap_or(successor);
        Err(SessionOpenError::HeldElsewhere { holder })
    }

    /// Refuses to create a session if this process hands its sessions over.
    pub(super) async fn leave_creation(
        &self,
        options: &OpenOptions,
    ) -> Result<(), SessionOpenError> {
        let Some(successor) = self.hand_over.successor() else { return Ok(()) };
        if let Some((agent, key)) = &options.name
            && let Some(record) = self.store.find_by_key(&options.owner, agent, key).await?
        {
            return Err(StoreError::Taken { by: record.id }.into());
        }
        Err(SessionOpenError::HeldElsewhere { holder: successor })
    }
}
