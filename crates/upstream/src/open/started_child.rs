//! Child process before its first message.

use std::time::Duration;

use stayput_process::{Child, Grace};
use tokio::runtime::Handle;

use crate::budget::link_permit::LinkPermit;

/// The process got no message, so that it needs no time to finish work.
const UNUSED_CHILD_GRACE: Grace = Grace { quit: Duration::ZERO, term: Duration::from_secs(1) };

/// Child process with its permit, before it is part of a link. On drop it is ended in the background, and its
/// permit is freed after its end.
#[derive(Debug)]
pub(crate) struct StartedChild {
    inside: Option<(Child, LinkPermit)>,
    runtime: Handle,
}

impl StartedChild {
    pub(crate) fn new(child: Child, permit: LinkPermit, runtime: Handle) -> Self {
        Self { inside: Some((child, permit)), runtime }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.inside.as_ref().is_some_and(|(child, _)| child.exited().is_none())
    }

    pub(crate) fn permit_mut(&mut self) -> Option<&mut LinkPermit> {
        self.inside.as_mut().map(|(_, permit)| permit)
    }

    /// Takes process and permit to build a link.
    pub(crate) fn take(mut self) -> Option<(Child, LinkPermit)> {
        self.inside.take()
    }
}

impl Drop for StartedChild {
    fn drop(&mut self) {
        let Some((child, permit)) = self.inside.take() else { return };
        permit.leaving();
        self.runtime.spawn(async move {
            child.end(UNUSED_CHILD_GRACE).await;
            drop(permit);
        });
    }
}
