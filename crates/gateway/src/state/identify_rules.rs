//! Rules of session identification, and what they mean for one client.

use std::{collections::BTreeMap, fmt};

use stayput_core::Expiry;

use crate::{
    catalog::tool_view::ToolViews,
    config::{Handles, Identify, SessionTools},
};

/// Kind of connection that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    /// HTTP with `initialize`: the connection usually is one conversation.
    Legacy,
    /// Standard input and output: one process for many conversations.
    Stdio,
    /// HTTP without `initialize`: there is no connection.
    Modern,
}

/// Configuration of session identification.
pub(crate) struct IdentifyRules {
    pub(crate) configured: Identify,
    /// Setting `handles` of each server.
    pub(crate) handles: BTreeMap<String, Handles>,
    /// Lifetime of sessions.
    pub(crate) expiry: Expiry,
    /// Views of the tools of each server.
    pub(crate) tool_views: ToolViews,
}

impl IdentifyRules {
    /// Whether the tools of a server take a handle argument from this client, if the server is stateful. `Auto` adds
    /// none where the URL names the session: its client has chosen already.
    pub(crate) fn takes_argument(&self, server: &str, kind: ConnectionKind, in_url: bool) -> bool {
        let name_sources = &self.configured.name_sources;
        let handles = self.handles.get(server).copied().unwrap_or_default();
        name_sources.argument
            && match handles {
                Handles::Never => false,
                Handles::Always => true,
                Handles::Auto => {
                    !in_url && (kind != ConnectionKind::Legacy || !name_sources.connection)
                }
            }
    }

    /// Whether the gateway's own session tools are listed with those of a server, if the server is stateful.
    pub(crate) fn shows_tools(&self, server: &str, kind: ConnectionKind, in_url: bool) -> bool {
        match self.configured.session_tools {
            SessionTools::Off => false,
            SessionTools::All => true,
            SessionTools::Basic => self.takes_argument(server, kind, in_url),
        }
    }
}

impl fmt::Debug for IdentifyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifyRules")
            .field("configured", &self.configured)
            .finish_non_exhaustive()
    }
}
