//! Session argument and session tools.

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

/// Description of the session argument, for the model.
const ARGUMENT_DESCRIPTION: &str = "Session of this conversation (sp_…), as it was given to you in an earlier result. Pass \
                           the same one in every call, and keep it; leave it out only if you have none.";

/// Adds the session argument to the tools of a server, and adds the session tools. See
/// [`ServerSessions::session_tools`].
///
/// rmcp does not reveal whether a tool takes [`State`](crate::State). So every tool gets the argument, unless
/// [`SessionTools::stateful`] names the tools with state. The argument is optional, and is removed before the tool
/// runs.
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionTools {
    sessions: ServerSessions,
    stateful: Option<HashSet<String>>,
    session: Vec<SessionTool>,
}

impl ServerSessions {
    /// Returns the builder that adds the session argument and the session tools to a router.
    pub fn session_tools(&self) -> SessionTools {
        SessionTools::new(self.clone())
    }
}

impl SessionTools {
    pub(crate) fn new(sessions: ServerSessions) -> Self {
        Self { sessions, stateful: None, session: SessionTool::DEFAULT.to_vec() }
    }

    /// Names the tools that use state; the others do not get the session argument.
    pub fn stateful<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.stateful = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Adds `session_list` and `session_switch` to `session_start`, `session_info` and `session_end`. `session_list`
    /// works for verified owners and on transports such as stdio. `session_switch` is listed only to clients with a
    /// connection.
    pub fn all_session_tools(mut self) -> Self {
        self.session = SessionTool::ALL.to_vec();
        self
    }

    /// Adds no session tools.
    pub fn no_session_tools(mut self) -> Self {
        self.session.clear();
        self
    }

    /// Adds the argument and the session tools to a router.
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

/// Wraps a tool so that it runs in the scope of its session.
fn in_session<S: Send + Sync + 'static>(route: &ToolRoute<S>) -> ToolRoute<S> {
    let inner = route.call.clone();
    ToolRoute::new_dyn(route.attr.clone(), move |context: ToolCallContext<'_, S>| {
        call::run(&*inner, context)
    })
}

/// Adds the session argument to a tool. Returns whether the tool has its own `session_id`; then the argument is
/// called [`FALLBACK_ARGUMENT`].
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

/// Describes the lifetime of a session, for the model.
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
