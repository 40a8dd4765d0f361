//! Refusal of a request whose session could not be identified.

use stayput_core::{Blame, SessionOpenError};
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
    pub(crate) fn of(error: &SessionOpenError, way_out: &str) -> Self {
        let code = match error.blame() {
            Blame::Caller => Code::INVALID_PARAMS,
            _ => Code::INTERNAL_ERROR,
        };
        let sentence = match error {
            // A session of another owner and an unknown session get the same text.
            SessionOpenError::Unknown => {
                format!(
                    "There is no such session for you: it is over, or never was. Nothing was run. {way_out}"
                )
            }
            SessionOpenError::Ended(_) => format!("Nothing was run: {error}. {way_out}"),
            error => format!("Nothing was run: {error}."),
        };
        Self { sentence, code }
    }

    /// Text of the refusal.
    #[cfg(test)]
    pub(crate) fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Answer to the request: a tool error that a model can read, or a JSON-RPC error for other methods.
    pub(crate) fn answer(&self, asked: RequestRef<'_>, era: Era) -> String {
        if asked.method == "tools/call" {
            return reply::failure(asked, era, &self.sentence);
        }
        reply::error(asked.id, self.code, &self.sentence)
    }
}
