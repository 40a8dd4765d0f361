//! Log level and subscriptions of a client, which apply to all its links at all replicas.

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_core::{Holder, SessionOpenError};
use stayput_wire::Message;

use crate::{
    auth::Principal, call::open_link, connections::connection::Connection,
    identify::RequestContext, messages::listen_stream, state::AppState,
};

/// Stores the preference in a request of a client before the client gets its answer. Returns whether it holds one.
pub(super) async fn note(context: &RequestContext<'_>, connection: &Connection) -> bool {
    if !Connection::is_preference(context.message) {
        return false;
    }
    let stored = match store(context.app, connection, context.message).await {
        Ok(stored) => return stored,
        // Only the holder of the default session writes the connection.
        Err(SessionOpenError::HeldElsewhere { holder }) => {
            match announce(context, connection, &[holder]).await {
                true => Ok(()),
                false => Err("its gateway was not reached".to_owned()),
            }
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(reason) = stored {
        tracing::warn!("the preferences of a client were not stored: {reason}");
    }
    true
}

/// Stores a preference at the replica that holds the default session. Returns whether the message holds one.
async fn store(
    app: &AppState,
    connection: &Connection,
    message: &Message<'_>,
) -> Result<bool, SessionOpenError> {
    // Two changes at the same time would each write the preferences without the other.
    let _changing = connection.preference_lock.lock().await;
    // Another replica may have held the session since the connection was read here.
    app.load_preferences(connection).await;
    if !connection.note_preference(message) {
        return Ok(false);
    }
    app.keep(connection).await.map(|()| true)
}

/// Sets the log level that a client has just changed on its links at all other replicas.
pub(super) async fn announce_level(context: &RequestContext<'_>, connection: &Connection) {
    if let Some(cluster) = &context.app.cluster {
        announce(context, connection, &cluster.live_peers()).await;
    }
}

/// Tells replicas of a preference. Returns whether one of them has stored it.
async fn announce(context: &RequestContext<'_>, connection: &Connection, to: &[Holder]) -> bool {
    let Some(cluster) = &context.app.cluster else { return false };
    let principal = Principal::forwarded(connection.owner.clone(), context.claims.clone(), false);
    cluster.announce_preference(to, (connection.name(), context.message), &principal).await
}

/// Takes a preference that another replica got. Returns whether it was stored here.
pub(crate) async fn take(
    app: &AppState,
    connection: &Arc<Connection>,
    message: &Message<'_>,
) -> bool {
    let is_home = app.sessions.get_held(connection.default_session()).is_some();
    let stored = match is_home {
        true => matches!(store(app, connection, message).await, Ok(true)),
        false => {
            connection.note_preference(message);
            false
        }
    };
    if message.method() == Some("logging/setLevel") {
        let links = listen_stream::links(app, connection);
        join_all(links.iter().map(|link| open_link::tell_level(connection, link))).await;
    }
    stored
}
