//! Server messages outside of calls, for clients that listen.

use std::{collections::HashSet, sync::Arc};

use stayput_core::Topic;
use stayput_upstream::{Incoming, LinkKey, LinkOwner, Listener, PooledLink};

use crate::{
    auth::Principal,
    cluster::StoredStream,
    connections::{
        connection::Connection,
        deliver::{SourceLink, deliver, new_stream},
        event_stream::EventStream,
        question_ids::QuestionIds,
    },
    messages::relay,
    state::AppState,
};

/// Notifications that a modern server is asked to send.
const INTEREST: &str =
    r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}"#;

/// Opens the listen stream of a client.
pub(crate) async fn open(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    principal: &Principal,
) -> Arc<EventStream> {
    let stream = new_stream(connection, connection.target.server().cloned(), true);
    connection.listen(stream.clone(), principal);
    resume(app, connection).await;
    stream
}

/// Finds a stream of a client that it continues: in memory, or in the store if the replica that had it has drained.
pub(crate) async fn find(
    app: &AppState,
    connection: &Connection,
    (topic, principal): (&Topic, &Principal),
) -> Option<Arc<EventStream>> {
    if let Some(stream) = connection.streams.get(topic.stream) {
        return Some(stream);
    }
    let stored = match app.cluster.as_ref()?.unread_events.take(topic).await {
        Ok(stored) => stored,
        Err(error) => {
            tracing::warn!("events that a client has not read could not be looked up: {error}");
            None
        }
    };
    let StoredStream { stream, listens } = stored?;
    connection.streams.keep(&stream);
    match listens {
        true => connection.listen(stream.clone(), principal),
        false => {
            stream.end();
            app.stream_cache.put(&stream);
        }
    }
    Some(stream)
}

/// Starts to forward messages from every existing link of a client, when it listens for the first time or again.
pub(crate) async fn resume(app: &Arc<AppState>, connection: &Arc<Connection>) {
    for link in links(app, connection) {
        start(app, connection, &link).await;
    }
    relay::read_all(app, connection).await;
}

/// Returns the existing links of all sessions that a connection uses.
pub(crate) fn links(app: &AppState, connection: &Connection) -> Vec<PooledLink> {
    let servers = app.servers.values().filter(|server| connection.target.has(server.name()));
    let servers: Vec<_> = servers.collect();
    let (mut known, mut links) = (HashSet::new(), Vec::new());
    for session in connection.sessions() {
        let place = LinkOwner::new(connection.owner.clone(), session);
        let found = servers.iter().filter_map(|server| app.links.find(server, &place));
        // Several sessions may share a link.
        links.extend(found.filter(|link| known.insert(link.key().clone())));
    }
    links
}

/// Forwards messages from a link that the client uses for the first time, or first in this generation. The client may
/// listen at another replica.
pub(crate) async fn start_first(app: &AppState, connection: &Arc<Connection>, link: &PooledLink) {
    if !connection.is_listening() {
        // The other replica then reads a stream here, which forwards from all links.
        return Box::pin(relay::announce(app, connection, link)).await;
    }
    // Each replica has a link of its own to a server by URL that several sessions share.
    if !connection.is_relayed() || relay::is_held(app, link) {
        start(app, connection, link).await;
    }
}

/// Whether the client listens, and the messages of this link are to be forwarded, but are not yet.
pub(crate) fn lacks(app: &AppState, connection: &Connection, link: &PooledLink) -> bool {
    connection.lacks_listener_for(link.key())
        && (!connection.is_relayed() || relay::is_held(app, link))
}

/// Forwards messages from this link, while the client listens.
pub(crate) async fn start(app: &AppState, connection: &Arc<Connection>, link: &PooledLink) {
    let Some(stream) = connection.listen_stream() else { return };
    let capabilities = connection.capabilities;
    let Ok(listener) = link.listen(INTEREST, capabilities).await else { return };
    let from = (link.key().clone(), link.entry_id(), link.is_shared());
    let to = (connection.clone(), app.question_ids.clone());
    let forward = forward_messages(to, from, stream, listener);
    let task = tokio::runtime::Handle::current().spawn(forward);
    connection.add_listen_task(link.key().clone(), task.abort_handle());
    // A configuration that was loaded in the meantime did not see this task when it removed servers.
    if let Some(newer) = app.newer() {
        newer.recheck_listener(connection);
    }
}

async fn forward_messages(
    (connection, ids): (Arc<Connection>, Arc<QuestionIds>),
    (key, place, shared): (LinkKey, u64, bool),
    stream: Arc<EventStream>,
    mut listener: Listener,
) {
    let speaker = stream.clone();
    let abandoned = stream.abandoned();
    tokio::pin!(abandoned);
    loop {
        tokio::select! {
            incoming = listener.next() => match incoming {
                Some(Incoming::Answer(_)) | None => return,
                Some(incoming) => {
                    speaker.room().await;
                    let source = SourceLink { key: &key, place, shared };
                    deliver(&connection, &ids, source, &speaker, incoming);
                }
            },
            // No client reads the stream any more, so the server need not send.
            () = &mut abandoned => return,
        }
    }
}
