//! Session argument and session tools.

mod call;
mod session;

use std::{collections::HashSet, sync::Arc};

use rmcp::handler::server::tool::{ToolCallContext, ToolRoute, ToolRouter};
use stayput_identify::{ArgumentName, SessionArgument, tools::SessionTool};

use crate::ServerSessions;

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
        Self { sessions, stateful: None, session: SessionTool::BASIC.to_vec() }
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

    /// Leaves out all session tools. Only the session argument is added.
    pub fn no_session_tools(mut self) -> Self {
        self.session.clear();
        self
    }

    /// Adds the argument and the session tools to a router.
    pub fn mount<S: Send + Sync + 'static>(self, mut router: ToolRouter<S>) -> ToolRouter<S> {
        let prefixed = SessionTool::clash(router.map.keys());
        for route in router.map.values_mut() {
            if self.stateful.as_ref().is_none_or(|stateful| stateful.contains(route.name())) {
                let schema = Arc::make_mut(&mut route.attr.input_schema);
                let argument = SessionArgument::add_to_schema(schema);
                self.sessions.register_tool(route.name(), argument == ArgumentName::Prefixed);
            }
            *route = in_session(route);
        }
        for tool in &self.session {
            let name = tool.name(prefixed);
            match tool {
                SessionTool::Switch => self.sessions.register_switch(&name),
                _ => self.sessions.register_tool(&name, false),
            }
            router.add_route(session::route(*tool, &self.sessions, name));
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
