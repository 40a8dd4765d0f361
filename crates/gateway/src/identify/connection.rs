//! The session of the connection that a request came on.

use std::sync::Arc;

use stayput_core::{OpenOptions, Record, Session, SessionOpenError};

use super::{FoundSession, RequestContext, cookie, open, refusal::Refusal};
use crate::{connections::connection::Connection, state::AppState};

/// The session that a request means when it names none: that of its connection, if that counts.
pub(super) async fn session(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<Option<FoundSession>, Refusal> {
    let carriers = &app.identify.configured.carriers;
    let Some(connection) = claim.connection else {
        return match carriers.cookie {
            true => Box::pin(cookie::session(app, claim)).await.map(Some),
            false => Ok(None),
        };
    };
    // What everybody shares is the same in every session, so any will do.
    if !carriers.connection && Box::pin(app.keeps(claim)).await {
        return Ok(None);
    }
    if let Some(session) = connection.again(&app.sessions) {
        return Ok(Some(FoundSession::kept(session)));
    }
    // In a box, as all that is rare: every call would have to be as large.
    Box::pin(looked_up(app, claim, connection)).await.map(Some)
}

/// The same by its name.
async fn looked_up(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    connection: &Arc<Connection>,
) -> Result<FoundSession, Refusal> {
    let failed = |error: SessionOpenError| Refusal::of(&error, "Begin anew with `initialize`.");
    match app.session(&connection.owner, connection.default_session()).await {
        Ok(session) => {
            connection.went_to(session.session());
            Ok(FoundSession::kept(session))
        }
        // Somebody else ended it, on another connection: this one still is one.
        Err(SessionOpenError::Ended(over)) => {
            succeed(app, claim, connection, &over).await.map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// What a connection goes on with whose session was ended elsewhere: the next one of that name, or a new one. What
/// was lost has to be told.
async fn succeed(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    connection: &Arc<Connection>,
    over: &Record,
) -> Result<FoundSession, SessionOpenError> {
    let session = match &over.key {
        Some(key) => open::keyed(app, claim, over.agent.clone(), key.clone()).await?.session,
        None => {
            let session = app.sessions.open(&OpenOptions::new(claim.owner.clone())).await?.session;
            let lost = |record: &mut Record| record.generation = over.generation.next();
            app.sessions.change(&session, lost).await?;
            session
        }
    };
    let led = connection.succeed(over.id, session.id());
    if led == session.id() {
        lead(app, claim, &session).await?;
        return Ok(FoundSession::kept(session));
    }
    // Somebody was quicker. What has a name may be in use.
    if over.key.is_none() {
        let own = session.session().clone();
        drop(session);
        app.sessions.end(&own).await?;
    }
    app.session(&connection.owner, led).await.map(FoundSession::kept)
}

/// The connection also has to do with this session from now on: what the client is told and says
/// outside of calls goes there, too.
pub(super) fn noted(claim: &RequestContext<'_>, session: &Session) {
    if let Some(connection) = claim.connection {
        connection.uses(session.id());
    }
}

/// Leads the connection to another session, and keeps that.
pub(crate) async fn lead(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    session: &Session,
) -> Result<(), SessionOpenError> {
    let Some(connection) = claim.connection else { return Ok(()) };
    app.sessions.connect(session, connection.name(), &connection.to_bytes()).await?;
    connection.lead(session.id());
    // Who listens keeps the session that is meant from idling, and not the one before.
    if let Some(ear) = connection.ear()
        && let Ok(session) = app.sessions.find_by_id(&connection.owner, session.id()).await
    {
        ear.keep(session);
    }
    crate::messages::listen_stream::resume(app, connection).await;
    Ok(())
}
