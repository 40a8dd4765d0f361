//! Aggregate for clients of the modern era.

use std::sync::Arc;

use http::{HeaderMap, Response};
use stayput_core::Owner;
use stayput_wire::{Code, Era, Message};

use super::{REMOVED, discover};
use crate::{
    auth::Claims,
    call::modern::{
        client_call,
        request::ModernRequest,
        validate::{self, InvalidRequest},
    },
    connections::connection::Connection,
    identify::RequestContext,
    reply::{self, Reply},
    route::aggregate::{self, Refusal, Routed},
    session_tools,
    state::{AppState, roster::Roster},
};

/// Request to the aggregate, with its headers and sender.
pub(crate) struct ToAll<'a> {
    pub(crate) app: &'a Arc<AppState>,
    pub(crate) owner: Owner,
    pub(crate) claims: &'a Claims,
    pub(crate) headers: &'a HeaderMap,
    /// Session key in the path.
    pub(crate) path_key: Option<&'a str>,
    /// Connection of a stdio client.
    pub(crate) stdio: Option<&'a Arc<Connection>>,
    pub(crate) message: &'a Message<'a>,
    /// Request id, as the client wrote it.
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
}

impl ToAll<'_> {
    pub(crate) async fn answer(&self) -> Response<Reply> {
        if REMOVED.contains(&self.method) {
            let sentence = format!("this version of the protocol has no `{}`", self.method);
            return InvalidRequest::new(Code::METHOD_NOT_FOUND, &sentence).response(Some(self.id));
        }
        let (app, owner, headers, message) = (self.app, &self.owner, self.headers, self.message);
        let (path_key, connection) = (self.path_key, self.stdio);
        let context = RequestContext {
            owner,
            claims: self.claims,
            server: None,
            headers,
            path_key,
            message,
            connection,
        };
        if self.method == "server/discover" {
            let roster = Roster::call(app, owner, None).await;
            let result = discover::of_all(&roster, &app.aggregate.names);
            return reply::message(reply::result(self.id, &result));
        }
        if let Some(listed) = aggregate::listed(app, &context).await {
            return match listed {
                Ok(listed) => {
                    let info = discover::of_stayput();
                    let keeping = listed.kept.members();
                    let head = format!(r#""resultType":"complete",{keeping}{info},"#);
                    reply::message(reply::result(self.id, &listed.result(&head)))
                }
                Err(refusal) => self.refused(&refusal),
            };
        }
        if let Some(done) = session_tools::call(app, context).await {
            return reply::message_then(done.text, done.then);
        }
        match aggregate::route(app, &context).await {
            Some(Ok(routed)) => self.pass(routed).await,
            Some(Err(refusal)) => self.refused(&refusal),
            None => self.refused(&Refusal::elsewhere(self.method)),
        }
    }

    fn refused(&self, refusal: &Refusal) -> Response<Reply> {
        let text = refusal.answer(self.id, Era::Modern);
        let status = client_call::code(&text).map(validate::status).unwrap_or_default();
        let mut response = reply::message(text);
        *response.status_mut() = status;
        response
    }

    /// Passes the request on to its server, under the name that the server uses.
    async fn pass(&self, Routed { server, text }: Routed<'_>) -> Response<Reply> {
        let Self { app, claims, headers, path_key, stdio, id, method, .. } = *self;
        let inner = text.as_deref().map(|text| Message::parse(text.as_bytes()));
        let message = match &inner {
            None => self.message,
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                let sentence = error.to_string();
                return InvalidRequest::new(Code::INVALID_PARAMS, &sentence).response(Some(id));
            }
        };
        let owner = self.owner.clone();
        ModernRequest { app, server, headers, path_key, stdio, message, owner, claims, id, method }
            .pass()
            .await
    }
}
