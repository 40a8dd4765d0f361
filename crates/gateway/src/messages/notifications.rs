//! What a client says without asking for an answer.

use std::collections::HashSet;

use stayput_upstream::Place;
use stayput_wire::{Message, MessageKind};

use crate::{connections::connection::Connection, state::AppState};

/// Prefix of everything that a client may say without an id.
pub(crate) const NOTIFICATIONS: &str = "notifications/";

/// Takes in an answer or a notification of a client.
pub(crate) fn heed(app: &AppState, connection: &Connection, message: &Message<'_>) {
    match message.kind() {
        MessageKind::Response { id, .. } | MessageKind::Error { id: Some(id), .. } => {
            if let Some(asked) = id.number().and_then(|id| connection.asked(id)) {
                asked.pass(message.text().as_bytes());
            }
        }
        MessageKind::Notification { method, params } => match &**method {
            "notifications/initialized" => {}
            "notifications/cancelled" => {
                let id = params.and_then(|params| params.find(&["requestId"]));
                if let Some(id) = id {
                    connection.cancel(id.as_str());
                }
            }
            method if method.starts_with(NOTIFICATIONS) => pass_on(app, connection, message),
            // A call without an id would pass the list of allowed tools and the audit.
            _ => {}
        },
        _ => {}
    }
}

/// Other notifications go to the server, over every link that the connection has to do with: a child is not
/// started for one.
fn pass_on(app: &AppState, connection: &Connection, message: &Message<'_>) {
    let servers = app.servers.values().filter(|server| connection.target.has(server.name()));
    let servers: Vec<_> = servers.collect();
    let mut told = HashSet::new();
    for session in connection.sessions() {
        let place = Place::new(connection.owner.clone(), session);
        for link in servers.iter().filter_map(|server| app.links.find(server, &place)) {
            // Several sessions may share one.
            if told.insert(link.key().clone()) {
                let _ = link.tell(message);
            }
        }
    }
}
