//! What is answered to a request whose session is in doubt.

use stayput_core::{Blame, SessionOpenError};
use stayput_wire::{Code, Era};

use crate::reply::{self, RequestRef};

/// Why nothing was run.
#[derive(Debug)]
pub(crate) struct Refusal {
    sentence: String,
    code: Code,
}

impl Refusal {
    /// Whoever asked can mend it.
    pub(crate) fn caller(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), code: Code::INVALID_PARAMS }
    }

    /// A session that cannot be had, and what to do about it.
    pub(crate) fn of(error: &SessionOpenError, way_out: &str) -> Self {
        let code = match error.blame() {
            Blame::Caller => Code::INVALID_PARAMS,
            _ => Code::INTERNAL_ERROR,
        };
        let sentence = match error {
            // Foreign and unknown, in the same words.
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

    /// What is wrong and what to do.
    #[cfg(test)]
    pub(crate) fn sentence(&self) -> &str {
        &self.sentence
    }

    /// The answer: for a tool what a model can read, for everything else an error.
    pub(crate) fn answer(&self, asked: RequestRef<'_>, era: Era) -> String {
        if asked.method == "tools/call" {
            return reply::failure(asked, era, &self.sentence);
        }
        reply::error(asked.id, self.code, &self.sentence)
    }
}
