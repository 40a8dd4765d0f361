//! Who asks, and which session is meant.
//!
//! Four classes of carriers, a file each: an explicit name goes before a host's hint, a hint before the
//! session of the connection, and that before the policy. The higher one wins without a word; two
//! different values inside one class are an error.

mod argument;
mod connection;
pub(crate) mod cookie;
mod custom;
mod ephemeral;
mod explicit;
mod header;
pub(crate) mod header_names;
mod hint;
mod meta;
mod open;
pub(crate) mod path;
mod policy;
mod refusal;
mod request_edit;
#[cfg(test)]
pub(crate) mod tests;
mod tool_view;

use std::sync::Arc;

use http::HeaderMap;
use stayput_core::{ActiveSession, Handle, Name, Origin, Owner};
use stayput_upstream::{Place, Server};
use stayput_wire::{Era, Message};

use self::explicit::Said;
pub(crate) use self::{connection::lead, open::keyed, policy::give, refusal::Refusal};
pub(crate) use crate::identify::{ephemeral::EphemeralSession, request_edit::RequestEdit};
use crate::{
    auth::Claims,
    config::target::Target,
    connections::connection::Connection,
    observe::call_record::CallStart,
    reply::RequestRef,
    state::{AppState, identify_rules::Front},
};

/// What a request brings along to say which session it means.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) owner: &'a Owner,
    /// What is known of it beside.
    pub(crate) claims: &'a Claims,
    /// The server that it is for; none if that is all of them.
    pub(crate) server: Option<&'a Server>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) path_key: Option<&'a str>,
    pub(crate) message: &'a Message<'a>,
    pub(crate) connection: Option<&'a Arc<Connection>>,
}

impl RequestContext<'_> {
    /// The request that an answer is for.
    pub(crate) fn asked(&self) -> RequestRef<'_> {
        let id = self.message.id().map_or("null", |id| id.as_str());
        RequestRef { id, method: self.message.method().unwrap_or_default() }
    }

    /// The request, as a call that no session is known of yet.
    pub(crate) fn begun(&self) -> CallStart<'_> {
        let Self { owner, server, message, headers, .. } = *self;
        CallStart { owner, session: None, server, message, headers }
    }

    /// Over what the client came.
    pub(crate) fn front(&self) -> Front {
        match self.connection {
            None => Front::Modern,
            Some(connection) if connection.stdio => Front::Stdio,
            Some(_) => Front::Legacy,
        }
    }

    /// The session that servers are asked for without being called; none if there is no connection.
    pub(crate) fn place(&self) -> Option<Place> {
        self.connection.map(|connection| connection.place())
    }

    /// What the log calls what it is for.
    pub(crate) fn label(&self) -> &str {
        self.server.map_or(Target::All.label(), Server::name)
    }

    /// How the client is spoken to.
    pub(crate) fn era(&self) -> Era {
        let modern = || {
            let meta = self.message.meta();
            meta.is_some_and(|it| it.find(&[stayput_wire::meta::PROTOCOL_VERSION]).is_some())
        };
        match self.front() {
            Front::Modern => Era::Modern,
            Front::Stdio if modern() => Era::Modern,
            Front::Stdio | Front::Legacy => Era::Legacy,
        }
    }
}

/// Which session a request means.
pub(crate) enum SessionChoice {
    /// This session.
    Session {
        session: ActiveSession,
        /// Whether what its client remembers can still be true.
        origin: Origin,
        /// The message without what only named the session, if anything had to be taken out.
        text: Option<RequestEdit>,
        /// A handle minted for it that the answer gives out.
        given: Option<Handle>,
        /// Nothing named one, it ends with this call.
        fleeting: bool,
    },
    /// Nothing is run: this is the answer (a tool error or an error, as JSON-RPC text).
    Answer(String),
}

/// A session that something named.
pub(crate) struct FoundSession {
    pub(crate) session: ActiveSession,
    pub(crate) origin: Origin,
    /// The handle that named it, if one did.
    pub(crate) handle: Option<Handle>,
}

impl FoundSession {
    /// A session of before, in use.
    fn kept(session: ActiveSession) -> Self {
        let origin = session.latest_unacknowledged_loss().map_or(Origin::Existing, Origin::Lost);
        Self { session, origin, handle: None }
    }
}

/// What a request names by itself.
pub(crate) struct NamedSession {
    /// The session, if it names one.
    pub(crate) found: Option<FoundSession>,
    /// The message without what only names a session, if anything had to be taken out.
    text: Option<RequestEdit>,
}

/// The session that a request means.
pub(crate) async fn which(app: &Arc<AppState>, claim: RequestContext<'_>) -> SessionChoice {
    let done = async {
        let NamedSession { found, text } = named(app, &claim, false).await?;
        let found = match found {
            None => connection::session(app, &claim).await?,
            found => found,
        };
        Ok::<_, Refusal>(match found {
            Some(FoundSession { session, origin, .. }) => {
                SessionChoice::Session { session, origin, text, given: None, fleeting: false }
            }
            None => Box::pin(policy::apply(app, &claim, text)).await,
        })
    };
    done.await
        .unwrap_or_else(|refusal| SessionChoice::Answer(refusal.answer(claim.asked(), claim.era())))
}

/// The session that a client names when it shakes hands: its connection leads there.
pub(crate) async fn greeted(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<Option<FoundSession>, Refusal> {
    let explicit = explicit::read(app, claim, &meta::members(claim.message), false).await?;
    let said = explicit.said.into_all();
    if said.is_empty() || !app.keeps(claim).await {
        return Ok(None);
    }
    let name = explicit::one(app, claim, &said).await?;
    open::named(app, claim, name).await.map(Some)
}

/// The session that a call of one of our own tools is about.
pub(crate) async fn current(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<FoundSession, Refusal> {
    let found = match named(app, claim, true).await?.found {
        None => connection::session(app, claim).await?,
        found => found,
    };
    match found {
        Some(found) => Ok(found),
        None => {
            let way_out = open::way_out(app, claim).await;
            Err(Refusal::caller(format!("Nothing says which session is meant. {way_out}")))
        }
    }
}

/// The session that a request names by itself, by an explicit name or by the hint of its host. `own` is
/// set for a call of one of our own tools, whose argument is always ours.
pub(crate) async fn named(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    own: bool,
) -> Result<NamedSession, Refusal> {
    let meta = meta::members(claim.message);
    let explicit = explicit::read(app, claim, &meta, own).await?;
    let text = explicit.rest(claim.message)?;
    let kept = explicit.kept;
    let name = match explicit.said {
        Said::Nothing => hint::read(&app.identify.configured.hints, &meta)?.map(Name::Key),
        Said::Once(said) => Some(said.name),
        // In a box, as all that is rare: every call would have to be as large.
        Said::More(said) => Some(Box::pin(explicit::one(app, claim, &said)).await?),
    };
    let Some(name) = name else { return Ok(NamedSession { found: None, text }) };
    if claim.connection.is_some() && !own && !kept && !keeps(app, claim).await {
        // What everybody shares is the same in every session.
        return Ok(NamedSession { found: None, text });
    }
    let found = match open::at_hand(app, claim, &name) {
        Some(found) => found,
        None => Box::pin(open::named(app, claim, name)).await?,
    };
    connection::noted(claim, &found.session);
    Ok(NamedSession { found: Some(found), text })
}

/// Whether what a request is for keeps state for a session.
async fn keeps(app: &Arc<AppState>, claim: &RequestContext<'_>) -> bool {
    match app.keeps_as_known(claim) {
        Some(keeps) => keeps,
        None => Box::pin(app.keeps(claim)).await,
    }
}
