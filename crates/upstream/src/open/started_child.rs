//! Child process before its first message.

use std::time::Duration;

use stayput_process::{Child, Grace, MemoryMeter};
use tokio::runtime::Handle;

use crate::{budget::link_permit::LinkPermit, session_dirs::SpareDir};

/// The process got no message, so that it needs no time to finish work.
const UNUSED_CHILD_GRACE: Grace = Grace { quit: Duration::ZERO, term: Duration::from_secs(1) };

/// Child process with its permit, before it is part of a link. On drop it is ended in the background, and its
/// permit is freed after its end.
#[derive(Debug)]
pub(crate) struct StartedChild {
    inside: Option<(Child, LinkPermit)>,
    /// Directory that was made for it before its session was known.
    dir: Option<Box<SpareDir>>,
    runtime: Handle,
}

impl StartedChild {
    pub(crate) fn new(child: Child, permit: LinkPermit, runtime: Handle) -> Self {
        Self { inside: Some((child, permit)), dir: None, runtime }
    }

    /// Same process with its directory, which is removed after the end of the process.
    pub(crate) fn with_dir(self, dir: Option<SpareDir>) -> Self {
        let mut this = self;
        this.dir = dir.map(Box::new);
        this
    }

    /// Takes the directory, for the session that adopts it.
    pub(crate) fn take_dir(&mut self) -> Option<SpareDir> {
        self.dir.take().map(|dir| *dir)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.inside.as_ref().map(|(child, _)| child.pid())
    }

    pub(crate) fn memory_meter(&self) -> Option<MemoryMeter> {
        self.inside.as_ref().map(|(child, _)| child.memory_meter())
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
        let dir = self.dir.take();
        self.runtime.spawn(async move {
            child.end(UNUSED_CHILD_GRACE).await;
            drop(dir);
            drop(permit);
        });
    }
}
