//! Notifications and responses of clients.

use stayput_wire::{Message, MessageKind};

use crate::{connections::connection::Connection, messages::listen_stream, state::AppState};

/// Prefix of all methods that a client may send without an id.
pub(crate) const NOTIFICATIONS: &str = "notifications/";

/// Handles a response or a notification of a client. Returns whether it may also concern other replicas, which have links
/// and calls of the same connection.
pub(crate) fn handle_message(
    app: &AppState,
    connection: &Connection,
    message: &Message<'_>,
) -> bool {
    match message.kind() {
        MessageKind::Response { id, .. } | MessageKind::Error { id: Some(id), .. } => {
            match id.number().and_then(|id| connection.take_server_request(id)) {
                Some(asked) => {
                    asked.pass(message.text().as_bytes());
                    return false;
                }
                None => return app.cluster.is_some(),
            }
        }
        MessageKind::Notification { method, params } => match &**method {
            "notifications/initialized" => return false,
            "notifications/cancelled" => {
                let id = params.and_then(|params| params.find(&["requestId"]));
                if let Some(id) = id {
                    connection.cancel(id.as_str());
                }
            }
            method if method.starts_with(NOTIFICATIONS) => pass_on(app, connection, message),
            // A call without an id would bypass the tool filter and the audit log.
            _ => return false,
        },
        _ => return false,
    }
    app.cluster.is_some()
}

/// Passes other notifications on to the servers, on every existing link of the connection. No child process is
/// started for a notification.
fn pass_on(app: &AppState, connection: &Connection, message: &Message<'_>) {
    for link in listen_stream::links(app, connection) {
        let _ = link.tell(message);
    }
}
