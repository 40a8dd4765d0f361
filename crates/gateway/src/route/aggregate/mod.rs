//! All servers behind one path.
//!
//! What tools and prompts are called begins with their server ([`names`]), URIs lead to the server that
//! lists them ([`index`]), and lists are put together from what is known of each ([`list`]). A server
//! that is not there is left out and named ([`roll`]); it holds up nobody. Behind a client is one
//! session, which has a link to each server that it used.

pub(crate) mod cache_ttl;
pub(crate) mod initialize;
mod listing;
mod route;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use stayput_upstream::{CallOptions, Place};
use stayput_wire::{Code, Era, Message, Version, json};

pub(crate) use self::route::Routed;
use self::{
    listing::{Listed, Listing},
    route::Route,
};
use crate::{
    call::{CallOutcome, ClientCall, context::RequestParts},
    catalog::{index::Indexed, list::List},
    connections::connection::Connection,
    identify::RequestContext,
    reply::{self, ReplyText},
    route::single,
    session_tools,
    state::{
        AppState,
        aggregate::Aggregate,
        roster::{Present, Roster},
    },
};

/// How long each server may take to take in a log level.
const LEVEL: Duration = Duration::from_secs(5);

/// The levels of RFC 5424, as the protocol calls them.
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Aggregate {
    /// A list of a server, to be looked up.
    fn indexed(
        &self,
        claim: &RequestContext<'_>,
        present: &Present,
        list: &'static List,
    ) -> Indexed {
        let known = self.indexes.of(&present.profile, list);
        let seen = claim.connection.and_then(|it| it.seen(&present.name, list));
        Indexed { known, seen }
    }
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: Code,
    sentence: String,
    data: Option<String>,
}

impl Refusal {
    fn invalid(sentence: impl Into<String>) -> Self {
        Self { code: Code::INVALID_PARAMS, sentence: sentence.into(), data: None }
    }

    fn internal(sentence: &str) -> Self {
        Self { code: Code::INTERNAL_ERROR, sentence: sentence.to_owned(), data: None }
    }

    /// Of a resource that no server has.
    fn no_resource(uri: &str) -> Self {
        let sentence = "Resource not found: no server lists it, and it is made from no template; \
                        `resources/list` has those that are there";
        let data = Some(format!(r#"{{"uri":{}}}"#, json::quote(uri)));
        Self { code: Code::RESOURCE_NOT_FOUND, sentence: sentence.to_owned(), data }
    }

    pub(crate) fn answer(&self, id: &str, era: Era) -> String {
        // This code is of the legacy era alone.
        let modern = era == Era::Modern && self.code == Code::RESOURCE_NOT_FOUND;
        let code = if modern { Code::INVALID_PARAMS } else { self.code };
        let Some(data) = &self.data else { return reply::error(id, code, &self.sentence) };
        let message = json::quote(&self.sentence);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#
        )
    }
}

/// The result of `initialize` for a client of all servers. It never fails: who is not there is named.
pub(crate) async fn greet(app: &Arc<AppState>, place: &Place, version: &Version) -> String {
    let roll = Roster::call(app, &place.owner, Some(place.clone())).await;
    initialize::result(version, &roll, &app.aggregate.names)
}

/// One request of a client of all servers.
pub(crate) async fn request(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    message: &Message<'_>,
    along: RequestParts<'_>,
) -> CallOutcome {
    let id = message.id().map_or("null", |id| id.as_str());
    let claim = along.claim(connection, None, message);
    if let Some(done) = session_tools::call(app, claim).await {
        return CallOutcome::Done(done);
    }
    let routed = match route(app, &claim).await {
        Some(routed) => routed,
        None => {
            let answered = here(app, connection, &claim).await;
            return CallOutcome::Done(ReplyText::new(match answered {
                Ok(result) => reply::result(id, &result),
                Err(refusal) => refusal.answer(id, Era::Legacy),
            }));
        }
    };
    let Routed { server, text } = match routed {
        Ok(routed) => routed,
        Err(refusal) => return CallOutcome::Done(ReplyText::new(refusal.answer(id, Era::Legacy))),
    };
    let Some(text) = text else {
        return ClientCall::run(app, connection, server, message, along).await;
    };
    match Message::parse(text.as_bytes()) {
        Ok(message) => ClientCall::run(app, connection, server, &message, along).await,
        Err(error) => CallOutcome::Done(ReplyText::new(error.answer())),
    }
}

/// Where a request goes that is for one of the servers; nothing if it is for none of them alone.
pub(crate) async fn route<'a>(
    app: &'a Arc<AppState>,
    claim: &'a RequestContext<'a>,
) -> Option<Result<Routed<'a>, Refusal>> {
    let route = Route { app, claim };
    Some(match claim.asked().method {
        "tools/call" => route.tool(claim.message).await,
        "prompts/get" => route.prompt(claim.message).await,
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            route.resource(claim.message).await
        }
        "completion/complete" => route.completion(claim.message).await,
        _ => return None,
    })
}

/// One page of a list of all servers; nothing if the request asks for no list.
pub(crate) async fn listed(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Option<Result<Listed, Refusal>> {
    let list = List::of(claim.asked().method)?;
    Some(Listing { app, claim, list }.page().await)
}

/// What is answered without being passed on to one server.
async fn here(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    claim: &RequestContext<'_>,
) -> Result<String, Refusal> {
    if let Some(listed) = listed(app, claim).await {
        return listed.map(|listed| listed.result(""));
    }
    let method = claim.asked().method;
    if method == "logging/setLevel" {
        return set_log_level(app, connection, claim.message).await;
    }
    Err(Refusal::elsewhere(method))
}

impl Refusal {
    /// Of a method that names no server.
    pub(crate) fn elsewhere(method: &str) -> Self {
        let sentence = format!(
            "`{method}` is not known here, where all servers are at once; on /mcp/NAME it is passed on to \
             the server of that name"
        );
        Self { code: Code::METHOD_NOT_FOUND, sentence, data: None }
    }
}

/// Tells every server that there is a link to; those that come later are told then.
async fn set_log_level(
    app: &AppState,
    connection: &Connection,
    message: &Message<'_>,
) -> Result<String, Refusal> {
    let params = message.params();
    let level = params.and_then(|params| params.find(&["level"])?.text());
    let params = params.filter(|_| level.is_some_and(|level| LEVELS.contains(&&*level)));
    let Some(params) = params else {
        let levels = LEVELS.join(", ");
        return Err(Refusal::invalid(format!("`level` is one of {levels}")));
    };
    single::wish(app, connection, message).await;
    let place = connection.place();
    let links = app.servers.values().filter_map(|server| app.links.find(server, &place));
    let links = links.filter(|link| link.greeting().has("logging"));
    let told = links.map(|link| async move {
        let options = CallOptions { limit: Some(LEVEL), ..CallOptions::default() };
        if let Ok(call) = link.call("logging/setLevel", Some(params.as_str()), options).await {
            let _ = call.answer().await;
        }
    });
    join_all(told).await;
    Ok("{}".to_owned())
}
