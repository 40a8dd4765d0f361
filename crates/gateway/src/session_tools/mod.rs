//! Session tools: tools of Stayput, listed with those of a server, that start, show, list, switch and end sessions.

mod end;
mod info;
mod list;
pub(crate) mod present;
mod result;
mod start;
mod switch;

use std::sync::Arc;

use http::StatusCode;
use stayput_identify::tools::{SessionTool, ToolArguments, ToolError};

use crate::{
    config::SessionTools,
    identify::{Refusal, RequestContext},
    observe::{
        CallEnd,
        call_record::{CallRecord, CallStart},
    },
    reply::ReplyText,
    state::{
        AppState,
        identify_rules::{ConnectionKind, IdentifyRules},
    },
};

/// Returns whether this client has a tool.
fn is_for(tool: SessionTool, chosen: SessionTools, kind: ConnectionKind) -> bool {
    match chosen {
        SessionTools::Off => false,
        SessionTools::Basic => SessionTool::BASIC.contains(&tool),
        SessionTools::All => !tool.needs_connection() || kind != ConnectionKind::Modern,
    }
}

/// Returns the definitions of the session tools of this client, as JSON separated by commas.
pub(crate) fn listed(
    rules: &IdentifyRules,
    context: &RequestContext<'_>,
    prefixed: bool,
) -> String {
    let (chosen, kind) = (rules.configured.session_tools, context.connection_kind());
    let own = SessionTool::ALL.into_iter().filter(|tool| is_for(*tool, chosen, kind));
    let own = own.map(|tool| tool.definition(&tool.name(prefixed), rules.expiry).to_string());
    own.collect::<Vec<String>>().join(",")
}

/// Returns whether a request may be a call of a session tool. This is false for most requests, and needs no lookup.
pub(crate) fn may_be(context: &RequestContext<'_>) -> bool {
    context.request_ref().method == "tools/call" && find_tool_name(context).is_some()
}

/// Returns the session tool that a call may mean, and whether its name has the prefix.
fn find_tool_name(context: &RequestContext<'_>) -> Option<(SessionTool, bool)> {
    SessionTool::from_name(&context.message.name()?.text()?)
}

/// Answers a call of a session tool. `None` if it is not one.
pub(crate) async fn call(context: &RequestContext<'_>) -> Option<ReplyText> {
    let app = context.app;
    let tool = called_tool(app, context).await?;
    let call_start = CallStart { server: None, ..context.call_start() };
    let mut record = CallRecord::begin(app.observers.as_ref(), call_start);
    let done = match tool {
        SessionTool::Start => start::call(app, context).await,
        SessionTool::Info => info::call(app, context).await,
        SessionTool::End => end::call(app, context).await,
        SessionTool::List => list::call(app, context).await,
        SessionTool::Switch => switch::call(app, context).await,
    };
    Some(match done {
        Ok(reply) => {
            reply.session().into_iter().for_each(|id| record.set_session(id));
            record.end_with(CallEnd::Ok);
            reply.done(context)
        }
        Err(refusal) => {
            record.end_with(CallEnd::ToolError);
            let answer = refusal.answer(context.request_ref(), context.era);
            ReplyText { status: StatusCode::OK, ..answer }
        }
    })
}

/// Returns the session tool that is called.
async fn called_tool(app: &Arc<AppState>, context: &RequestContext<'_>) -> Option<SessionTool> {
    if context.request_ref().method != "tools/call" {
        return None;
    }
    let (tool, prefixed) = find_tool_name(context)?;
    // If parsers can read the name differently, the server has to refuse it.
    context.message.params()?.find_unique(&["name"]).ok()?;
    let chosen = app.identify.configured.session_tools;
    if !app.shows_tools(context) || !is_for(tool, chosen, context.connection_kind()) {
        return None;
    }
    let view = app.tool_view(context).await?;
    (view.kept && view.prefixed == prefixed).then_some(tool)
}

/// Returns the arguments of a call.
fn arguments<'a>(context: &RequestContext<'a>) -> ToolArguments<'a> {
    ToolArguments::from_call(context.message)
}

impl From<ToolError> for Refusal {
    fn from(error: ToolError) -> Self {
        Self::caller(format!("Nothing was done: {error}."))
    }
}
