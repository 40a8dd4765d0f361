//! What becomes of a client's request.

use std::sync::Arc;

use http::HeaderMap;
use stayput_core::Session;
use stayput_upstream::Server;
use stayput_wire::Message;

use crate::{
    account::Begun,
    aggregate,
    connection::Connection,
    forward::{Done, Outcome},
    house::House,
    identify::Claim,
    owners::Principal,
    reply,
    target::Target,
    transparent,
};

/// What came along with a message.
#[derive(Clone, Copy)]
pub(crate) struct Along<'a> {
    /// Who it is from.
    pub(crate) principal: &'a Principal,
    pub(crate) headers: &'a HeaderMap,
    /// The session in the path.
    pub(crate) path_key: Option<&'a str>,
    /// Whether the client reads streams.
    pub(crate) streams: bool,
    /// The connection of a client over standard input and output, which has one in either era.
    pub(crate) stdio: Option<&'a Arc<Connection>>,
}

impl<'a> Along<'a> {
    /// What says which session a message of this connection means, for one server or for all.
    pub(crate) fn claim(
        self,
        connection: &'a Arc<Connection>,
        server: Option<&'a Server>,
        message: &'a Message<'a>,
    ) -> Claim<'a> {
        let Self { principal, headers, path_key, .. } = self;
        let (owner, claims) = (&connection.owner, &*principal.claims);
        let connection = Some(connection);
        Claim { owner, claims, server, headers, path_key, message, connection }
    }

    /// A call of a session that is about to be made.
    pub(crate) fn begun(
        self,
        session: &'a Session,
        server: &'a Server,
        message: &'a Message<'a>,
    ) -> Begun<'a> {
        let (owner, headers) = (session.owner(), self.headers);
        Begun { owner, session: Some(session), server: Some(server), message, headers }
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
        Target::All => Box::pin(aggregate::request(house, connection, message, along)).await,
    }
}
