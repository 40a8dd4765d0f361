//! Routing for clients of the modern era: each request is self-contained, on the same paths as legacy requests.

pub(crate) mod aggregate;
pub(crate) mod discover;
pub(crate) mod lists;

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use stayput_upstream::{Isolation, PooledLink, Profile};
use stayput_wire::{Code, Era, Message, MessageKind, Version, meta};

use crate::{
    call::{
        context::RequestParts,
        modern::{request::ModernRequest, validate::InvalidRequest},
        sessionless::Sessionless,
    },
    config::{ToolFilter, target::Target},
    identify::header_names,
    observe::call_record::CallRecord,
    reply::{self, Reply},
    route::modern::aggregate::ToAll,
    session_tools,
    state::{AppState, snapshot},
};

/// Methods that the modern era removed. Legacy servers still have them, so the gateway refuses them.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Returns whether a message is of the modern era, by its `_meta` or else its version header. A message that names an
/// unknown version counts as modern, because only the modern era names the version in each message.
pub(crate) fn is_spoken(headers: &HeaderMap, message: &Message<'_>) -> bool {
    let value = message.meta().and_then(|meta| meta.find(&[meta::PROTOCOL_VERSION]));
    let legacy = value.and_then(|value| value.text()).is_some_and(|value| {
        let version = Version::from(&*value);
        version.is_known() && version.era() == Era::Legacy
    });
    let by_meta = value.is_some() && !legacy;
    by_meta || (message.method() != Some("initialize") && is_named(headers))
}

/// Returns whether the version header names a modern version.
pub(crate) fn is_named(headers: &HeaderMap) -> bool {
    let value = headers.get(&header_names::PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| Version::from(value).era() == Era::Modern)
}

/// Answers a message of a modern client.
pub(crate) async fn take(
    app: &Arc<AppState>,
    target: &Target,
    message: &Message<'_>,
    RequestParts { principal, headers, path_key, stdio, .. }: RequestParts<'_>,
) -> Response<Reply> {
    let (id, method) = match message.kind() {
        MessageKind::Request { id, method, .. } => (id.as_str(), &**method),
        // No notification of this era is for a server; clients cancel by closing the stream.
        MessageKind::Notification { .. } => return reply::status(StatusCode::ACCEPTED),
        MessageKind::Response { .. } | MessageKind::Error { .. } => {
            let sentence = "clients of this version send requests, not answers";
            return InvalidRequest::new(Code::INVALID_REQUEST, sentence).response(None);
        }
    };
    let valid = match stdio {
        None => crate::call::modern::validate::request(headers, message),
        // A stdio client has no headers.
        Some(_) => crate::call::modern::validate::body(message),
    };
    if let Err(refused) = valid {
        return refused.response(Some(id));
    }
    let (owner, claims) = (principal.owner.clone(), &*principal.claims);
    let Target::Server(name) = target else {
        return ToAll { app, owner, claims, headers, path_key, stdio, message, id, method }
            .answer()
            .await;
    };
    let Some(server) = app.servers.get(&**name) else {
        let sentence = snapshot::gone(name);
        return InvalidRequest::new(Code::INTERNAL_ERROR, &sentence).response(Some(id));
    };
    ModernRequest { app, server, headers, path_key, stdio, message, owner, claims, id, method }
        .answer()
        .await
}

impl ModernRequest<'_> {
    pub(crate) async fn answer(&self) -> Response<Reply> {
        if REMOVED.contains(&self.method) {
            let sentence = format!("this version of the protocol has no `{}`", self.method);
            return self.refused(Code::METHOD_NOT_FOUND, &sentence);
        }
        if let Some(done) = session_tools::call(self.app, self.context()).await {
            return reply::message_then(done.text, done.then);
        }
        self.pass().await
    }

    /// Answers a request that is not a call of a session tool.
    pub(crate) async fn pass(&self) -> Response<Reply> {
        let sessionless = Sessionless::new(self.app, &self.owner, false);
        // Without a session, only a shared link can be found.
        let link = self.app.links.find(self.server, sessionless.place());
        let profile = match self.profile().await {
            Ok(profile) => profile,
            Err(sentence) => return self.failed(&sentence),
        };
        let era = profile.way().era();
        if era == Era::Legacy && !discover::advertises(&profile, self.method) {
            let sentence = format!("the server has no `{}`", self.method);
            return self.refused(Code::METHOD_NOT_FOUND, &sentence);
        }
        if let Some(refused) = self.denied(&profile, link.as_ref()) {
            return refused;
        }
        let known = match self.method {
            "server/discover" => discover::known(self, &profile),
            method if crate::catalog::list::is_list(method) => lists::known(self, &profile).await,
            _ if self.server.isolation(era) == Isolation::Shared => None,
            _ => return crate::call::modern::session::call(self, &profile).await,
        };
        match known {
            Some(known) => known,
            None => crate::call::modern::client_call::ask(self, &profile, link).await,
        }
    }

    /// Returns the profile of the server. For a list request the list is up to date, also if the server announced a
    /// change on some link or the list was not available before. Other requests do not wait for that.
    pub(crate) async fn profile(&self) -> Result<Arc<Profile>, String> {
        let profile = match crate::catalog::list::is_list(self.method) {
            true => self.app.current(self.server, &self.owner, self.method).await,
            false => self.app.profile(self.server, &self.owner).await,
        };
        profile.map_err(|error| self.app.describe_open_error(&error))
    }

    /// Returns the error for a tool call that is not allowed, or whose header arguments differ from the body.
    pub(crate) fn denied(
        &self,
        profile: &Profile,
        link: Option<&PooledLink>,
    ) -> Option<Response<Reply>> {
        if self.method != "tools/call" {
            return None;
        }
        let params = self.message.params();
        let name = params.and_then(|params| params.find_unique(&["name"]).ok().flatten());
        let name = name.and_then(|name| name.text());
        let allowed = |tools: &ToolFilter| name.as_deref().is_some_and(|name| tools.allows(name));
        if self.tools().is_some_and(|tools| !allowed(tools)) {
            self.app.metrics.refused("denied_tool");
            CallRecord::denied(self.app.watch.as_ref(), self.begun(None));
            // Same error as for an unknown tool.
            return Some(self.refused(Code::INVALID_PARAMS, "Unknown tool"));
        }
        let name = name.filter(|_| self.stdio.is_none())?;
        // A link that has passed on lists has newer header marks than the profile.
        let checked = match link.filter(|_| profile.way().era() == Era::Modern) {
            Some(link) => crate::call::modern::validate::params(
                self.headers,
                &*link.param_headers(&name)?,
                params,
            ),
            None => crate::call::modern::validate::params(
                self.headers,
                profile.param_headers(&name)?,
                params,
            ),
        };
        Some(checked.err()?.response(Some(self.id)))
    }
}
