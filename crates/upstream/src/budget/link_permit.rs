//! Budget permit of a link.

use std::fmt;

use stayput_core::Owner;

use crate::{AtCapacity, Permit, util::flag::CompletionGuard};

/// Budget permit of a link, held until the link has released everything.
pub(crate) struct LinkPermit {
    // Field order matters: the permit is dropped first, so that it is free when the trace raises its flag.
    permit: Permit,
    /// `None` once the link was opened.
    completion: Option<CompletionGuard>,
}

impl LinkPermit {
    pub(crate) fn new(permit: Permit, completion: CompletionGuard) -> Self {
        Self { permit, completion: Some(completion) }
    }

    pub(crate) fn completion(&self) -> Option<&CompletionGuard> {
        self.completion.as_ref()
    }

    /// Ends the tracking of the opening: from now on waiters wait for the link itself.
    pub(crate) fn settle(&mut self) {
        self.completion = None;
    }

    /// Assigns the permit to another operation.
    pub(crate) fn follow(&mut self, completion: CompletionGuard) {
        self.completion = Some(completion);
    }

    /// See [`Permit::leaving`].
    pub(crate) fn leaving(&self) {
        self.permit.leaving();
    }

    /// See [`Permit::assign`].
    pub(crate) fn assign(&mut self, owner: Option<&Owner>) -> Result<(), AtCapacity> {
        self.permit.assign(owner)
    }
}

impl fmt::Debug for LinkPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkPermit({:?})", self.permit)
    }
}
