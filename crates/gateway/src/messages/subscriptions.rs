//! Subscriptions of clients to resources, on links that several clients use.
//!
//! A server knows its link and not the clients behind it. It sends updates for a resource as long as one client is
//! subscribed.

use std::{sync::Arc, time::Duration};

use stayput_upstream::{CallOptions, PooledLink};
use stayput_wire::{Message, json};

use crate::{
    connections::connection::{ClientPreferences, Connection},
    messages::listen_stream,
    state::AppState,
};

/// Timeout for an answer of a server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Unsubscribes a client that has disconnected for good from resources to which no other client is subscribed.
pub(crate) fn give_up(app: &AppState, connection: &Connection, preferences: &ClientPreferences) {
    if preferences.subscriptions.is_empty() {
        return;
    }
    for link in listen_stream::links(app, connection) {
        let wanted = |uri: &str| is_wanted(app, link.entry_id(), uri);
        let unwanted = preferences.subscriptions.keys().filter(|uri| !wanted(uri));
        let unwanted: Vec<_> = unwanted.map(|uri| params(uri)).collect();
        // Runs in the background, because no request waits for it.
        tokio::runtime::Handle::current().spawn(async move {
            for params in unwanted {
                tell(&link, "resources/unsubscribe", &params).await;
            }
        });
    }
}

/// Subscribes again after a client has unsubscribed, if other clients on the link are still subscribed.
pub(crate) async fn renew(app: &AppState, connection: &Connection, message: &Message<'_>) {
    let uri = message.params().and_then(|params| params.find(&["uri"])?.text());
    let Some(uri) = uri else { return };
    for link in listen_stream::links(app, connection) {
        if is_wanted(app, link.entry_id(), &uri) {
            tell(&link, "resources/subscribe", &params(&uri)).await;
        }
    }
}

/// Returns whether a client is subscribed to this URI on the link with this entry id.
fn is_wanted(app: &AppState, place: u64, uri: &str) -> bool {
    let known = app.connections.all();
    known.iter().any(|it: &Arc<Connection>| it.is_subscribed(place, uri))
}

fn params(uri: &str) -> String {
    format!(r#"{{"uri":{}}}"#, json::quote(uri))
}

async fn tell(link: &PooledLink, method: &str, params: &str) {
    let options = CallOptions { limit: Some(ANSWER_TIMEOUT), ..CallOptions::default() };
    if let Ok(call) = link.call(method, Some(params), options).await {
        let _ = call.answer().await;
    }
}
