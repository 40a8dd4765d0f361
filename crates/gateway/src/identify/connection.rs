//! The session of the connection that a request came on.

use std::sync::Arc;

use stayput_core::{OpenError, Record, Session, Wish};

use super::{Claim, Found, cookie, open, refusal::Refusal};
use crate::{connection::Connection, house::House};

/// The session that a request means when it names none: that of its connection, if that counts.
pub(super) async fn session(
    house: &Arc<House>,
    claim: &Claim<'_>,
) -> Result<Option<Found>, Refusal> {
    let carriers = &house.identify.configured.carriers;
    let Some(connection) = claim.connection else {
        return match carriers.cookie {
            true => Box::pin(cookie::session(house, claim)).await.map(Some),
            false => Ok(None),
        };
    };
    // What everybody shares is the same in every session, so any will do.
    if !carriers.connection && Box::pin(house.keeps(claim)).await {
        return Ok(None);
    }
    if let Some(session) = connection.again(&house.sessions) {
        return Ok(Some(Found::kept(session)));
    }
    // In a box, as all that is rare: every call would have to be as large.
    Box::pin(looked_up(house, claim, connection)).await.map(Some)
}

/// The same by its name.
async fn looked_up(
    house: &Arc<House>,
    claim: &Claim<'_>,
    connection: &Arc<Connection>,
) -> Result<Found, Refusal> {
    let failed = |error: OpenError| Refusal::of(&error, "Begin anew with `initialize`.");
    match house.session(&connection.owner, connection.default_session()).await {
        Ok(session) => {
            connection.went_to(session.session());
            Ok(Found::kept(session))
        }
        // Somebody else ended it, on another connection: this one still is one.
        Err(OpenError::Over(over)) => {
            succeed(house, claim, connection, &over).await.map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// What a connection goes on with whose session was ended elsewhere: the next one of that name, or a new one. What
/// was lost has to be told.
async fn succeed(
    house: &Arc<House>,
    claim: &Claim<'_>,
    connection: &Arc<Connection>,
    over: &Record,
) -> Result<Found, OpenError> {
    let session = match &over.key {
        Some(key) => open::keyed(house, claim, over.agent.clone(), key.clone()).await?.session,
        None => {
            let session = house.sessions.open(&Wish::new(claim.owner.clone())).await?.session;
            let lost = |record: &mut Record| record.generation = over.generation.next();
            house.sessions.change(&session, lost).await?;
            session
        }
    };
    let led = connection.succeed(over.id, session.id());
    if led == session.id() {
        lead(house, claim, &session).await?;
        return Ok(Found::kept(session));
    }
    // Somebody was quicker. What has a name may be in use.
    if over.key.is_none() {
        let own = session.session().clone();
        drop(session);
        house.sessions.end(&own).await?;
    }
    house.session(&connection.owner, led).await.map(Found::kept)
}

/// The connection also has to do with this session from now on: what the client is told and says
/// outside of calls goes there, too.
pub(super) fn noted(claim: &Claim<'_>, session: &Session) {
    if let Some(connection) = claim.connection {
        connection.uses(session.id());
    }
}

/// Leads the connection to another session, and keeps that.
pub(crate) async fn lead(
    house: &Arc<House>,
    claim: &Claim<'_>,
    session: &Session,
) -> Result<(), OpenError> {
    let Some(connection) = claim.connection else { return Ok(()) };
    house.sessions.connect(session, connection.name(), &connection.to_bytes()).await?;
    connection.lead(session.id());
    // Who listens keeps the session that is meant from idling, and not the one before.
    if let Some(ear) = connection.ear()
        && let Ok(session) = house.sessions.by_id(&connection.owner, session.id()).await
    {
        ear.keep(session);
    }
    crate::listening::resume(house, connection).await;
    Ok(())
}
