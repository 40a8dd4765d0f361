//! Sentences about sessions that a model reads.

use std::time::Duration;

use stayput_core::{Expiry, Handle, SessionOpenError};
use stayput_wire::meta;

use crate::ArgumentName;

/// Place where a client puts a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlePlace {
    /// Argument of each tool.
    Argument(ArgumentName),
    /// `_meta`, or a header.
    Meta,
    /// Argument of this tool, which changes the default session of the connection.
    SwitchTool(String),
}

/// Describes when a session expires. Begins with a verb.
#[must_use]
pub fn lifetime(expiry: Expiry) -> String {
    let words = |span: Duration| match span.as_secs() {
        secs if secs >= 3_600 && secs.is_multiple_of(3_600) => format!("{} h", secs / 3_600),
        secs if secs >= 60 && secs.is_multiple_of(60) => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    };
    match (expiry.idle.map(words), expiry.absolute.map(words)) {
        (Some(idle), Some(age)) => {
            format!("ends {idle} after its last call, and {age} after its start at the latest")
        }
        (Some(idle), None) => format!("ends {idle} after its last call"),
        (None, Some(age)) => format!("ends {age} after its start"),
        (None, None) => "lives until it is ended".to_owned(),
    }
}

/// Offers a session to a call that names none. The call was not run.
#[must_use]
pub fn offer(handle: &Handle, place: &HandlePlace) -> String {
    let handle = handle.expose();
    let how = match place {
        HandlePlace::Argument(name) => {
            format!("`\"{name}\": \"{handle}\"` in the arguments of the tool")
        }
        _ => format!(
            "`\"{}\": \"{handle}\"` in `_meta`, or the header `Stayput-Session: {handle}`",
            meta::SESSION
        ),
    };
    format!(
        "This call was not run: the server keeps state between calls, and nothing says which session \
         the call belongs to. A session is ready for this conversation: {how}. Repeat the call with it, \
         and pass it in every later call of this conversation. Keep it when the conversation is \
         summarised. Never use it for another conversation."
    )
}

/// Sentence for a call that named no session and has run in a new one.
#[must_use]
pub fn minted(handle: &Handle) -> String {
    format!(
        "This call ran in a new session: {}. Pass it as the session argument of the tool (`session_id`, \
         or `stayput_session_id` where the tool has that) in every later call of this conversation, and \
         keep it when the conversation is summarised; a call without it begins with nothing.",
        handle.expose()
    )
}

/// Tells that a session cannot be opened. An unknown session and one of another owner get the same text. `hint`
/// tells what the caller can do.
#[must_use]
pub fn refusal(error: &SessionOpenError, hint: &str) -> String {
    match error {
        SessionOpenError::Unknown => format!(
            "There is no such session for you: it is over, or never existed. Nothing was run. {hint}"
        ),
        SessionOpenError::Ended(_) => format!("Nothing was run: {error}. {hint}"),
        error => format!("Nothing was run: {error}."),
    }
}

/// Tells how to get a new session. `start` is the name of `session_start`.
#[must_use]
pub fn start_again(start: &str) -> String {
    format!("Call `{start}` for a new session, and use the session_id that it returns.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetime_is_in_the_largest_whole_unit() {
        let [half, day, odd] = [1_800, 86_400, 61].map(Duration::from_secs);
        let text = |idle, absolute| lifetime(Expiry { idle, absolute });
        assert_eq!(
            text(Some(half), Some(day)),
            "ends 30 min after its last call, and 24 h after its start at the latest"
        );
        assert_eq!(text(Some(odd), None), "ends 61 s after its last call");
        assert_eq!(text(None, Some(day)), "ends 24 h after its start");
        assert_eq!(text(None, None), "lives until it is ended");
    }
}
