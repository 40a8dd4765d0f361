//! Whether a request can have been executed.

/// How far a request came. Only what provably was not executed may ever be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// No byte of it was written.
    NotSent,
    /// The server itself said that it did not execute it.
    Refused,
    /// It was written, at least in part, and nobody knows what became of it.
    Unknown,
}

impl Delivery {
    /// Whether the server can have executed it.
    #[must_use]
    pub fn may_have_run(self) -> bool {
        self == Self::Unknown
    }
}
