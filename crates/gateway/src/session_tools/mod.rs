//! Session tools: tools of Stayput, listed with those of a server, that start, show, list, switch and end sessions.

mod end;
mod info;
mod list;
mod present;
mod result;
mod schemas;
mod start;
mod switch;

use std::sync::Arc;

pub(crate) use crate::session_tools::schemas::listed;
use crate::{
    catalog::session_tool_names::PREFIX,
    config::SessionTools,
    identify::{Refusal, RequestContext},
    observe::{
        CallEnd,
        call_record::{CallRecord, CallStart},
    },
    reply::ReplyText,
    state::{AppState, identify_rules::Front},
};

/// Session tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Start,
    Info,
    End,
    List,
    Switch,
}

/// All session tools, by their names without prefix.
const TOOLS: [(&str, Tool); 5] = [
    ("session_start", Tool::Start),
    ("session_info", Tool::Info),
    ("session_end", Tool::End),
    ("session_list", Tool::List),
    ("session_switch", Tool::Switch),
];

impl Tool {
    /// Returns whether this client has the tool.
    fn is_for(self, chosen: SessionTools, front: Front) -> bool {
        match self {
            Self::Start | Self::Info | Self::End => chosen != SessionTools::Off,
            Self::List => chosen == SessionTools::All,
            // Without a connection there is no default session to switch.
            Self::Switch => chosen == SessionTools::All && front != Front::Modern,
        }
    }
}

/// Returns whether a request may be a call of a session tool. This is false for most requests, and needs no lookup.
pub(crate) fn may_be(context: &RequestContext<'_>) -> bool {
    context.asked().method == "tools/call" && named(context).is_some()
}

/// Returns the session tool that a call may mean, and whether its name has the prefix.
fn named(context: &RequestContext<'_>) -> Option<(Tool, bool)> {
    let said = context.message.name()?.text()?;
    let (prefixed, plain) = match said.strip_prefix(PREFIX) {
        Some(plain) => (true, plain),
        None => (false, &*said),
    };
    let (_, tool) = TOOLS.into_iter().find(|(name, _)| *name == plain)?;
    Some((tool, prefixed))
}

/// Answers a call of a session tool. `None` if it is not one.
pub(crate) async fn call(context: &RequestContext<'_>) -> Option<ReplyText> {
    let app = context.app;
    let tool = called(app, context).await?;
    let call_start = CallStart { server: None, ..context.begun() };
    let mut record = CallRecord::begin(app.watch.as_ref(), call_start);
    let done = match tool {
        Tool::Start => start::call(app, context).await,
        Tool::Info => info::call(app, context).await,
        Tool::End => end::call(app, context).await,
        Tool::List => list::call(app, context).await,
        Tool::Switch => switch::call(app, context).await,
    };
    Some(match done {
        Ok(reply) => {
            reply.session().into_iter().for_each(|id| record.was_of(id));
            record.came_to(CallEnd::Ok);
            reply.done(context)
        }
        Err(refusal) => {
            record.came_to(CallEnd::ToolError);
            ReplyText::new(refusal.answer(context.asked(), context.era()))
        }
    })
}

/// Returns the session tool that is called.
async fn called(app: &Arc<AppState>, context: &RequestContext<'_>) -> Option<Tool> {
    if context.asked().method != "tools/call" {
        return None;
    }
    let (tool, prefixed) = named(context)?;
    // If parsers can read the name differently, the server has to refuse it.
    context.message.params()?.find_unique(&["name"]).ok()?;
    let chosen = app.identify.configured.session_tools;
    if !app.shows_tools(context) || !tool.is_for(chosen, context.front()) {
        return None;
    }
    let view = app.tool_view(context).await?;
    (view.kept && view.prefixed == prefixed).then_some(tool)
}

/// Returns a string argument of a call, or `None` if it is absent or empty.
fn argument(context: &RequestContext<'_>, name: &str) -> Result<Option<String>, Refusal> {
    let said = context.message.params().and_then(|params| params.find(&["arguments", name]));
    let Some(said) = said.filter(|said| !said.is_null()) else { return Ok(None) };
    match said.text() {
        Some(text) => Ok((!text.is_empty()).then(|| text.into_owned())),
        None => Err(Refusal::caller(format!("Nothing was done: `{name}` must be a text."))),
    }
}
