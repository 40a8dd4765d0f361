//! What becomes of a client's request.

use std::sync::Arc;

use stayput_wire::Message;

use crate::{
    aggregate,
    connection::Connection,
    forward::{Done, Outcome},
    house::House,
    reply,
    target::Target,
    transparent,
};

/// One request of a client that shook hands. `streams` says whether it reads streams.
pub(crate) async fn answer(
    house: &Arc<House>,
    connection: &Arc<Connection>,
    message: &Message<'_>,
    streams: bool,
) -> Outcome {
    let id = message.id().map_or("null", |id| id.as_str());
    if message.method() == Some("ping") {
        return Outcome::Done(Done::new(reply::result(id, "{}")));
    }
    match &connection.target {
        Target::Server(name) => {
            transparent::request(house, connection, name, message, streams).await
        }
        Target::All => aggregate::request(house, connection, message, streams).await,
    }
}
