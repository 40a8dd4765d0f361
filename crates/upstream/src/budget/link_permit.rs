//! Budget permit of a link.

use std::fmt;

use stayput_core::Owner;

use crate::{AtCapacity, Permit, util::flag::Trace};

/// Budget permit of a link, held until the link has released everything.
pub(crate) struct LinkPermit {
    // Field order matters: the permit is dropped first, so that it is free when the trace raises its flag.
    permit: Permit,
    /// `None` once the link was opened.
    trace: Option<Trace>,
}

impl LinkPermit {
    pub(crate) fn new(permit: Permit, trace: Trace) -> Self {
        Self { permit, trace: Some(trace) }
    }

    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Ends the tracking of the opening: from now on waiters wait for the link itself.
    pub(crate) fn settle(&mut self) {
        self.trace = None;
    }

    /// Assigns the permit to another operation.
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

impl fmt::Debug for LinkPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkPermit({:?})", self.permit)
    }
}
