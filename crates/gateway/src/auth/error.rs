//! Authentication errors and their HTTP answers.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use stayput_wire::Code;

use crate::reply::{self, Reply};

/// Reason why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// Request without credentials.
    Missing,
    /// Its credentials are invalid. The sentence reveals nothing that the bearer of the credentials does not know.
    Invalid(&'static str),
    /// The credentials cannot be checked now.
    KeysUnavailable,
    /// The owner sends more requests than it may; the next one is accepted after this time.
    RateLimited(Duration),
}

impl AuthError {
    /// Whether the answer asks for credentials.
    pub(crate) fn is_unauthorized(self) -> bool {
        matches!(self, Self::Missing | Self::Invalid(_))
    }

    /// Builds the answer. `metadata` is the URL of the resource metadata, which names the authorization server.
    pub(crate) fn answer(self, metadata: Option<&str>) -> Response<Reply> {
        let (error, sentence) = match self {
            Self::Missing => {
                (None, "this gateway wants to know who you are; send `Authorization: Bearer TOKEN`")
            }
            Self::Invalid(sentence) => (Some("invalid_token"), sentence),
            Self::RateLimited(wait) => return reply::too_fast(wait),
            Self::KeysUnavailable => {
                return reply::unavailable(
                    "the keys that tokens are checked with cannot be fetched now; try again in a moment",
                );
            }
        };
        let (status, code) = (StatusCode::UNAUTHORIZED, Code::INVALID_REQUEST);
        let mut answer = reply::refusal(status, None, code, sentence);
        let mut challenge = "Bearer realm=\"stayput\"".to_owned();
        if let Some(error) = error {
            challenge.push_str(&format!(", error=\"{error}\", error_description=\"{sentence}\""));
        }
        if let Some(metadata) = metadata {
            challenge.push_str(&format!(", resource_metadata=\"{metadata}\""));
        }
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        answer
    }
}
