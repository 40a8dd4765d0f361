//! What becomes of a client's request.

use std::sync::Arc;

use http::HeaderMap;
use stayput_upstream::Server;
use stayput_wire::Message;

use crate::{
    aggregate,
    connection::Connection,
    forward::{Done, Outcome},
    house::House,
    identify::Claim,
    reply,
    target::Target,
    transparent,
};

/// What came along with a message.
#[derive(Clone, Copy)]
pub(crate) struct Along<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// The session in the path.
    pub(crate) path_key: Option<&'a str>,
    /// Whether the client reads streams.
    pub(crate) streams: bool,
}

impl<'a> Along<'a> {
    /// What says which session a message of this connection means, for one server or for all.
    pub(crate) fn claim(
        self,
        connection: &'a Arc<Connection>,
        server: Option<&'a Server>,
        message: &'a Message<'a>,
    ) -> Claim<'a> {
        let Self { headers, path_key, .. } = self;
        let (owner, connection) = (&connection.owner, Some(connection));
        Claim { owner, server, headers, path_key, message, connection }
    }
}

/// One request of a client that shook hands.
pub(crate) async fn answer(
    house: &Arc<House>,
    connection: &Arc<Connection>,
    message: &Message<'_>,
    along: Along<'_>,
) -> Outcome {
    let id = message.id().map_or("null", |id| id.as_str());
    if message.method() == Some("ping") {
        return Outcome::Done(Done::new(reply::result(id, "{}")));
    }
    match &connection.target {
        Target::Server(name) => transparent::request(house, connection, name, message, along).await,
        Target::All => aggregate::request(house, connection, message, along).await,
    }
}
