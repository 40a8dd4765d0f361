//! Refusal of a request whose session could not be identified.

use stayput_core::{Blame, SessionOpenError};
use stayput_identify::{NameError, text};
use stayput_wire::{Code, Era};

use crate::reply::{self, RequestRef};

/// Reason why the request was not run.
#[derive(Debug)]
pub(crate) struct Refusal {
    sentence: String,
    code: Code,
}

impl Refusal {
    /// Refusal that the caller can correct.
    pub(crate) fn caller(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), code: Code::INVALID_PARAMS }
    }

    /// Refusal for a session that cannot be opened, with a hint for the caller.
    pub(crate) fn of(error: &SessionOpenError, hint: &str) -> Self {
        let code = match error.blame() {
            Blame::Caller => Code::INVALID_PARAMS,
            _ => Code::INTERNAL_ERROR,
        };
        Self { sentence: text::refusal(error, hint), code }
    }

    /// Answer to the request: a tool error that a model can read, or a JSON-RPC error for other methods.
    pub(crate) fn answer(&self, asked: RequestRef<'_>, era: Era) -> String {
        if asked.method == "tools/call" {
            return reply::failure(asked, era, &self.sentence);
        }
        reply::error(asked.id, self.code, &self.sentence)
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        let more = match error {
            NameError::TwoConversations { .. } => {
                " The operator of the gateway can switch one of them off with \"hints\"."
            }
            _ => "",
        };
        Self::caller(format!("Nothing was run: {error}.{more}"))
    }
}
