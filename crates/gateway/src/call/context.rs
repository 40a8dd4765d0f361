//! Context of a request: its principal, headers and path, and the session names it carries.

use std::sync::Arc;

use http::HeaderMap;
use stayput_core::Session;
use stayput_upstream::Server;
use stayput_wire::Message;

use crate::{
    auth::Principal, connections::connection::Connection, identify::RequestContext,
    observe::call_record::CallStart,
};

/// Parts of a request besides its message.
#[derive(Clone, Copy)]
pub(crate) struct RequestParts<'a> {
    /// Authenticated sender.
    pub(crate) principal: &'a Principal,
    pub(crate) headers: &'a HeaderMap,
    /// Session key in the path.
    pub(crate) path_key: Option<&'a str>,
    /// Whether the client reads event streams.
    pub(crate) streams: bool,
    /// Connection of a stdio client, which has one in either era.
    pub(crate) stdio: Option<&'a Arc<Connection>>,
}

impl<'a> RequestParts<'a> {
    /// Builds the context that identifies the session of a message. `server` is `None` for the aggregate.
    pub(crate) fn context(
        self,
        connection: &'a Arc<Connection>,
        server: Option<&'a Server>,
        message: &'a Message<'a>,
    ) -> RequestContext<'a> {
        let Self { principal, headers, path_key, .. } = self;
        let (owner, claims) = (&connection.owner, &*principal.claims);
        let connection = Some(connection);
        RequestContext { owner, claims, server, headers, path_key, message, connection }
    }

    /// Builds the call record's start data for a call of a session.
    pub(crate) fn begun(
        self,
        session: &'a Session,
        server: &'a Server,
        message: &'a Message<'a>,
    ) -> CallStart<'a> {
        let (owner, headers) = (session.owner(), self.headers);
        CallStart { owner, session: Some(session), server: Some(server), message, headers }
    }
}
