//! Requests to one server, whose names and results pass unchanged.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use stayput_upstream::{LinkOwner, Server};
use stayput_wire::{Code, Era, Message};

use crate::{
    call::{self, CallOutcome, ClientCall, context::RequestParts},
    config::ToolFilter,
    connections::connection::Connection,
    identify::RequestContext,
    messages::subscriptions,
    observe::call_record::CallRecord,
    reply::{self, ReplyText, RequestRef},
    route::lists,
    session_tools,
    state::{AppState, snapshot},
};
use futures_util::future::join_all;

/// Answers a request of a client to its server.
pub(crate) async fn request(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    name: &str,
    message: &Message<'_>,
    parts: RequestParts<'_>,
) -> CallOutcome {
    let id = message.id().map(|id| id.as_str()).unwrap_or_default();
    let method = message.method().unwrap_or_default();
    let Some(server) = app.servers.get(name) else {
        let asked = RequestRef { id, method };
        let sentence = snapshot::gone(name);
        return CallOutcome::Done(ReplyText::new(reply::failure(asked, Era::Legacy, &sentence)));
    };
    let context = parts.context(connection, Some(server), message);
    // Boxed, like every rare path: otherwise the future of every call would have its size.
    if session_tools::may_be(&context)
        && let Some(done) = Box::pin(session_tools::call(app, context)).await
    {
        return CallOutcome::Done(done);
    }
    let tools = app.tools.get(name).filter(|tools| !tools.passes_all());
    if let Some(tools) = tools.filter(|_| method == "tools/call")
        && !named_tool(message).is_some_and(|name| tools.allows(&name))
    {
        app.metrics.refused("denied_tool");
        CallRecord::denied(app.watch.as_ref(), context.begun());
        // Same error as for an unknown tool.
        let sentence = "Unknown tool";
        return CallOutcome::Done(ReplyText::new(reply::error(id, Code::INVALID_PARAMS, sentence)));
    }
    if method == "logging/setLevel" {
        return Box::pin(set_level(app, connection, server, (message, parts))).await;
    }
    if method.ends_with("/list")
        && let Some(page) = Box::pin(known(app, connection, context, tools)).await
    {
        return CallOutcome::Done(ReplyText::new(reply::result(id, &page)));
    }
    let added = app.takes_argument(&context) || app.shows_tools(&context);
    if method != "tools/list" || (tools.is_none() && !added) {
        let outcome = ClientCall::run(app, connection, server, message, parts).await;
        if connection.wish(message) {
            Box::pin(keep_wish(app, connection)).await;
            if method == "resources/unsubscribe" {
                Box::pin(subscriptions::renew(app, connection, message)).await;
            }
        }
        return outcome;
    }
    // Requests a complete answer instead of a stream, because the list has to be filtered.
    let parts = RequestParts { streams: false, ..parts };
    let result = Box::pin(ClientCall::run(app, connection, server, message, parts)).await;
    Box::pin(edited(app, context, tools, result)).await
}

/// Returns a cached list, as this client sees it.
async fn known(
    app: &Arc<AppState>,
    connection: &Connection,
    context: RequestContext<'_>,
    tools: Option<&ToolFilter>,
) -> Option<String> {
    let page = lists::known(app, context.server?, connection, context.message).await?;
    Some(match context.asked().method {
        "tools/list" => shown(app, context, tools, &page).await.into_owned(),
        _ => page,
    })
}

/// Stores the preferences of a client that apply to every link, before the client gets its answer.
pub(crate) async fn wish(app: &AppState, connection: &Connection, message: &Message<'_>) {
    if connection.wish(message) {
        keep_wish(app, connection).await;
    }
}

async fn keep_wish(app: &AppState, connection: &Connection) {
    if let Err(error) = app.keep(connection).await {
        app.log.warn(&format!("what a client wants to hear was not kept: {error}"));
    }
}

/// Filters a page of tools, and adds the session tools and the session argument.
async fn shown<'a>(
    app: &Arc<AppState>,
    context: RequestContext<'_>,
    tools: Option<&ToolFilter>,
    page: &'a str,
) -> Cow<'a, str> {
    let page = tools.map_or(page.into(), |tools| tools.filter(page));
    app.shown(&context, &page).await.map_or(page, Cow::Owned)
}

/// Sets the log level for every session of the connection. A link that is opened later gets the level then.
async fn set_level(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    server: &Server,
    (message, parts): (&Message<'_>, RequestParts<'_>),
) -> CallOutcome {
    wish(app, connection, message).await;
    let own = connection.default_session();
    let find = |session| app.links.find(server, &LinkOwner::new(connection.owner.clone(), session));
    let others = connection.sessions().into_iter().filter(|it| *it != own).filter_map(find);
    // Several sessions may share a link.
    let others: HashMap<_, _> = others.map(|link| (link.key().clone(), link)).collect();
    join_all(others.values().map(|link| call::tell_level(connection, link))).await;
    if find(own).is_some() {
        return ClientCall::run(app, connection, server, message, parts).await;
    }
    let id = message.id().map_or("null", |id| id.as_str());
    CallOutcome::Done(ReplyText::new(reply::result(id, "{}")))
}

/// Returns the tool that a call names, or `None` if the name is missing or occurs twice.
fn named_tool(message: &Message<'_>) -> Option<String> {
    let name = message.params()?.find_unique(&["name"]).ok()??;
    name.text().map(Cow::into_owned)
}

/// Converts an answer to `tools/list` to what this client sees.
async fn edited(
    app: &Arc<AppState>,
    context: RequestContext<'_>,
    tools: Option<&ToolFilter>,
    outcome: CallOutcome,
) -> CallOutcome {
    let CallOutcome::Done(done) = outcome else { return outcome };
    let Some(answer) = Message::parse(&done.text).ok() else { return CallOutcome::Done(done) };
    let Some(result) = answer.result() else { return CallOutcome::Done(done) };
    let page = shown(app, context, tools, result.as_str()).await;
    let mut edits = answer.edit();
    edits.replace(result, &page);
    let text = edits.apply().ok().map(Cow::into_owned);
    match text {
        Some(text) => CallOutcome::Done(ReplyText { text: text.into(), ..done }),
        None => CallOutcome::Done(done),
    }
}
