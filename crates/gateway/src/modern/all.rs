//! All servers at once, for clients of the modern era.

use std::sync::Arc;

use http::{HeaderMap, Response};
use stayput_core::Owner;
use stayput_wire::{Code, Era, Message};

use super::{REMOVED, Request, discover, errand, validate, validate::Refused};
use crate::{
    aggregate::{self, Refusal, Routed, roll::Roll},
    connection::Connection,
    house::House,
    identify::Claim,
    owners::Claims,
    reply::{self, Reply},
    session_tools,
};

/// One request to all servers, and what it came with.
pub(super) struct ToAll<'a> {
    pub(super) house: &'a Arc<House>,
    pub(super) owner: Owner,
    pub(super) claims: &'a Claims,
    pub(super) headers: &'a HeaderMap,
    /// The session in the path.
    pub(super) path_key: Option<&'a str>,
    /// The connection of a client that has one, because it speaks over standard input and output.
    pub(super) stdio: Option<&'a Arc<Connection>>,
    pub(super) message: &'a Message<'a>,
    /// The client's id as it was written.
    pub(super) id: &'a str,
    pub(super) method: &'a str,
}

impl ToAll<'_> {
    pub(super) async fn answer(&self) -> Response<Reply> {
        if REMOVED.contains(&self.method) {
            let sentence = format!("this version of the protocol has no `{}`", self.method);
            return Refused::new(Code::METHOD_NOT_FOUND, &sentence).response(Some(self.id));
        }
        let (house, owner, headers, message) =
            (self.house, &self.owner, self.headers, self.message);
        let (path_key, connection) = (self.path_key, self.stdio);
        let claim = Claim {
            owner,
            claims: self.claims,
            server: None,
            headers,
            path_key,
            message,
            connection,
        };
        if self.method == "server/discover" {
            let roll = Roll::call(house, owner, None).await;
            let said = discover::of_all(&roll, &house.aggregate.names);
            return reply::message(reply::result(self.id, &said));
        }
        if let Some(listed) = aggregate::listed(house, &claim).await {
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
        if let Some(done) = session_tools::call(house, claim).await {
            return reply::message_then(done.text, done.then);
        }
        match aggregate::route(house, &claim).await {
            Some(Ok(routed)) => self.pass(routed).await,
            Some(Err(refusal)) => self.refused(&refusal),
            None => self.refused(&Refusal::elsewhere(self.method)),
        }
    }

    fn refused(&self, refusal: &Refusal) -> Response<Reply> {
        let text = refusal.answer(self.id, Era::Modern);
        let status = errand::code(&text).map(validate::status).unwrap_or_default();
        let mut response = reply::message(text);
        *response.status_mut() = status;
        response
    }

    /// Passes it on to its server, under the name that it has there.
    async fn pass(&self, Routed { server, text }: Routed<'_>) -> Response<Reply> {
        let Self { house, claims, headers, path_key, stdio, id, method, .. } = *self;
        let inner = text.as_deref().map(|text| Message::parse(text.as_bytes()));
        let message = match &inner {
            None => self.message,
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                let sentence = error.to_string();
                return Refused::new(Code::INVALID_PARAMS, &sentence).response(Some(id));
            }
        };
        let owner = self.owner.clone();
        Request { house, server, headers, path_key, stdio, message, owner, claims, id, method }
            .pass()
            .await
    }
}
