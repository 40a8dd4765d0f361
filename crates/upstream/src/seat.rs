//! The place of a link in the budget.

use std::fmt;

use stayput_core::Owner;

use crate::{AtCapacity, Permit, flag::Trace};

/// The place of a link in the budget, for as long as anything of the link is there.
pub(crate) struct Seat {
    // Dropped in this order: who hears that nothing is left finds the place free.
    permit: Permit,
    /// None once nobody waits for the beginning any more.
    trace: Option<Trace>,
}

impl Seat {
    pub(crate) fn new(permit: Permit, trace: Trace) -> Self {
        Self { permit, trace: Some(trace) }
    }

    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// What is in it was begun well. From now on who waits for its end waits for the link.
    pub(crate) fn settle(&mut self) {
        self.trace = None;
    }

    /// What is in it belongs to something else from now on.
    pub(crate) fn follow(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    /// See [`Permit::leaving`].
    pub(crate) fn leaving(&self) {
        self.permit.leaving();
    }

    /// See [`Permit::assign`].
    pub(crate) fn assign(&mut self, owner: &Owner) -> Result<(), AtCapacity> {
        self.permit.assign(owner)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({:?})", self.permit)
    }
}
