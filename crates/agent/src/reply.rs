//! What a server answered.

use std::fmt;

use serde::de::DeserializeOwned;
use stayput_upstream::Answer;

use crate::Error;

/// What a server answered to a request that is not a call of a tool, as the protocol has it.
#[derive(Clone)]
pub struct Reply(Answer);

impl Reply {
    pub(crate) fn new(answer: Answer) -> Self {
        Self(answer)
    }

    /// The result as the server wrote it.
    #[must_use]
    pub fn raw(&self) -> &str {
        self.0.result().unwrap_or("{}")
    }

    /// The result as a type of the caller's.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.raw()).map_err(Error::invalid)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what was answered: it can hold anything.
        write!(f, "Reply({} bytes)", self.raw().len())
    }
}
