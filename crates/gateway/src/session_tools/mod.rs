//! Tools of our own beside those of a server: to start, look at, list, switch and end sessions.

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

/// One of our tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Start,
    Info,
    End,
    List,
    Switch,
}

/// All of them, as they are called where nobody else is called so.
const TOOLS: [(&str, Tool); 5] = [
    ("session_start", Tool::Start),
    ("session_info", Tool::Info),
    ("session_end", Tool::End),
    ("session_list", Tool::List),
    ("session_switch", Tool::Switch),
];

impl Tool {
    /// Whether this client has it.
    fn is_for(self, chosen: SessionTools, front: Front) -> bool {
        match self {
            Self::Start | Self::Info | Self::End => chosen != SessionTools::Off,
            Self::List => chosen == SessionTools::All,
            // Without a connection there is nothing that could be switched.
            Self::Switch => chosen == SessionTools::All && front != Front::Modern,
        }
    }
}

/// Whether a request may be a call of one of our tools: most are not, and nothing has to be asked for that.
pub(crate) fn may_be(claim: &RequestContext<'_>) -> bool {
    claim.asked().method == "tools/call" && named(claim).is_some()
}

/// The tool of ours that a call names, as we may be the ones to be called, and whether by the longer name.
fn named(claim: &RequestContext<'_>) -> Option<(Tool, bool)> {
    let said = claim.message.name()?.text()?;
    let (prefixed, plain) = match said.strip_prefix(PREFIX) {
        Some(plain) => (true, plain),
        None => (false, &*said),
    };
    let (_, tool) = TOOLS.into_iter().find(|(name, _)| *name == plain)?;
    Some((tool, prefixed))
}

/// The answer to a call of one of our tools; `None` if it is none of them.
pub(crate) async fn call(app: &Arc<AppState>, claim: RequestContext<'_>) -> Option<ReplyText> {
    let tool = called(app, &claim).await?;
    let nowhere = CallStart { server: None, ..claim.begun() };
    let mut account = CallRecord::begin(app.watch.as_ref(), nowhere);
    let done = match tool {
        Tool::Start => start::call(app, &claim).await,
        Tool::Info => info::call(app, &claim).await,
        Tool::End => end::call(app, &claim).await,
        Tool::List => list::call(app, &claim).await,
        Tool::Switch => switch::call(app, &claim).await,
    };
    Some(match done {
        Ok(told) => {
            told.session().into_iter().for_each(|id| account.was_of(id));
            account.came_to(CallEnd::Ok);
            told.done(&claim)
        }
        Err(refusal) => {
            account.came_to(CallEnd::ToolError);
            ReplyText::new(refusal.answer(claim.asked(), claim.era()))
        }
    })
}

/// Which of our tools is called, if one is.
async fn called(app: &Arc<AppState>, claim: &RequestContext<'_>) -> Option<Tool> {
    if claim.asked().method != "tools/call" {
        return None;
    }
    let (tool, prefixed) = named(claim)?;
    // What another reader could read as another tool is for the server to refuse.
    claim.message.params()?.find_unique(&["name"]).ok()?;
    let chosen = app.identify.configured.session_tools;
    if !app.shows_tools(claim) || !tool.is_for(chosen, claim.front()) {
        return None;
    }
    let sight = app.sight(claim).await?;
    (sight.kept && sight.prefixed == prefixed).then_some(tool)
}

/// What an argument of a call says; nothing if it is not there or empty.
fn argument(claim: &RequestContext<'_>, name: &str) -> Result<Option<String>, Refusal> {
    let said = claim.message.params().and_then(|params| params.find(&["arguments", name]));
    let Some(said) = said.filter(|said| !said.is_null()) else { return Ok(None) };
    match said.text() {
        Some(text) => Ok((!text.is_empty()).then(|| text.into_owned())),
        None => Err(Refusal::caller(format!("Nothing was done: `{name}` must be a text."))),
    }
}
