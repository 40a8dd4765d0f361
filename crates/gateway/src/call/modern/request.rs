//! Request of a modern client.

use std::sync::Arc;

use http::{HeaderMap, Response};
use stayput_core::{Owner, Session};
use stayput_upstream::Server;
use stayput_wire::{Code, Era, Message};

use crate::{
    auth::Claims,
    call::modern::validate::InvalidRequest,
    config::ToolFilter,
    connections::connection::Connection,
    identify::RequestContext,
    observe::{
        CallEnd,
        call_record::{CallRecord, CallStart},
    },
    reply::{self, Reply, RequestRef},
    state::AppState,
};

/// Request to one server, with its headers and sender.
pub(crate) struct ModernRequest<'a> {
    pub(crate) app: &'a Arc<AppState>,
    pub(crate) server: &'a Server,
    pub(crate) headers: &'a HeaderMap,
    /// Session key in the path.
    pub(crate) path_key: Option<&'a str>,
    /// Connection of a stdio client.
    pub(crate) stdio: Option<&'a Arc<Connection>>,
    pub(crate) message: &'a Message<'a>,
    pub(crate) owner: Owner,
    pub(crate) claims: &'a Claims,
    /// Request id, as the client wrote it.
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
}

impl ModernRequest<'_> {
    pub(crate) fn asked(&self) -> RequestRef<'_> {
        RequestRef { id: self.id, method: self.method }
    }

    /// Builds the context that identifies the session.
    pub(crate) fn context(&self) -> RequestContext<'_> {
        RequestContext {
            owner: &self.owner,
            claims: self.claims,
            server: Some(self.server),
            headers: self.headers,
            path_key: self.path_key,
            message: self.message,
            connection: self.stdio,
        }
    }

    /// Returns the tool filter of the server, if it hides any tool.
    pub(crate) fn tools(&self) -> Option<&ToolFilter> {
        self.app.tools.get(self.server.name()).filter(|tools| !tools.passes_all())
    }

    /// Records a call that was not sent, with its session if it has one.
    pub(crate) fn note(&self, session: Option<&Session>, outcome: CallEnd) {
        CallRecord::begin(self.app.watch.as_ref(), self.begun(session)).came_to(outcome);
    }

    pub(crate) fn begun<'r>(&'r self, session: Option<&'r Session>) -> CallStart<'r> {
        let Self { owner, server, message, headers, .. } = self;
        CallStart { owner, session, server: Some(server), message, headers }
    }

    pub(crate) fn failed(&self, sentence: &str) -> Response<Reply> {
        reply::message(reply::failure(self.asked(), Era::Modern, sentence))
    }

    pub(crate) fn refused(&self, code: Code, sentence: &str) -> Response<Reply> {
        InvalidRequest::new(code, sentence).response(Some(self.id))
    }
}
