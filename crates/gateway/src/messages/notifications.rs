//! Notifications and responses of clients.

use stayput_core::HolderId;
use stayput_wire::{Message, MessageKind};

use crate::{
    connections::{connection::Connection, question_ids::QuestionId},
    messages::listen_stream,
    state::AppState,
};

/// Prefix of all methods that a client may send without an id.
pub(crate) const NOTIFICATIONS: &str = "notifications/";

/// Replicas that a message of a client concerns besides this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConcernedReplicas {
    /// Any replica may have links and calls of the connection.
    All,
    /// The replica that has asked the client.
    One(HolderId),
}

/// Handles a response or a notification of a client. Returns the other replicas that it concerns.
pub(crate) fn handle_message(
    app: &AppState,
    connection: &Connection,
    message: &Message<'_>,
) -> Option<ConcernedReplicas> {
    match message.kind() {
        MessageKind::Response { id, .. } | MessageKind::Error { id: Some(id), .. } => {
            return match app.question_ids.read(connection.name_hash(), *id)? {
                QuestionId::Own(number) => {
                    connection.take_server_request(number)?.pass(message.text().as_bytes());
                    None
                }
                QuestionId::Of(replica) => Some(ConcernedReplicas::One(replica)),
            };
        }
        MessageKind::Notification { method, params } => match &**method {
            "notifications/initialized" => return None,
            "notifications/cancelled" => {
                let id = params.and_then(|params| params.find(&["requestId"]));
                if let Some(id) = id {
                    connection.cancel(id.as_str());
                }
            }
            method if method.starts_with(NOTIFICATIONS) => pass_on(app, connection, message),
            // A call without an id would bypass the tool filter and the audit log.
            _ => return None,
        },
        _ => return None,
    }
    app.cluster.as_ref().map(|_| ConcernedReplicas::All)
}

/// Passes other notifications on to the servers, on every existing link of the connection. No child process is
/// started for a notification.
fn pass_on(app: &AppState, connection: &Connection, message: &Message<'_>) {
    for link in listen_stream::links(app, connection) {
        let _ = link.tell(message);
    }
}
