//! Clients of the modern era: each request stands for itself, on the same paths as everybody else's.

pub(crate) mod aggregate;
pub(crate) mod discover;
pub(crate) mod lists;

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use stayput_upstream::{Held, Isolation, Profile};
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

/// What the modern era has no more. Legacy servers still know it, so it is refused here.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Whether a message is spoken in the modern era: its `_meta` says so, or else its version header. What
/// names a version that nobody knows is of the era that names versions in each message.
pub(crate) fn is_spoken(headers: &HeaderMap, message: &Message<'_>) -> bool {
    let said = message.meta().and_then(|meta| meta.find(&[meta::PROTOCOL_VERSION]));
    let legacy = said.and_then(|said| said.text()).is_some_and(|said| {
        let version = Version::from(&*said);
        version.is_known() && version.era() == Era::Legacy
    });
    let by_meta = said.is_some() && !legacy;
    by_meta || (message.method() != Some("initialize") && is_named(headers))
}

/// Whether the version header names a modern version.
pub(crate) fn is_named(headers: &HeaderMap) -> bool {
    let said = headers.get(&header_names::PROTOCOL_VERSION).and_then(|said| said.to_str().ok());
    said.is_some_and(|said| Version::from(said).era() == Era::Modern)
}

/// Takes in a message of a modern client.
pub(crate) async fn take(
    app: &Arc<AppState>,
    target: &Target,
    message: &Message<'_>,
    RequestParts { principal, headers, path_key, stdio, .. }: RequestParts<'_>,
) -> Response<Reply> {
    let (id, method) = match message.kind() {
        MessageKind::Request { id, method, .. } => (id.as_str(), &**method),
        // Nothing that a client tells in this era concerns a server; to close a stream is to cancel.
        MessageKind::Notification { .. } => return reply::status(StatusCode::ACCEPTED),
        MessageKind::Response { .. } | MessageKind::Error { .. } => {
            let sentence = "clients of this version send requests, not answers";
            return InvalidRequest::new(Code::INVALID_REQUEST, sentence).response(None);
        }
    };
    let valid = match stdio {
        None => crate::call::modern::validate::request(headers, message),
        // There are no headers.
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
        if let Some(done) = session_tools::call(self.app, self.claim()).await {
            return reply::message_then(done.text, done.then);
        }
        self.pass().await
    }

    /// What is no call of one of our tools.
    pub(crate) async fn pass(&self) -> Response<Reply> {
        let nobody = Sessionless::new(self.app, &self.owner, false);
        // Only one that several share is found in nobody's name.
        let link = self.app.links.find(self.server, nobody.place());
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

    /// What is known of the server. For a list, as it is now, also if the server said on some link that it
    /// changed, or did not tell it before; nothing else waits for that.
    pub(crate) async fn profile(&self) -> Result<Arc<Profile>, String> {
        let profile = match crate::catalog::list::is_list(self.method) {
            true => self.app.current(self.server, &self.owner, self.method).await,
            false => self.app.profile(self.server, &self.owner).await,
        };
        profile.map_err(|error| self.app.blame(&error))
    }

    /// Why a tool is not called: it is not passed on, or its arguments do not travel as headers as they
    /// should.
    pub(crate) fn denied(&self, profile: &Profile, link: Option<&Held>) -> Option<Response<Reply>> {
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
            // As for one that is not there.
            return Some(self.refused(Code::INVALID_PARAMS, "Unknown tool"));
        }
        let name = name.filter(|_| self.stdio.is_none())?;
        // A link that lists passed over knows more than what was learned before there was one.
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
