//! Provider of headers per request.

use std::{borrow::Cow, fmt};

use async_trait::async_trait;

use super::Server;
use crate::server::link_key::Scope;
use http::{HeaderName, HeaderValue};

/// Provides headers for each request (R113): a token that is refreshed, a signature, a tenant.
///
/// It is called before every request, so it should cache what it fetches. The result may depend only on the
/// [`HeaderRequest`]: a shared link has no owner.
#[async_trait]
pub trait HeaderProvider: Send + Sync + fmt::Debug {
    /// Identifies its credentials, for example by a client id. It is part of the [identity](super::Identity)
    /// of every link, and should be the same after a restart. A token that is refreshed is not part of it: the links
    /// and their sessions go on.
    fn identity(&self) -> Cow<'_, str>;

    /// Whether the headers can differ between sessions. Then each session has its own links, so that a request of one
    /// session never has the credentials of another.
    fn varies_by_session(&self) -> bool {
        false
    }

    /// Returns the headers of one request. It must be safe to drop the future at any point.
    ///
    /// # Errors
    /// If there are none. The request is then not sent.
    async fn headers(
        &self,
        ask: &HeaderRequest<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderError>;
}

/// Request that needs headers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeaderRequest<'a> {
    /// Server, with its whole configuration (R116).
    pub server: &'a Server,
    /// Scope of the link.
    pub scope: &'a Scope,
    /// Whether the server has just refused the previous headers. Set at most once per request.
    pub rejected: bool,
}

impl<'a> HeaderRequest<'a> {
    /// First query for a request of the link of `scope` to `server`.
    #[must_use]
    pub fn new(server: &'a Server, scope: &'a Scope) -> Self {
        Self { server, scope, rejected: false }
    }

    /// Query after a refusal.
    #[must_use]
    pub fn rejected(self) -> Self {
        Self { rejected: true, ..self }
    }
}

/// Error of a header provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no headers for the request: {reason}")]
pub struct ProviderError {
    reason: String,
}

impl ProviderError {
    /// Creates an error. `reason` is shown to users and in logs: it should say what to do and contain no secret.
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
