//! Session of the connection that a request came on.

use std::sync::Arc;

use http::HeaderMap;
use stayput_core::{Handle, OpenOptions, Record, Session, SessionOpenError};

use super::{FoundSession, RequestContext, cookie, header_names, open, refusal::Refusal};
use crate::{connections::connection::Connection, reply::SessionName, state::AppState};

/// Returns the secret name of the request's connection: `Mcp-Session-Id`, or else the cookie. `None` if the value is not
/// a valid name.
pub(crate) fn read_connection_name(app: &AppState, headers: &HeaderMap) -> Option<Handle> {
    let by_header =
        headers.get(&header_names::MCP_SESSION_ID).map(|id| id.to_str().unwrap_or_default());
    let by_cookie = || cookie::read(headers).filter(|_| cookie::is_on(app));
    by_header.or_else(by_cookie)?.parse().ok()
}

/// Returns the default session of the connection for a request that names none, if this name source is enabled.
pub(super) async fn session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<Option<FoundSession>, Refusal> {
    let name_sources = &app.identify.configured.name_sources;
    let Some(connection) = context.connection else {
        return match name_sources.cookie {
            true => Box::pin(cookie::session(app, context)).await.map(Some),
            false => Ok(None),
        };
    };
    // A shared server is the same in every session, so any session will do.
    if !name_sources.connection && Box::pin(app.keeps_state(context)).await {
        return Ok(None);
    }
    if let Some(session) = connection.reenter_default_session(&app.sessions) {
        return Ok(Some(FoundSession::from_existing(session)));
    }
    let cached = SessionName::Id(connection.default_session());
    if let Some(holder) = app.cached_holder(&cached) {
        return Err(Refusal::held_by(holder).found_by(Some(cached)));
    }
    // Boxed because it is rare: without the box, the future of every call would be as large as this one.
    Box::pin(look_up_session(app, context, connection)).await.map(Some)
}

/// Looks up the default session by its id.
async fn look_up_session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    connection: &Arc<Connection>,
) -> Result<FoundSession, Refusal> {
    let failed =
        |error: SessionOpenError| Refusal::for_open_error(&error, "Begin anew with `initialize`.");
    let id = connection.default_session();
    match app.session(&connection.owner, id).await {
        Ok(session) => {
            connection.cache_default_session(session.session());
            Ok(FoundSession::from_existing(session))
        }
        // The session was ended on another connection; this connection is still open.
        Err(SessionOpenError::Ended(over)) => {
            replace_ended_session(app, context, connection, &over).await.map_err(failed)
        }
        Err(SessionOpenError::HeldElsewhere { holder }) => {
            // Another replica may have given the connection another session since it was read here.
            if app.refresh_default_session(connection).await.map_err(failed)? {
                return Box::pin(look_up_session(app, context, connection)).await;
            }
            let cached = SessionName::Id(id);
            app.cache_holder(cached, &holder);
            Err(failed(SessionOpenError::HeldElsewhere { holder }).found_by(Some(cached)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Returns the refusal of a request that belongs to the holder of the connection's default session, if another replica is
/// that holder. A session without a holder is claimed here.
pub(crate) async fn refusal_if_home_is_elsewhere(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Option<Refusal> {
    let held_by = app.home_elsewhere(context.connection?).await?;
    Some(Refusal::held_by(held_by.holder).found_by(held_by.name))
}

/// Continues a connection whose session was ended elsewhere, with the next session of the same key or with a new one.
/// The loss must be reported.
async fn replace_ended_session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    connection: &Arc<Connection>,
    over: &Record,
) -> Result<FoundSession, SessionOpenError> {
    let session = match &over.key {
        Some(key) => {
            open::open_by_key(app, context, over.agent.clone(), key.clone()).await?.session
        }
        None => {
            let session =
                app.sessions.open(&OpenOptions::new(context.owner.clone())).await?.session;
            let lost = |record: &mut Record| record.generation = over.generation.next();
            app.sessions.change(&session, lost).await?;
            session
        }
    };
    if connection.replace_default_session(over.id, session.id()) == session.id() {
        set_default_session(app, context, &session).await?;
    }
    // Another replica may have replaced the session at the same time; the store has the one that counts.
    let led = connection.default_session();
    if led == session.id() {
        return Ok(FoundSession::from_existing(session));
    }
    // Another request was faster. A session with a key may be in use elsewhere, so only one without a key is ended.
    if over.key.is_none() {
        let own = session.session().clone();
        drop(session);
        app.sessions.end(&own).await?;
    }
    app.session(&connection.owner, led).await.map(FoundSession::from_existing)
}

/// Records that the connection uses this session: messages outside of calls concern it, too.
pub(super) fn note_named_session(context: &RequestContext<'_>, session: &Session) {
    if let Some(connection) = context.connection {
        connection.note_named_session(session.id());
    }
}

/// Makes a session the default session of the connection, and stores that.
pub(crate) async fn set_default_session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    session: &Session,
) -> Result<(), SessionOpenError> {
    let Some(connection) = context.connection else { return Ok(()) };
    app.sessions.put_connection(session, connection.name(), &connection.to_bytes()).await?;
    connection.set_default_session(session.id());
    app.announce_default_session(connection, context.claims).await?;
    // An open stream keeps the current default session from going idle, not the previous one.
    if let Some(stream) = connection.listen_stream()
        && let Ok(session) = app.sessions.find_by_id(&connection.owner, session.id()).await
    {
        stream.keep(session);
    }
    crate::messages::listen_stream::resume(app, connection).await;
    Ok(())
}
