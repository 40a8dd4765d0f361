//! Context of one request: its client, its target and its message.

use std::sync::Arc;

use http::HeaderMap;
use stayput_core::{ActiveSession, Owner, Session};
use stayput_upstream::{LinkOwner, Server};
use stayput_wire::{Code, Era, Message};

use crate::{
    auth::{Claims, Principal},
    config::{ToolFilter, target::Target},
    connections::connection::Connection,
    observe::call_record::CallStart,
    reply::{self, ReplyText, RequestRef, SocketTimer},
    state::{AppState, identify_rules::ConnectionKind, roster::Caller},
};

/// Context of a request. It is built once, after authentication and routing, and every later step reads it.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) app: &'a Arc<AppState>,
    pub(crate) owner: &'a Owner,
    /// Claims of the client's token.
    pub(crate) claims: &'a Claims,
    /// Target of the request's path.
    pub(crate) target: &'a Target,
    /// Server that the request is for. `None` for all servers, and for a server that was removed.
    pub(crate) server: Option<&'a Server>,
    pub(crate) headers: &'a HeaderMap,
    /// Session key in the path.
    pub(crate) path_key: Option<&'a str>,
    pub(crate) message: &'a Message<'a>,
    /// Connection of the client. A modern HTTP client has none, and `initialize` has none yet.
    pub(crate) connection: Option<&'a Arc<Connection>>,
    /// Protocol era that the client speaks.
    pub(crate) era: Era,
    /// Whether the client reads event streams.
    pub(crate) streams: bool,
    /// Claim by which this replica holds the process of the server for all its users, if it does.
    pub(crate) claim: Option<&'a Arc<ActiveSession>>,
    /// Timer of the client's socket, if the request runs in the task of the socket.
    pub(crate) timer: Option<&'a dyn SocketTimer>,
}

impl<'a> RequestContext<'a> {
    /// Builds the context of a message that has no connection and no session key in its path.
    pub(crate) fn new(
        app: &'a Arc<AppState>,
        (principal, target): (&'a Principal, &'a Target),
        headers: &'a HeaderMap,
        (message, era): (&'a Message<'a>, Era),
    ) -> Self {
        Self {
            app,
            owner: &principal.owner,
            claims: &principal.claims,
            target,
            server: target.server().and_then(|name| app.servers.get(&**name)),
            headers,
            path_key: None,
            message,
            connection: None,
            era,
            streams: true,
            claim: None,
            timer: None,
        }
    }

    /// Reference to the request, for its answer.
    pub(crate) fn request_ref(&self) -> RequestRef<'a> {
        let id = self.message.id().map_or("null", |id| id.as_str());
        RequestRef { id, method: self.message.method().unwrap_or_default() }
    }

    /// Starts the call record of a request whose session is not known yet.
    pub(crate) fn call_start(&self) -> CallStart<'a> {
        self.call_start_in(None)
    }

    /// Starts the call record of a request in this session.
    pub(crate) fn call_start_in<'s>(&self, session: Option<&'s Session>) -> CallStart<'s>
    where
        'a: 's,
    {
        let Self { owner, server, message, headers, .. } = *self;
        let connection = self.connection.map(|connection| connection.number());
        let history = &self.app.recent.calls;
        CallStart {
            owner,
            session,
            server,
            message,
            headers,
            connection,
            history,
            name_source: None,
        }
    }

    /// Kind of client that sent the request.
    pub(crate) fn connection_kind(&self) -> ConnectionKind {
        match self.connection {
            None => ConnectionKind::Modern,
            Some(connection) if connection.stdio => ConnectionKind::Stdio,
            Some(_) => ConnectionKind::Legacy,
        }
    }

    /// Owner and session for requests to servers outside of a call; `None` without a connection.
    pub(crate) fn link_owner(&self) -> Option<LinkOwner> {
        self.connection.map(|connection| connection.link_owner())
    }

    /// Client of the request, for questions to servers outside of a call.
    pub(crate) fn caller(&self) -> Caller<'a> {
        Caller { owner: self.owner, era: self.era, link_owner: self.link_owner() }
    }

    /// Name of the target in the log.
    pub(crate) fn label(&self) -> &str {
        self.server.map_or(Target::All.label(), Server::name)
    }

    /// Returns the tool filter of the server, if it hides any tool.
    pub(crate) fn tools(&self) -> Option<&'a ToolFilter> {
        self.app.tools.get(self.server?.name()).filter(|tools| !tools.passes_all())
    }

    /// Builds the result of a request that the gateway answers itself.
    pub(crate) fn result(&self, result: &str) -> ReplyText {
        ReplyText::new(reply::result(self.request_ref().id, result))
    }

    /// Builds the answer to a request that was not run: a tool error that a model can read, or a JSON-RPC error.
    pub(crate) fn failure(&self, sentence: &str) -> ReplyText {
        ReplyText::new(reply::failure(self.request_ref(), self.era, sentence))
    }

    /// Builds the JSON-RPC error for a request that is refused.
    pub(crate) fn error(&self, code: Code, sentence: &str) -> ReplyText {
        ReplyText::of_era(self.era, reply::error(self.request_ref().id, code, sentence))
    }
}
