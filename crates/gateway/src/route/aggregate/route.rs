//! Which server a request to all is for.

use std::sync::Arc;

use stayput_upstream::{Held, Server};
use stayput_wire::{Message, Raw, json};

use super::Refusal;
use crate::{
    catalog::{
        list::{List, PROMPTS, RESOURCES, TEMPLATES, TOOLS},
        names::{self, SEPARATOR},
    },
    identify::RequestContext,
    observe::call_record::{CallRecord, CallStart},
    state::{
        AppState,
        roster::{self, Present, Roster},
    },
};

/// The most servers that a sentence names.
const NAMED: usize = 20;

/// A request that has to go to one of all servers.
pub(super) struct Route<'a> {
    pub(super) app: &'a Arc<AppState>,
    pub(super) claim: &'a RequestContext<'a>,
}

/// Where a request goes, and as what if it has to be changed on the way.
pub(crate) struct Routed<'a> {
    pub(crate) server: &'a Server,
    pub(crate) text: Option<String>,
}

impl<'a> Route<'a> {
    /// A request that names a tool.
    pub(super) async fn tool(&self, message: &Message<'_>) -> Result<Routed<'a>, Refusal> {
        self.named(message, &TOOLS, &["name"]).await
    }

    /// A request that names a prompt.
    pub(super) async fn prompt(&self, message: &Message<'_>) -> Result<Routed<'a>, Refusal> {
        self.named(message, &PROMPTS, &["name"]).await
    }

    /// A request that names a resource.
    pub(super) async fn resource(&self, message: &Message<'_>) -> Result<Routed<'a>, Refusal> {
        let uri = text(message, &["uri"])?;
        Ok(Routed { server: self.owner(&uri).await?, text: None })
    }

    /// A request for what an argument of a prompt or of a template can be.
    pub(super) async fn completion(&self, message: &Message<'_>) -> Result<Routed<'a>, Refusal> {
        match &*text(message, &["ref", "type"])? {
            "ref/prompt" => self.named(message, &PROMPTS, &["ref", "name"]).await,
            "ref/resource" => {
                let uri = text(message, &["ref", "uri"])?;
                Ok(Routed { server: self.owner(&uri).await?, text: None })
            }
            _ => Err(Refusal::invalid("`ref.type` is either `ref/prompt` or `ref/resource`")),
        }
    }

    /// By what stands at `path`, which is called otherwise on the server.
    async fn named(
        &self,
        message: &Message<'_>,
        list: &'static List,
        path: &[&str],
    ) -> Result<Routed<'a>, Refusal> {
        let outer = text(message, path)?;
        let app: &'a AppState = self.app;
        let split = app.aggregate.names.split(&outer);
        let found = split.and_then(|(name, inner)| Some((app.servers.get(name)?, inner)));
        let (server, inner) = found.ok_or_else(|| self.unknown(list, &outer))?;
        let inner = self.inner(server, list, &outer, inner).await?;
        let params = message.params().ok_or_else(|| self.unknown(list, &outer))?;
        let mut edits = message.edit();
        edits.set_in(params, path, &json::quote(&inner));
        let edited = edits.apply().map_err(|error| Refusal::invalid(error.to_string()))?;
        let allowed = app.tools.get(server.name()).is_none_or(|tools| tools.allows(&inner));
        if *list == TOOLS && !allowed {
            self.denied(server, &edited);
            // As for one that is not there.
            return Err(self.unknown(list, &outer));
        }
        Ok(Routed { server, text: Some(edited.into_owned()) })
    }

    /// Notes that a tool is not passed on, under the name that it has on its server.
    fn denied(&self, server: &Server, call: &str) {
        self.app.metrics.refused("denied_tool");
        if let Ok(message) = Message::parse(call.as_bytes()) {
            let begun = CallStart { server: Some(server), message: &message, ..self.claim.begun() };
            CallRecord::denied(self.app.watch.as_ref(), begun);
        }
    }

    /// What the server calls it. With a link the server judges for itself whether it has it; for what it
    /// does not list, none is opened.
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
        // Of a server that is not there, the call itself tells why.
        let Ok(profile) = roster::ask(self.app, self.claim.owner, self.claim.place(), server).await
        else {
            return Ok(inner.to_owned());
        };
        if !profile.greeting().has(list.capability) {
            return Err(self.unknown(list, outer));
        }
        // A server that could not tell what it has may have it.
        if profile.pages(list.method).is_empty() {
            return Ok(inner.to_owned());
        }
        let present = Present { name: server.name().to_owned(), profile };
        let indexed = self.app.aggregate.indexed(self.claim, &present, list);
        let names = &self.app.aggregate.names;
        if cut && let Some(whole) = indexed.all().find(|it| names.outer(server.name(), it) == outer)
        {
            return Ok(whole.to_owned());
        }
        let has = indexed.has(inner)
            || self.link(server).is_some()
            || self.has_now(server, list, inner).await;
        if has { Ok(inner.to_owned()) } else { Err(self.unknown(list, outer)) }
    }

    /// Whether the server has it now, though it was not there when it was first asked.
    async fn has_now(&self, server: &Server, list: &'static List, inner: &str) -> bool {
        let current = self.app.current(server, self.claim.owner, list.method);
        let Ok(profile) = current.await else { return false };
        let present = Present { name: server.name().to_owned(), profile };
        self.app.aggregate.indexed(self.claim, &present, list).has(inner)
    }

    /// The link of the client's own session.
    fn link(&self, server: &Server) -> Option<Held> {
        self.app.links.find(server, &self.claim.place()?)
    }

    fn unknown(&self, list: &List, outer: &str) -> Refusal {
        let names = &self.app.aggregate.names;
        let mut servers: Vec<_> =
            self.app.servers.keys().take(NAMED).map(|name| names.prefix(name)).collect();
        if self.app.servers.len() > NAMED {
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

    /// The server that has a URI: the first that lists it, or the one whose template is closest, or the
    /// only one that has resources at all.
    async fn owner(&self, uri: &str) -> Result<&'a Server, Refusal> {
        let app: &'a AppState = self.app;
        let mut roll = Roster::call(self.app, self.claim.owner, self.claim.place()).await;
        roll.present.retain(|present| present.profile.greeting().has(RESOURCES.capability));
        let index = |present: &Present, list| app.aggregate.indexed(self.claim, present, list);
        let listed = roll.present.iter().find(|it| index(it, &RESOURCES).has(uri));
        let written = || roll.present.iter().find(|it| index(it, &TEMPLATES).has(uri));
        let made = || {
            let close = |it: &Present| index(it, &TEMPLATES).closest(uri);
            let mut closest: Option<(usize, &Present)> = None;
            for (close, present) in roll.present.iter().filter_map(|it| Some((close(it)?, it))) {
                // Of two that are as close, the first.
                if closest.is_none_or(|(other, _)| close > other) {
                    closest = Some((close, present));
                }
            }
            closest.map(|(_, present)| present)
        };
        let only = || roll.present.first().filter(|_| roll.present.len() == 1);
        let found = listed.or_else(written).or_else(made).or_else(only);
        let server = found.and_then(|present| app.servers.get(&present.name));
        server.ok_or_else(|| Refusal::no_resource(uri))
    }
}

/// A text among the parameters that no reader can take for another one.
fn text(message: &Message<'_>, path: &[&str]) -> Result<String, Refusal> {
    let found = message.params().map(|params| params.find_unique(path));
    let found = found.and_then(Result::ok).flatten().and_then(Raw::text);
    found.map(std::borrow::Cow::into_owned).ok_or_else(|| {
        Refusal::invalid(format!("`params` needs a text as its only `{}`", path.join(".")))
    })
}
