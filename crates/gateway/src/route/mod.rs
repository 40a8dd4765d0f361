//! Routing of client requests.

pub(crate) mod admission;
pub(crate) mod aggregate;
pub(crate) mod initialize;
pub(crate) mod lists;
pub(crate) mod modern;
pub(crate) mod single;

use std::sync::Arc;

use stayput_wire::Message;

use crate::{
    call::{CallOutcome, context::RequestParts},
    config::target::Target,
    connections::connection::Connection,
    reply::{self, ReplyText},
    state::AppState,
};

/// Answers a request of a client that has sent `initialize`.
pub(crate) async fn answer(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    message: &Message<'_>,
    parts: RequestParts<'_>,
) -> CallOutcome {
    let id = message.id().map_or("null", |id| id.as_str());
    if message.method() == Some("ping") {
        return CallOutcome::Done(ReplyText::new(reply::result(id, "{}")));
    }
    match &connection.target {
        Target::Server(name) => single::request(app, connection, name, message, parts).await,
        Target::All => Box::pin(aggregate::request(app, connection, message, parts)).await,
    }
}
