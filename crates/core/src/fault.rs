//! What an error means for whoever gets it.

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller asked for what cannot be.
    Caller,
    /// This side, or the state it keeps.
    Here,
    /// The database.
    Store,
}

/// Whether it helps to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It fails in the same way each time.
    Never,
    /// Read again what was changed meanwhile, then try at once.
    AfterReload,
    /// The same call may succeed after a while.
    Later,
}
