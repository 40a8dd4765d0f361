//! What clients subscribed to, over links that several of them use.
//!
//! A server knows its link and not who is behind it: it tells of a resource for as long as one of them wants it.

use std::{sync::Arc, time::Duration};

use stayput_upstream::{CallOptions, Held};
use stayput_wire::{Message, json};

use crate::{
    connections::connection::{ClientPreferences, Connection},
    messages::listen_stream,
    state::AppState,
};

/// How long a server has to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A client is gone for good: its servers need not tell of what nobody else wants to hear of.
pub(crate) fn give_up(app: &AppState, connection: &Connection, wishes: &ClientPreferences) {
    if wishes.subscriptions.is_empty() {
        return;
    }
    for link in listen_stream::links(app, connection) {
        let wanted = |uri: &str| is_wanted(app, link.slot(), uri);
        let unwanted = wishes.subscriptions.keys().filter(|uri| !wanted(uri));
        let unwanted: Vec<_> = unwanted.map(|uri| params(uri)).collect();
        // Nobody waits for that.
        tokio::runtime::Handle::current().spawn(async move {
            for params in unwanted {
                tell(&link, "resources/unsubscribe", &params).await;
            }
        });
    }
}

/// A client has told its server that it does not want to hear of something any more. Others may.
pub(crate) async fn renew(app: &AppState, connection: &Connection, message: &Message<'_>) {
    let uri = message.params().and_then(|params| params.find(&["uri"])?.text());
    let Some(uri) = uri else { return };
    for link in listen_stream::links(app, connection) {
        if is_wanted(app, link.slot(), &uri) {
            tell(&link, "resources/subscribe", &params(&uri)).await;
        }
    }
}

/// Whether somebody is subscribed to this over the link in this place.
fn is_wanted(app: &AppState, place: u64, uri: &str) -> bool {
    let known = app.connections.all();
    known.iter().any(|it: &Arc<Connection>| it.is_subscribed(place, uri))
}

fn params(uri: &str) -> String {
    format!(r#"{{"uri":{}}}"#, json::quote(uri))
}

async fn tell(link: &Held, method: &str, params: &str) {
    let options = CallOptions { limit: Some(ANSWER), ..CallOptions::default() };
    if let Ok(call) = link.call(method, Some(params), options).await {
        let _ = call.answer().await;
    }
}
