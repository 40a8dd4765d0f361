//! Aggregate: all servers behind one path.
//!
//! Names of tools and prompts begin with their server ([`names`](crate::catalog::names)). URIs are routed to the
//! server
//! that lists them ([`index`](crate::catalog::index)). Lists are merged from the profiles of the servers
//! ([`list`](crate::catalog::list)). An unavailable server is left out and named ([`roster`](crate::state::roster));
//! it
//! does not delay the others. Each client has one session, which has a link to each server that it used.

pub(crate) mod cache_ttl;
pub(crate) mod initialize;
mod listing;
mod route;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use stayput_upstream::{CallOptions, LinkOwner};
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

/// Timeout for `logging/setLevel` at each server.
const SET_LEVEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Log levels of RFC 5424, by their names in MCP.
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Aggregate {
    /// Returns the index of a list of one server.
    fn indexed(
        &self,
        context: &RequestContext<'_>,
        present: &Present,
        list: &'static List,
    ) -> Indexed {
        let known = self.indexes.of(&present.profile, list);
        let seen = context.connection.and_then(|it| it.seen(&present.name, list));
        Indexed { known, seen }
    }
}

/// Error for a request that is not passed on.
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

    /// Error for a URI that no server has.
    fn no_resource(uri: &str) -> Self {
        let sentence = "Resource not found: no server lists it, and it is made from no template; \
                        `resources/list` has those that are there";
        let data = Some(format!(r#"{{"uri":{}}}"#, json::quote(uri)));
        Self { code: Code::RESOURCE_NOT_FOUND, sentence: sentence.to_owned(), data }
    }

    pub(crate) fn answer(&self, id: &str, era: Era) -> String {
        // This code exists in the legacy era only.
        let modern = era == Era::Modern && self.code == Code::RESOURCE_NOT_FOUND;
        let code = if modern { Code::INVALID_PARAMS } else { self.code };
        let Some(data) = &self.data else { return reply::error(id, code, &self.sentence) };
        let message = json::quote(&self.sentence);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#
        )
    }
}

/// Builds the `initialize` result of the aggregate. It never fails: unavailable servers are named in it.
pub(crate) async fn greet(app: &Arc<AppState>, place: &LinkOwner, version: &Version) -> String {
    let roster = Roster::call(app, &place.owner, Some(place.clone())).await;
    initialize::result(version, &roster, &app.aggregate.names)
}

/// Answers a request of an aggregate client.
pub(crate) async fn request(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    message: &Message<'_>,
    parts: RequestParts<'_>,
) -> CallOutcome {
    let id = message.id().map_or("null", |id| id.as_str());
    let context = parts.context(connection, None, message);
    if let Some(done) = session_tools::call(app, context).await {
        return CallOutcome::Done(done);
    }
    let routed = match route(app, &context).await {
        Some(routed) => routed,
        None => {
            let answer = here(app, connection, &context).await;
            return CallOutcome::Done(ReplyText::new(match answer {
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
        return ClientCall::run(app, connection, server, message, parts).await;
    };
    match Message::parse(text.as_bytes()) {
        Ok(message) => ClientCall::run(app, connection, server, &message, parts).await,
        Err(error) => CallOutcome::Done(ReplyText::new(error.answer())),
    }
}

/// Returns the server for a request to one of the servers, or `None` if the method is not for a single server.
pub(crate) async fn route<'a>(
    app: &'a Arc<AppState>,
    context: &'a RequestContext<'a>,
) -> Option<Result<Routed<'a>, Refusal>> {
    let route = Route { app, context };
    Some(match context.asked().method {
        "tools/call" => route.tool(context.message).await,
        "prompts/get" => route.prompt(context.message).await,
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            route.resource(context.message).await
        }
        "completion/complete" => route.completion(context.message).await,
        _ => return None,
    })
}

/// Returns one page of a merged list, or `None` if the request is for no list.
pub(crate) async fn listed(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Option<Result<Listed, Refusal>> {
    let list = List::of(context.asked().method)?;
    Some(Listing { app, context, list }.page().await)
}

/// Answers a request that is not passed on to a single server.
async fn here(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    context: &RequestContext<'_>,
) -> Result<String, Refusal> {
    if let Some(listed) = listed(app, context).await {
        return listed.map(|listed| listed.result(""));
    }
    let method = context.asked().method;
    if method == "logging/setLevel" {
        return set_log_level(app, connection, context.message).await;
    }
    Err(Refusal::elsewhere(method))
}

impl Refusal {
    /// Error for a method that names no server.
    pub(crate) fn elsewhere(method: &str) -> Self {
        let sentence = format!(
            "`{method}` is not known here, where all servers are at once; on /mcp/NAME it is passed on to \
             the server of that name"
        );
        Self { code: Code::METHOD_NOT_FOUND, sentence, data: None }
    }
}

/// Sends the log level to every server that has a link. Links that are opened later get it then.
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
    let requests = links.map(|link| async move {
        let options = CallOptions { limit: Some(SET_LEVEL_TIMEOUT), ..CallOptions::default() };
        if let Ok(call) = link.call("logging/setLevel", Some(params.as_str()), options).await {
            let _ = call.answer().await;
        }
    });
    join_all(requests).await;
    Ok("{}".to_owned())
}
