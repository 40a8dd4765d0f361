//! What goes with the tools of a server.

mod call;
mod session;

use std::{collections::HashSet, sync::Arc};

use rmcp::{
    handler::server::tool::{ToolCallContext, ToolRoute, ToolRouter},
    model::{JsonObject, Tool},
};
use serde_json::{Value, json};
use stayput_core::Expiry;

use crate::{
    Keeper,
    ask::{ARGUMENT, OWN_ARGUMENT},
};
use session::SessionTool;

/// What a model reads about the argument.
const DESCRIPTION: &str = "Session of this conversation (sp_…), as it was given to you in an earlier result. Pass \
                           the same one in every call, and keep it; leave it out only if you have none.";

/// What goes with the tools of a server: the argument that names a session, and tools for sessions. See
/// [`Keeper::tools`].
///
/// A tool cannot be asked whether it takes [`State`](crate::State). So every tool is shown with the argument, unless
/// [`Tools::only`] says which ones keep state; all of them work without it, and none ever gets to see it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Tools {
    keeper: Keeper,
    only: Option<HashSet<String>>,
    session: Vec<SessionTool>,
}

impl Tools {
    pub(crate) fn new(keeper: Keeper) -> Self {
        Self { keeper, only: None, session: SessionTool::USUAL.to_vec() }
    }

    /// Only these tools keep state; the others are shown as they are.
    pub fn only<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.only = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Beside `session_start`, `session_info` and `session_end`, also `session_list`, for owners who are verified and
    /// on lines of their own, and `session_switch`, which is listed to clients that have a connection and to no
    /// others.
    pub fn all_session_tools(mut self) -> Self {
        self.session = SessionTool::ALL.to_vec();
        self
    }

    /// No tools for sessions.
    pub fn no_session_tools(mut self) -> Self {
        self.session.clear();
        self
    }

    /// The tools of a server, with all that.
    pub fn mount<S: Send + Sync + 'static>(self, mut router: ToolRouter<S>) -> ToolRouter<S> {
        for route in router.map.values_mut() {
            if self.only.as_ref().is_none_or(|only| only.contains(route.name())) {
                let own = describe(&mut route.attr);
                self.keeper.note_tool(route.name(), own);
            }
            *route = watched(route);
        }
        for tool in &self.session {
            let plain = tool.name();
            let taken = router.map.contains_key(plain);
            let name = if taken { format!("stayput_{plain}") } else { plain.to_owned() };
            match tool {
                SessionTool::Switch => self.keeper.note_switch(&name),
                _ => self.keeper.note_tool(&name, false),
            }
            router.add_route(tool.route(&self.keeper, name));
        }
        router
    }
}

/// The same tool, which knows its session while it runs.
fn watched<S: Send + Sync + 'static>(route: &ToolRoute<S>) -> ToolRoute<S> {
    let inner = route.call.clone();
    ToolRoute::new_dyn(route.attr.clone(), move |context: ToolCallContext<'_, S>| {
        call::run(&*inner, context)
    })
}

/// Shows a tool with the argument; says whether it has one of that name for itself, and then the argument has
/// another one. [`Tools::mount`] does it for all tools of a router; this is for tools that are listed by hand.
pub(crate) fn describe(tool: &mut Tool) -> bool {
    let schema = Arc::make_mut(&mut tool.input_schema);
    let own = has(schema, ARGUMENT);
    let name = if own { OWN_ARGUMENT } else { ARGUMENT };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert(name.to_owned(), json!({ "type": "string", "description": DESCRIPTION }));
    }
    own
}

fn has(schema: &JsonObject, name: &str) -> bool {
    schema.get("properties").is_some_and(|properties| properties.get(name).is_some())
}

/// How long a session lives, for whoever reads it.
pub(crate) fn lifetime(expiry: Expiry) -> String {
    let span = |secs: u64| match secs {
        secs if secs >= 3_600 && secs.is_multiple_of(3_600) => format!("{} h", secs / 3_600),
        secs if secs >= 60 && secs.is_multiple_of(60) => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    };
    let (idle, age) = (expiry.idle.map(|it| it.as_secs()), expiry.absolute.map(|it| it.as_secs()));
    match (idle, age) {
        (None, None) => "lives until it is ended".to_owned(),
        (Some(idle), None) => format!("ends when it is not used for {}", span(idle)),
        (None, Some(age)) => format!("ends {} after it was started", span(age)),
        (Some(idle), Some(age)) => {
            format!(
                "ends when it is not used for {}, or {} after it was started",
                span(idle),
                span(age)
            )
        }
    }
}
