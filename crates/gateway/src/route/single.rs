//! Requests to one server, whose names and results pass unchanged.

use std::{borrow::Cow, sync::Arc};

use futures_util::future::join_all;
use stayput_upstream::{LinkOpenError, Profile, Server};
use stayput_wire::{Code, Era, Message};

use crate::{
    call::{
        self, CallOutcome,
        modern::{
            bridge,
            validate::{self, InvalidRequest},
        },
        open_link,
        sessionless::Sessionless,
    },
    catalog::list::is_list,
    connections::connection::Connection,
    identify::RequestContext,
    messages::{listen_stream, subscriptions},
    observe::call_record::CallRecord,
    reply::ReplyText,
    route::{lists, preferences},
};

/// Answers a request of a client to its server.
pub(crate) async fn answer(context: &RequestContext<'_>, server: &Server) -> CallOutcome {
    let Some(connection) = context.connection.filter(|_| context.era == Era::Legacy) else {
        return pass(context, server).await;
    };
    let method = context.request_ref().method;
    if method == "logging/setLevel" {
        return Box::pin(set_level(context, connection, server)).await;
    }
    let outcome = pass(context, server).await;
    if Connection::is_preference(context.message)
        && Box::pin(preferences::note(context, connection)).await
        && method == "resources/unsubscribe"
    {
        Box::pin(subscriptions::renew(context.app, connection, context.message)).await;
    }
    outcome
}

/// Answers a request from the server's profile, or passes it on to the server.
pub(super) async fn pass(context: &RequestContext<'_>, server: &Server) -> CallOutcome {
    let profile = match context.era {
        Era::Legacy => None,
        Era::Modern => match Box::pin(profile(context, server)).await {
            Ok(profile) => Some(profile),
            Err(error) => {
                let sentence = context.app.describe_open_error(&error);
                return context.failure(&sentence).into();
            }
        },
    };
    let method = context.request_ref().method;
    let lacks =
        |profile: &Profile| bridge::missing_method_error(profile.initialize_result(), method);
    if let Some(sentence) = profile.as_deref().and_then(lacks) {
        return context.error(Code::METHOD_NOT_FOUND, &sentence).into();
    }
    if let Some(refused) = denied(context, server, profile.as_deref()) {
        return refused.into();
    }
    if (is_list(method) || (profile.is_some() && method == "server/discover"))
        && let Some(known) =
            Box::pin(lists::answer_from_profile(context, server, profile.as_deref())).await
    {
        return known.into();
    }
    if context.era == Era::Legacy && method == "tools/list" && lists::is_edited(context) {
        // Requests a complete answer instead of a stream, because the list has to be edited.
        let whole = RequestContext { streams: false, ..*context };
        let outcome = Box::pin(call::run(&whole, server, None)).await;
        return Box::pin(edit_tool_list(context, outcome)).await;
    }
    call::run(context, server, profile.as_ref()).await
}

/// Returns the profile of the server for a modern client. For a list request the list is up to date, also if the server announced a change on some link or the list was
/// not available before. Other requests do not wait for that.
async fn profile(
    context: &RequestContext<'_>,
    server: &Server,
) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
    let (app, method) = (context.app, context.request_ref().method);
    match is_list(method) {
        true => app.current(server, context.owner, method).await,
        false => app.profile(server, context.owner).await,
    }
}

/// Returns the error for a tool call that is not allowed, or whose header arguments differ from the body.
fn denied(
    context: &RequestContext<'_>,
    server: &Server,
    profile: Option<&Profile>,
) -> Option<ReplyText> {
    let (tools, asked) = (context.tools(), context.request_ref());
    if asked.method != "tools/call" || (tools.is_none() && profile.is_none()) {
        return None;
    }
    // A name that is missing or occurs twice is not allowed.
    let params = context.message.params();
    let name = params.and_then(|params| params.find_unique(&["name"]).ok().flatten());
    let name = name.and_then(|name| name.text());
    if tools.is_some_and(|tools| !name.as_deref().is_some_and(|name| tools.allows(name))) {
        context.app.count_refused("denied_tool");
        CallRecord::denied(context.app.observers.as_ref(), context.call_start());
        // Same error as for an unknown tool.
        return Some(context.error(Code::INVALID_PARAMS, "Unknown tool"));
    }
    // Only modern clients send arguments as headers, and stdio clients have no headers.
    let (profile, name) = profile.filter(|_| context.connection.is_none()).zip(name)?;
    let checked = check_headers(context, (server, profile), &name)?;
    Some(checked.err()?.answer(asked.id))
}

/// Checks the arguments of a tool that the client also sends as headers, if the tool has any.
fn check_headers(
    context: &RequestContext<'_>,
    (server, profile): (&Server, &Profile),
    tool: &str,
) -> Option<Result<(), InvalidRequest>> {
    let (headers, params) = (context.headers, context.message.params());
    let link = match profile.era() {
        // Without a session, only a shared link can be found.
        Era::Modern => {
            let sessionless = Sessionless::new(context.app, context.owner, false);
            context.app.links.find(server, sessionless.link_owner())
        }
        Era::Legacy => None,
    };
    Some(match link {
        // A link that has passed on lists has newer header marks than the profile.
        Some(link) => validate::params(headers, &*link.param_headers(tool)?, params),
        None => validate::params(headers, profile.param_headers(tool)?, params),
    })
}

/// Sets the log level for every session of the connection. A link that is opened later gets the level then.
async fn set_level(
    context: &RequestContext<'_>,
    connection: &Arc<Connection>,
    server: &Server,
) -> CallOutcome {
    let app = context.app;
    preferences::note(context, connection).await;
    let own = app.links.find(server, &connection.link_owner());
    let links = listen_stream::links(app, connection);
    let others = links.iter().filter(|link| own.as_ref().is_none_or(|own| own.key() != link.key()));
    join_all(others.map(|link| open_link::tell_level(connection, link))).await;
    preferences::announce_level(context, connection).await;
    match own {
        Some(_) => call::run(context, server, None).await,
        None => context.result("{}").into(),
    }
}

/// Converts an answer to `tools/list` to what this client sees.
async fn edit_tool_list(context: &RequestContext<'_>, outcome: CallOutcome) -> CallOutcome {
    let CallOutcome::Done(done) = outcome else { return outcome };
    let Some(answer) = Message::parse(&done.text).ok() else { return CallOutcome::Done(done) };
    let Some(result) = answer.result() else { return CallOutcome::Done(done) };
    let page = lists::present_tools(context, result.as_str()).await;
    let mut edits = answer.edit();
    edits.replace(result, &page);
    let text = edits.apply().ok().map(Cow::into_owned);
    match text {
        Some(text) => CallOutcome::Done(ReplyText { text: text.into(), ..done }),
        None => CallOutcome::Done(done),
    }
}
