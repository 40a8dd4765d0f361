//! Error about the names of a request.

use std::borrow::Cow;

use stayput_core::InvalidName;
use stayput_wire::EditError;

/// Place of a name in a request, for error messages.
pub(crate) type Place = Cow<'static, str>;

/// Error about the names of a request. The text is a sentence without its full stop. It does not repeat the value of
/// a name, because that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// A value in the place of a name is neither a handle nor `key:…`.
    #[error(
        "{place} must be a session id (`sp_…`) as it was given out, or `key:` and a name of your choice"
    )]
    NotAName {
        /// Place of the value.
        place: Cow<'static, str>,
    },
    /// A value begins like a name, but is malformed.
    #[error("{place} {problem}")]
    Malformed {
        /// Place of the value.
        place: Cow<'static, str>,
        /// Problem of the value.
        problem: InvalidName,
    },
    /// Two explicit names differ.
    #[error("{one} and {other} name two different sessions. Name one of them")]
    TwoSessions {
        /// Place of the first name.
        one: Cow<'static, str>,
        /// Place of the other name.
        other: Cow<'static, str>,
    },
    /// Two hints of the host differ.
    #[error("`_meta` tells two different conversations, as `{one}` and as `{other}`")]
    TwoConversations {
        /// Source of the first hint.
        one: &'static str,
        /// Source of the other hint.
        other: &'static str,
    },
    /// The name cannot be removed from the request, because JSON parsers do not agree about its place.
    #[error(transparent)]
    Edit(#[from] EditError),
}
