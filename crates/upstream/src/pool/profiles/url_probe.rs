//! Probe of a URL in both eras at once.

use std::time::Duration;

use super::learn_task::{LearnTask, end};
use crate::{
    Cost, Link, ServerProtocol,
    budget::link_permit::LinkPermit,
    open::{
        handshake::{HandshakeAttempt, HandshakeError},
        opener::OpenRequest,
    },
};

pub(super) const MODERN: HandshakeAttempt = HandshakeAttempt::Only(ServerProtocol::Modern);
pub(super) const LEGACY: HandshakeAttempt = HandshakeAttempt::Only(ServerProtocol::Legacy);

/// Time after which a URL that has not answered `server/discover` gets `initialize`, too. A legacy server may not answer
/// a method that it does not know.
const DISCOVER_ALONE: Duration = Duration::from_secs(1);

/// Result of a probe in both eras.
pub(super) struct UrlProbe {
    /// Era of the result.
    pub(super) attempt: HandshakeAttempt,
    pub(super) result: Result<Link, HandshakeError>,
    /// Whether the legacy era needs no further try.
    pub(super) is_legacy_tried: bool,
}

impl UrlProbe {
    fn new(attempt: HandshakeAttempt, result: Result<Link, HandshakeError>) -> Self {
        Self { attempt, result, is_legacy_tried: true }
    }
}

impl LearnTask {
    /// Asks a URL in the modern era, and beside that in the legacy era if it is silent. A server that is slow, not
    /// silent, answers both at about the same time; then the modern era counts.
    pub(super) async fn probe_url(&self, plan: OpenRequest<'_>, permit: LinkPermit) -> UrlProbe {
        let limit = self.server.options().timeouts.open;
        let mut modern = Box::pin(self.opener.discover(plan, MODERN, permit, limit));
        let answered = tokio::time::timeout(DISCOVER_ALONE, &mut modern).await;
        if let Ok(result) = answered {
            return UrlProbe { attempt: MODERN, result, is_legacy_tried: false };
        }
        let cost = Cost { process: false };
        let Some(permit) = self.opener.budget.try_admit(self.scope.owner(), cost) else {
            return UrlProbe { attempt: MODERN, result: modern.await, is_legacy_tried: false };
        };
        let permit = LinkPermit::new(permit, self.completion.clone());
        let mut legacy = Box::pin(self.opener.discover(plan, LEGACY, permit, limit));
        tokio::select! {
            biased;
            result = &mut modern => match result {
                Ok(link) => {
                    // The server may have opened a session for the other request.
                    if let Ok(Ok(other)) = tokio::time::timeout(DISCOVER_ALONE, legacy).await {
                        end(&other).await;
                    }
                    UrlProbe::new(MODERN, Ok(link))
                }
                Err(_) => UrlProbe::new(LEGACY, legacy.await),
            },
            result = &mut legacy => match result {
                Ok(other) => match tokio::time::timeout(DISCOVER_ALONE, modern).await {
                    Ok(Ok(link)) => {
                        end(&other).await;
                        UrlProbe::new(MODERN, Ok(link))
                    }
                    _ => UrlProbe::new(LEGACY, Ok(other)),
                },
                Err(_) => UrlProbe::new(MODERN, modern.await),
            },
        }
    }
}
