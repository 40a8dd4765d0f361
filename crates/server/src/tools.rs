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
    ServerSessions,
    request::parse::{FALLBACK_ARGUMENT, SESSION_ARGUMENT},
};
use session::SessionTool;

/// What a model reads about the argument.
const ARGUMENT_DESCRIPTION: &str = "Session of this conversation (sp_…), as it was given to you in an earlier result. Pass \
                           the same one in every call, and keep it; leave it out only if you have none.";

/// What goes with the tools of a server: the argument that names a session, and tools for sessions. See
/// [`ServerSessions::session_tools`].
///
/// A tool cannot be asked whether it takes [`State`](crate::State). So every tool is shown with the argument, unless
/// [`SessionTools::stateful`] says which ones keep state; all of them work without it, and none ever gets to see it.
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionTools {
    sessions: ServerSessions,
    stateful: Option<HashSet<String>>,
    session: Vec<SessionTool>,
}

impl ServerSessions {
    /// What goes with the tools of a server: the argument that names a session, and tools for sessions.
    pub fn session_tools(&self) -> SessionTools {
        SessionTools::new(self.clone())
    }
}

impl SessionTools {
    pub(crate) fn new(sessions: ServerSessions) -> Self {
        Self { sessions, stateful: None, session: SessionTool::DEFAULT.to_vec() }
    }

    /// Only these tools keep state; the others are shown as they are.
    pub fn stateful<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.stateful = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Beside `session_start`, `session_info` and `session_end`, also `session_list`, for owners who are verified and
    /// on lines of their own_argument, and `session_switch`, which is listed to clients that have a connection and to no
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
            if self.stateful.as_ref().is_none_or(|stateful| stateful.contains(route.name())) {
                let own_argument = add_argument(&mut route.attr);
                self.sessions.register_tool(route.name(), own_argument);
            }
            *route = in_session(route);
        }
        for tool in &self.session {
            let plain = tool.name();
            let taken = router.map.contains_key(plain);
            let name = if taken { format!("stayput_{plain}") } else { plain.to_owned() };
            match tool {
                SessionTool::Switch => self.sessions.register_switch(&name),
                _ => self.sessions.register_tool(&name, false),
            }
            router.add_route(tool.route(&self.sessions, name));
        }
        router
    }
}

/// The same tool, which knows its session while it runs.
fn in_session<S: Send + Sync + 'static>(route: &ToolRoute<S>) -> ToolRoute<S> {
    let inner = route.call.clone();
    ToolRoute::new_dyn(route.attr.clone(), move |context: ToolCallContext<'_, S>| {
        call::run(&*inner, context)
    })
}

/// Shows a tool with the argument; says whether it has one of that name for itself, and then the argument has
/// another one. [`SessionTools::mount`] does it for all tools of a router; this is for tools that are listed by hand.
pub(crate) fn add_argument(tool: &mut Tool) -> bool {
    let schema = Arc::make_mut(&mut tool.input_schema);
    let own_argument = has_property(schema, SESSION_ARGUMENT);
    let name = if own_argument { FALLBACK_ARGUMENT } else { SESSION_ARGUMENT };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert(
            name.to_owned(),
            json!({ "type": "string", "description": ARGUMENT_DESCRIPTION }),
        );
    }
    own_argument
}

fn has_property(schema: &JsonObject, name: &str) -> bool {
    schema.get("properties").is_some_and(|properties| properties.get(name).is_some())
}

/// How long a session lives, for whoever reads it.
pub(crate) fn describe_lifetime(expiry: Expiry) -> String {
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
