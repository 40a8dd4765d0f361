//! Refusal of a request whose session could not be identified.

use stayput_core::{Blame, Holder, SessionOpenError};
use stayput_identify::{NameError, text};
use stayput_wire::{Code, Era};

use crate::reply::{self, HeldBy, ReplyText, RequestRef, SessionName};

/// Reason why the request was not run.
#[derive(Debug)]
pub(crate) struct Refusal {
    sentence: String,
    code: Code,
    /// Replica that holds the session.
    held_by: Option<Box<HeldBy>>,
}

impl Refusal {
    /// Refusal that the caller can correct.
    pub(crate) fn caller(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), code: Code::INVALID_PARAMS, held_by: None }
    }

    /// Refusal for a session that cannot be opened, with a hint for the caller.
    pub(crate) fn for_open_error(error: &SessionOpenError, hint: &str) -> Self {
        let code = match error.blame() {
            Blame::Caller => Code::INVALID_PARAMS,
            _ => Code::INTERNAL_ERROR,
        };
        let held_by = match error {
            // A process without an address cannot be reached.
            SessionOpenError::HeldElsewhere { holder } if !holder.address.is_empty() => {
                Some(HeldBy::unnamed(holder.clone()))
            }
            _ => None,
        };
        Self { sentence: text::refusal(error, hint), code, held_by }
    }

    /// Refusal for a session that this replica holds.
    pub(crate) fn held_by(holder: Holder) -> Self {
        Self::for_open_error(&SessionOpenError::HeldElsewhere { holder }, "Try again.")
    }

    /// Refusal for a server whose process another replica holds. The text is for clients whose requests cannot be forwarded.
    pub(crate) fn process_held_by(holder: Holder, name: SessionName) -> Self {
        let sentence = "Nothing was run: another gateway of the cluster holds the process of this server, and a request of \
                        this kind cannot be passed on to it. Send the request alone, over Streamable HTTP (/mcp).";
        let refusal = Self::held_by(holder).found_by(Some(name));
        Self { sentence: sentence.to_owned(), ..refusal }
    }

    /// Adds the name by which the replica was found.
    pub(crate) fn found_by(mut self, name: Option<SessionName>) -> Self {
        if let Some(held_by) = &mut self.held_by {
            held_by.name = name;
        }
        self
    }

    /// Answer to the request: a tool error that a model can read, or a JSON-RPC error for other methods.
    pub(crate) fn answer(&self, asked: RequestRef<'_>, era: Era) -> ReplyText {
        let text = if asked.method == "tools/call" {
            reply::failure(asked, era, &self.sentence)
        } else {
            reply::error(asked.id, self.code, &self.sentence)
        };
        ReplyText::of_era(era, text).held_by(self.held_by.clone())
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
