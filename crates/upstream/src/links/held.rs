//! A link in use.

use std::{fmt, ops::Deref, sync::Arc};

use stayput_core::Generation;

use super::slot::Slot;
use crate::{Link, LinkKey, Loss};

/// Somebody who wants the link or has it: meanwhile it is not ended to make room for another one.
pub(super) struct Pin(Arc<Slot>);

impl Pin {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        slot.pin();
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
    link: Arc<Link>,
    generation: Generation,
    loss: Option<Arc<Loss>>,
}

impl Held {
    pub(super) fn new(
        pin: Pin,
        link: Arc<Link>,
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
