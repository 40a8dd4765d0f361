//! Headers that are made for each request.

use std::{borrow::Cow, fmt};

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};

use super::Server;
use crate::place::Scope;

/// Gives the headers of each request (R113): a token that is refreshed, a signature, a tenant.
///
/// It is asked before every request, so it keeps what it has fetched. Its answer must depend on
/// nothing but what the [`HeaderAsk`] says: a shared link has no owner, and gets none.
#[async_trait]
pub trait HeaderProvider: Send + Sync + fmt::Debug {
    /// What tells its credentials from those of another provider, such as the id of a client. It goes
    /// into the [identity](super::Identity) of every link, and should be the same after a restart.
    fn identity(&self) -> Cow<'_, str>;

    /// The headers of one request. Dropped midway, it must leave nothing half-done.
    ///
    /// # Errors
    /// If there are none to give. The request is then not sent.
    async fn headers(
        &self,
        ask: &HeaderAsk<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderError>;
}

/// For which request headers are asked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeaderAsk<'a> {
    /// The server, with all that is configured of it (R116).
    pub server: &'a Server,
    /// Whose link it is.
    pub scope: &'a Scope,
    /// Whether the server has just refused what was given before. It is asked so once per request.
    pub rejected: bool,
}

impl<'a> HeaderAsk<'a> {
    /// The first ask for a request of the link of `scope` to `server`.
    #[must_use]
    pub fn new(server: &'a Server, scope: &'a Scope) -> Self {
        Self { server, scope, rejected: false }
    }

    /// The ask after a refusal.
    #[must_use]
    pub fn rejected(self) -> Self {
        Self { rejected: true, ..self }
    }
}

/// Why there are no headers for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no headers for the request: {reason}")]
pub struct ProviderError {
    reason: String,
}

impl ProviderError {
    /// `reason` is shown to people and in logs: it says what to do, and no secret.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }

    pub(super) fn taken(name: &HeaderName) -> Self {
        Self::new(format!(
            "the provider gave '{name}', which Stayput writes itself; leave it out there"
        ))
    }
}
