//! Choice of the server for a request to the aggregate.

use stayput_upstream::{PooledLink, Server};
use stayput_wire::{Message, Raw, json};

use super::Refusal;
use crate::{
    catalog::{
        list::{List, PROMPTS, RESOURCES, TEMPLATES, TOOLS},
        names::{self, SEPARATOR},
    },
    identify::RequestContext,
    observe::call_record::{CallRecord, CallStart},
    route::admission::is_printable_and_trimmed,
    state::{
        AppState,
        roster::{self, AvailableServer, Roster},
    },
};

/// Maximum number of servers that an error message names.
const NAMED: usize = 20;

/// Request that has to go to one of the servers.
pub(super) struct Route<'a> {
    pub(super) context: &'a RequestContext<'a>,
}

/// Server for a request, and the edited text if the request has to be changed.
pub(super) struct ServerRoute<'a> {
    pub(super) server: &'a Server,
    pub(super) text: Option<String>,
}

impl<'a> Route<'a> {
    /// Routes a request that names a tool.
    pub(super) async fn tool(&self, message: &Message<'_>) -> Result<ServerRoute<'a>, Refusal> {
        self.named(message, &TOOLS, &["name"]).await
    }

    /// Routes a request that names a prompt.
    pub(super) async fn prompt(&self, message: &Message<'_>) -> Result<ServerRoute<'a>, Refusal> {
        self.named(message, &PROMPTS, &["name"]).await
    }

    /// Routes a request that names a resource.
    pub(super) async fn resource(&self, message: &Message<'_>) -> Result<ServerRoute<'a>, Refusal> {
        let uri = text(message, &["uri"])?;
        Ok(ServerRoute { server: self.owner(&uri).await?, text: None })
    }

    /// Routes a completion request for an argument of a prompt or a resource template.
    pub(super) async fn completion(
        &self,
        message: &Message<'_>,
    ) -> Result<ServerRoute<'a>, Refusal> {
        match &*text(message, &["ref", "type"])? {
            "ref/prompt" => self.named(message, &PROMPTS, &["ref", "name"]).await,
            "ref/resource" => {
                let uri = text(message, &["ref", "uri"])?;
                Ok(ServerRoute { server: self.owner(&uri).await?, text: None })
            }
            _ => Err(Refusal::invalid("`ref.type` is either `ref/prompt` or `ref/resource`")),
        }
    }

    /// Routes by the name at `path`, and replaces it by the name that the server uses.
    async fn named(
        &self,
        message: &Message<'_>,
        list: &'static List,
        path: &[&str],
    ) -> Result<ServerRoute<'a>, Refusal> {
        let outer = text(message, path)?;
        let app: &'a AppState = self.context.app;
        let split = app.aggregate.names.split(&outer);
        let found = split.and_then(|(name, inner)| Some((app.servers.get(name)?, inner)));
        let (server, inner) = found.ok_or_else(|| self.unknown(list, &outer))?;
        // Admission has checked the name with its prefix. Without it, white space at its start counts.
        if !is_printable_and_trimmed(inner) {
            self.record_denied("invalid_message", server, message);
            return Err(self.unknown(list, &outer));
        }
        let inner = self.inner(server, list, &outer, inner).await?;
        let params = message.params().ok_or_else(|| self.unknown(list, &outer))?;
        let mut edits = message.edit();
        edits.set_in(params, path, &json::quote(&inner));
        let edited = edits.apply().map_err(|error| Refusal::invalid(error.to_string()))?;
        let allowed = app.tools.get(server.name()).is_none_or(|tools| tools.allows(&inner));
        if *list == TOOLS && !allowed {
            self.denied(server, &edited);
            // Same error as for an unknown tool.
            return Err(self.unknown(list, &outer));
        }
        Ok(ServerRoute { server, text: Some(edited.into_owned()) })
    }

    /// Records a denied tool call, under the name that the tool has on its server.
    fn denied(&self, server: &Server, call: &str) {
        if let Ok(message) = Message::parse(call.as_bytes()) {
            self.record_denied("denied_tool", server, &message);
        }
    }

    /// Counts a refused message under this reason, and writes it to the audit.
    fn record_denied(&self, reason: &'static str, server: &Server, message: &Message<'_>) {
        self.context.app.count_refused(reason);
        let start = CallStart { server: Some(server), message, ..self.context.call_start() };
        CallRecord::denied(self.context.app.observers.as_ref(), start);
    }

    /// Returns the name that the server uses. If there is a link, the server itself decides whether the name exists.
    /// No link is opened for a name that the server does not list.
    async fn inner(
        &self,
        server: &Server,
        list: &'static List,
        outer: &str,
        inner: &str,
    ) -> Result<String, Refusal> {
        let cut = names::is_cut(outer);
        if !cut && self.link(server).is_some() {
            return Ok(inner.to_owned());
        }
        // If the server is unavailable, the call itself reports the reason.
        let Ok(profile) = roster::ask(self.context.app, self.context.caller(), server).await else {
            return Ok(inner.to_owned());
        };
        if !profile.initialize_result().has(list.capability) {
            return Err(self.unknown(list, outer));
        }
        // A server whose list is not available may still have the name.
        if profile.pages(list.method).is_empty() {
            return Ok(inner.to_owned());
        }
        let present = AvailableServer { name: server.name().to_owned(), profile };
        let indexed = self.context.app.aggregate.indexed(self.context, &present, list);
        let names = &self.context.app.aggregate.names;
        if cut && let Some(whole) = indexed.all().find(|it| names.outer(server.name(), it) == outer)
        {
            return Ok(whole.to_owned());
        }
        let has = indexed.has(inner)
            || self.link(server).is_some()
            || self.has_now(server, list, inner).await;
        if has { Ok(inner.to_owned()) } else { Err(self.unknown(list, outer)) }
    }

    /// Returns whether the server has the name now, though its earlier list did not have it.
    async fn has_now(&self, server: &Server, list: &'static List, inner: &str) -> bool {
        let context = self.context;
        let server = context.app.server_for(server, context.owner, (context.era, None)).await;
        let current = context.app.current(server, context.owner, list.method);
        let Ok(profile) = current.await else { return false };
        let present = AvailableServer { name: server.name().to_owned(), profile };
        self.context.app.aggregate.indexed(self.context, &present, list).has(inner)
    }

    /// Returns the link of the client's own session.
    fn link(&self, server: &Server) -> Option<PooledLink> {
        self.context.app.links.find(server, &self.context.link_owner()?)
    }

    fn unknown(&self, list: &List, outer: &str) -> Refusal {
        let names = &self.context.app.aggregate.names;
        let mut servers: Vec<_> =
            self.context.app.servers.keys().take(NAMED).map(|name| names.prefix(name)).collect();
        if self.context.app.servers.len() > NAMED {
            servers.push("…");
        }
        let (kind, servers) = (list.member.trim_end_matches('s'), servers.join(", "));
        let outer: String = outer.chars().take(100).collect();
        Refusal::invalid(format!(
            "Unknown {kind} `{outer}`: names here look like SERVER{SEPARATOR}{}, with one of the \
             servers {servers}; `{}` has all of them",
            kind.to_uppercase(),
            list.method
        ))
    }

    /// Returns the server for a URI: the first that lists it, else the one with the closest template, else the only
    /// one that has resources.
    async fn owner(&self, uri: &str) -> Result<&'a Server, Refusal> {
        let app: &'a AppState = self.context.app;
        let mut roster = Roster::call(self.context.app, &self.context.caller()).await;
        roster
            .present
            .retain(|present| present.profile.initialize_result().has(RESOURCES.capability));
        let index =
            |present: &AvailableServer, list| app.aggregate.indexed(self.context, present, list);
        let in_list = roster.present.iter().find(|it| index(it, &RESOURCES).has(uri));
        let in_templates = || roster.present.iter().find(|it| index(it, &TEMPLATES).has(uri));
        let by_template = || {
            let close = |it: &AvailableServer| index(it, &TEMPLATES).closest(uri);
            let mut closest: Option<(usize, &AvailableServer)> = None;
            for (close, present) in roster.present.iter().filter_map(|it| Some((close(it)?, it))) {
                // If two templates are equally close, the first server wins.
                if closest.is_none_or(|(other, _)| close > other) {
                    closest = Some((close, present));
                }
            }
            closest.map(|(_, present)| present)
        };
        let only = || roster.present.first().filter(|_| roster.present.len() == 1);
        let found = in_list.or_else(in_templates).or_else(by_template).or_else(only);
        let server = found.and_then(|present| app.servers.get(&present.name));
        server.ok_or_else(|| Refusal::no_resource(uri))
    }
}

/// Returns a string of the parameters that occurs only once, so that every reader finds the same one.
fn text(message: &Message<'_>, path: &[&str]) -> Result<String, Refusal> {
    let found = message.params().map(|params| params.find_unique(path));
    let found = found.and_then(Result::ok).flatten().and_then(Raw::text);
    found.map(std::borrow::Cow::into_owned).ok_or_else(|| {
        Refusal::invalid(format!("`params` needs a text as its only `{}`", path.join(".")))
    })
}
