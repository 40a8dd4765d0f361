//! The place of a link in the budget.

use std::fmt;

use stayput_core::Owner;

use crate::{AtCapacity, Permit, flag::Trace};

/// The place of a link in the budget, for as long as anything of the link is there.
pub(crate) struct Seat {
    // Dropped in this order: who hears that nothing is left finds the place free.
    permit: Permit,
    trace: Trace,
}

impl Seat {
    pub(crate) fn new(permit: Permit, trace: Trace) -> Self {
        Self { permit, trace }
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What is in it belongs to something else from now on.
    pub(crate) fn follow(&mut self, trace: Trace) {
        self.trace = trace;
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
