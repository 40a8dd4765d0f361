//! A link in use, and where it was found.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
};

use stayput_core::Generation;

use super::slot::Slot;
use crate::{Link, LinkKey, Loss, Server};

/// Somebody who wants the link or has it: meanwhile it is not ended to make room for another one.
pub(super) struct Pin(Arc<Slot>);

impl Pin {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        slot.pin();
        Self(slot)
    }

    /// For one who was counted already.
    pub(super) fn of_counted(slot: Arc<Slot>) -> Self {
        Self(slot)
    }
}

impl Deref for Pin {
    type Target = Arc<Slot>;

    fn deref(&self) -> &Arc<Slot> {
        &self.0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

/// A link in use: while it is held, it is not ended to make room for another one.
pub struct Held {
    pin: Pin,
    link: Link,
    generation: Generation,
    loss: Option<Arc<Loss>>,
}

impl Held {
    pub(super) fn new(
        pin: Pin,
        link: Link,
        generation: Generation,
        loss: Option<Arc<Loss>>,
    ) -> Self {
        Self { pin, link, generation, loss }
    }

    /// Counts how often the state behind it was lost and begun anew.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Why the state of the generation before is gone, if that is known.
    #[must_use]
    pub fn loss(&self) -> Option<&Arc<Loss>> {
        self.loss.as_ref()
    }

    /// Which of all places of links it is in. Of what was behind a link in an earlier place, nothing is behind
    /// one in a later place.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.pin.number
    }

    /// Whether several sessions may use it, and with them several clients.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.pin.is_shared
    }

    /// Where it is, to find it there again.
    #[must_use]
    pub fn spot(&self) -> Spot {
        Spot(Arc::downgrade(&self.pin))
    }

    /// What it is found by.
    #[must_use]
    pub fn key(&self) -> &LinkKey {
        &self.pin.key
    }
}

impl Deref for Held {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({:?}, generation {})", self.link, self.generation)
    }
}

/// Where a link is, so that who wants it again need not look for it. It keeps nothing alive.
#[derive(Clone, Default)]
pub struct Spot(Weak<Slot>);

impl Spot {
    /// The live link that is there, if it leads to `server`, this one or a copy of it. Whoever gets nothing looks for it with
    /// [`Links::find`](crate::Links::find).
    #[must_use]
    pub fn find(&self, server: &Server) -> Option<Held> {
        let slot = self.0.upgrade()?;
        if slot.server.is(server) && !slot.is_out() { slot.hold() } else { None }
    }
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spot({:?})", self.0.upgrade())
    }
}
