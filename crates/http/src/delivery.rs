//! Delivery certainty of a request.

/// Delivery certainty of a request. Only a request that provably was not executed may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// No byte was written.
    NotSent,
    /// The server said that it did not execute the request.
    Refused,
    /// The request was written, at least in part, and its outcome is unknown.
    Unknown,
}

impl Delivery {
    /// Whether the server may have executed the request.
    #[must_use]
    pub fn may_have_run(self) -> bool {
        self == Self::Unknown
    }
}
