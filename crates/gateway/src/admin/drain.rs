//! `/admin/drain`: moves the sessions of this gateway to other gateways.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;

use super::{Answer, Refusal, json};
use crate::{
    reply::Reply,
    state::{AppState, drain::DrainProgress},
};

#[derive(Serialize)]
struct DrainView {
    #[serde(flatten)]
    progress: DrainProgress,
    /// Sessions that this process still holds.
    held: usize,
}

/// Shows how far the drain is.
pub(super) fn show(app: &AppState) -> Response<Reply> {
    json(&DrainView { progress: app.drain_progress(), held: app.sessions.count() })
}

/// Begins the drain. A drain that has begun goes on.
pub(super) async fn begin(app: &Arc<AppState>) -> Answer {
    let begun = app.begin_drain().await;
    begun.map_err(|error| Refusal::new(StatusCode::CONFLICT, error.to_string()))?;
    let mut response = show(app);
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}
