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

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_upstream::LinkOwner;
use stayput_wire::{Code, Era, Message, Version, json};

use self::{
    listing::Listing,
    route::{Route, ServerRoute},
};
use crate::{
    call::{CallOutcome, modern::bridge::LEVELS, open_link},
    catalog::{index::ClientIndex, list::List},
    identify::{self, RequestContext},
    messages::listen_stream,
    reply::ReplyText,
    route::{discover, preferences, single},
    state::{
        Aggregate, AppState,
        roster::{AvailableServer, Caller, Roster},
    },
};

impl Aggregate {
    /// Returns the index of a list of one server.
    fn indexed(
        &self,
        context: &RequestContext<'_>,
        present: &AvailableServer,
        list: &'static List,
    ) -> ClientIndex {
        let known = self.indexes.get(&present.profile, list);
        let seen = context.connection.and_then(|it| it.changed_list(&present.name, list));
        ClientIndex { known, seen }
    }
}

/// Error for a request that is not passed on.
#[derive(Debug)]
struct Refusal {
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

    fn answer(&self, context: &RequestContext<'_>) -> ReplyText {
        // This code exists in the legacy era only.
        let modern = context.era == Era::Modern && self.code == Code::RESOURCE_NOT_FOUND;
        let code = if modern { Code::INVALID_PARAMS } else { self.code };
        let Some(data) = &self.data else { return context.error(code, &self.sentence) };
        let (id, message) = (context.request_ref().id, json::quote(&self.sentence));
        ReplyText::of_era(
            context.era,
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#
            ),
        )
    }
}

/// Builds the `initialize` result of the aggregate. It never fails: unavailable servers are named in it.
pub(crate) async fn merged_initialize_result(
    app: &Arc<AppState>,
    link_owner: &LinkOwner,
    version: &Version,
) -> String {
    let caller =
        Caller { owner: &link_owner.owner, era: Era::Legacy, link_owner: Some(link_owner.clone()) };
    let roster = Roster::call(app, &caller).await;
    initialize::result(version, &roster, &app.aggregate.names)
}

/// Answers a request of an aggregate client.
pub(super) async fn answer(context: &RequestContext<'_>) -> CallOutcome {
    let answered = match (context.request_ref().method, context.era) {
        ("server/discover", Era::Modern) => {
            let roster =
                Roster::call(context.app, &Caller { link_owner: None, ..context.caller() }).await;
            Ok(discover::of_all(&roster, &context.app.aggregate.names))
        }
        ("logging/setLevel", Era::Legacy) => set_log_level(context).await,
        (method, era) => match List::by_method(method) {
            Some(list) => Listing { context, list }.page().await.map(|page| {
                let head = match era {
                    Era::Legacy => String::new(),
                    Era::Modern => {
                        let (keeping, info) = (page.kept.members(), discover::of_stayput());
                        format!(r#""resultType":"complete",{keeping}{info},"#)
                    }
                };
                page.result(&head)
            }),
            None => match route(context).await {
                Ok(routed) => return pass(context, routed).await,
                Err(refusal) => Err(refusal),
            },
        },
    };
    match answered {
        Ok(result) => context.result(&result).into(),
        Err(refusal) => refusal.answer(context).into(),
    }
}

/// Passes a request on to its server, under the name that the server uses.
async fn pass(
    context: &RequestContext<'_>,
    ServerRoute { server, text }: ServerRoute<'_>,
) -> CallOutcome {
    let inner = text.as_deref().map(|text| Message::parse(text.as_bytes()));
    let message = match &inner {
        None => context.message,
        Some(Ok(message)) => message,
        Some(Err(error)) => return ReplyText::new(error.answer()).into(),
    };
    let claim = match Box::pin(identify::claim_server(context, server)).await {
        Ok(claim) => claim,
        Err(refusal) => return refusal.answer(context.request_ref(), context.era).into(),
    };
    let server = context.app.server_for(server, context.owner, (context.era, None)).await;
    let context =
        RequestContext { server: Some(server), message, claim: claim.as_ref(), ..*context };
    single::pass(&context, server).await
}

/// Returns the server for a request to one of the servers.
async fn route<'a>(context: &'a RequestContext<'a>) -> Result<ServerRoute<'a>, Refusal> {
    let route = Route { context };
    match context.request_ref().method {
        "tools/call" => route.tool(context.message).await,
        "prompts/get" => route.prompt(context.message).await,
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            route.resource(context.message).await
        }
        "completion/complete" => route.completion(context.message).await,
        method => Err(Refusal::elsewhere(method)),
    }
}

impl Refusal {
    /// Error for a method that names no server.
    fn elsewhere(method: &str) -> Self {
        let sentence = format!(
            "`{method}` is not known here, where all servers are at once; on /mcp/NAME it is passed on to \
             the server of that name"
        );
        Self { code: Code::METHOD_NOT_FOUND, sentence, data: None }
    }
}

/// Sends the log level to every server that has a link. Links that are opened later get it then.
async fn set_log_level(context: &RequestContext<'_>) -> Result<String, Refusal> {
    let (app, params) = (context.app, context.message.params());
    let level = params.and_then(|params| params.find(&["level"])?.text());
    if !level.is_some_and(|level| LEVELS.contains(&&*level)) {
        let levels = LEVELS.join(", ");
        return Err(Refusal::invalid(format!("`level` is one of {levels}")));
    }
    if let Some(connection) = context.connection {
        preferences::note(context, connection).await;
        let links = listen_stream::links(app, connection);
        join_all(links.iter().map(|link| open_link::tell_level(connection, link))).await;
        preferences::announce_level(context, connection).await;
    }
    Ok("{}".to_owned())
}
