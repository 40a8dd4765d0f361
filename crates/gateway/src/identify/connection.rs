//! The session of the connection that a request came on.

use std::sync::Arc;

use stayput_core::{OpenError, Session};

use super::{Claim, Found, cookie, refusal::Refusal};
use crate::house::House;

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
    match house.session(&connection.owner, connection.default_session()).await {
        Ok(session) => Ok(Some(Found::kept(session))),
        Err(error) => Err(Refusal::of(&error, "Begin anew with `initialize`.")),
    }
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
    if let Some(name) = connection.name() {
        house.sessions.connect(session, name, &connection.to_bytes()).await?;
    }
    connection.lead(session.id());
    crate::listening::resume(house, connection).await;
    Ok(())
}
