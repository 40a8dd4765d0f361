//! Messages of links at other replicas, for clients that listen here, and of links here for clients that listen elsewhere.
//!
//! A client listens at the replica that holds its default session. Its calls can use links at other replicas: those of
//! sessions that they name, and of processes that several sessions share. The replica where the client listens reads the
//! messages of such links as a client would, by a GET.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use stayput_core::Holder;
use stayput_upstream::{PooledLink, Server};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};

use crate::{
    auth::{Claims, Principal},
    cluster::Cluster,
    connections::{
        connection::{Connection, RelayTask},
        event_stream::{EventStream, StreamReader},
    },
    messages::listen_stream,
    reply::SessionName,
    state::AppState,
};

/// Longest time that a client waits for its stream, or a call for its link, until another replica has answered.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Pause before a replica is asked again, after its stream has ended or it was not reached.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Begins to read the messages of links at all other replicas, for a client that listens here.
pub(super) async fn read_all(app: &AppState, connection: &Arc<Connection>) {
    let Some(cluster) = &app.cluster else { return };
    let mut replicas = cluster.live_peers();
    replicas.retain(|replica| !connection.has_relay(replica.id));
    join_all(replicas.into_iter().map(|replica| read(cluster, connection, replica))).await;
}

/// Begins to read the messages of links at one replica, and waits for its first answer.
async fn read(cluster: &Arc<Cluster>, connection: &Arc<Connection>, replica: Holder) {
    let Some((stream, _)) = connection.own_stream() else { return };
    let (first, answered) = oneshot::channel();
    let (id, read) = (replica.id, stream.clone());
    let claims_changed = Arc::new(Notify::new());
    let relay = Relay {
        cluster: cluster.clone(),
        connection: connection.clone(),
        replica,
        claims_changed: claims_changed.clone(),
    };
    let task = Handle::current().spawn(async move {
        tokio::select! {
            () = relay.run(&stream, first) => {}
            () = stream.abandoned() => {}
        }
    });
    let task = task.abort_handle();
    connection.add_relay(&read, RelayTask { replica: id, task, claims_changed });
    let _ = tokio::time::timeout(FIRST_ANSWER, answered).await;
}

/// Reader of the messages of one connection at one replica.
struct Relay {
    cluster: Arc<Cluster>,
    connection: Arc<Connection>,
    replica: Holder,
    /// Signalled when the client has other claims.
    claims_changed: Arc<Notify>,
}

impl Relay {
    /// Passes messages on to `stream` until the replica has no links of the connection, or is gone. `first` is dropped with its
    /// first answer.
    async fn run(self, stream: &Arc<EventStream>, first: oneshot::Sender<()>) {
        let mut first = Some(first);
        // When the stream has ended, another replica may be the one that reads.
        while let Some((_, principal)) =
            self.connection.own_stream().filter(|(own, _)| Arc::ptr_eq(own, stream))
        {
            let name = self.connection.name();
            let messages = self.cluster.messages(&self.replica, name, &principal).await;
            drop(first.take());
            match messages {
                Ok(Some(mut messages)) => loop {
                    tokio::select! {
                        text = messages.next() => {
                            let Some(text) = text else { break };
                            stream.room().await;
                            stream.push(text);
                        }
                        // The replica keeps the messages until it is asked with the new claims.
                        () = self.claims_changed.notified() => break,
                    }
                },
                Ok(None) => return,
                Err(_) if !self.cluster.live_peers().contains(&self.replica) => return,
                Err(_) => {}
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Whether this replica alone has a link: every replica has links of its own to a server by URL that several sessions share.
pub(super) fn is_held(app: &AppState, link: &PooledLink) -> bool {
    let server = app.servers.get(link.key().server());
    !link.is_shared() || server.is_some_and(Server::is_process)
}

/// Tells the replica at which a client may listen of a link here. Returns when it reads the messages of the link. Nothing is
/// told if the default session of the client is held here: the client would listen here.
pub(super) async fn announce(app: &AppState, connection: &Connection, link: &PooledLink) {
    let Some(cluster) = app.cluster.as_ref().filter(|_| is_held(app, link)) else { return };
    let session = connection.default_session();
    if app.sessions.get_held(session).is_some() || connection.only_stream().is_some() {
        return;
    }
    let principal = Principal::forwarded(connection.owner.clone(), Claims::default(), false);
    let mut told = None;
    for asks_store in [false, true] {
        let home = match asks_store {
            false => app.cached_holder(&SessionName::Id(session)),
            // If the store cannot be reached, the messages of this link are lost until the client listens again.
            true => app.sessions.find_holder(session).await.ok().flatten(),
        };
        let is_new = |it: &Holder| {
            it.id != cluster.own().id && !it.address.is_empty() && told != Some(it.id)
        };
        let Some(home) = home.filter(is_new) else { continue };
        if cluster.announce_links(&home, connection.name(), &principal).await {
            return;
        }
        told = Some(home.id);
    }
}

/// Begins to read the messages of links at a replica, if the client of the connection listens here. Returns whether it does.
pub(crate) async fn read_announced(
    app: &AppState,
    connection: &Arc<Connection>,
    replica: Holder,
) -> bool {
    let listens = connection.own_stream().is_some();
    if let Some(cluster) = app.cluster.as_ref().filter(|_| listens) {
        read(cluster, connection, replica).await;
    }
    listens
}

/// Reads the messages of the links here for another replica, where the client listens. `None` if there are no links, or if the
/// client would listen here.
pub(crate) async fn open_for_replica(
    app: &AppState,
    connection: &Arc<Connection>,
    principal: &Principal,
) -> Option<StreamReader> {
    let is_home = app.sessions.get_held(connection.default_session()).is_some();
    let mut links = listen_stream::links(app, connection);
    links.retain(|link| is_held(app, link));
    if is_home || links.is_empty() || connection.only_stream().is_some() {
        return None;
    }
    let (stream, is_new) = connection.listen_for_replica(principal);
    let reader = stream.read_all(String::new());
    for link in links {
        if is_new || !connection.has_listener_for(link.key()) {
            listen_stream::start(app, connection, &link).await;
        }
    }
    // The claims may be others than when a link was first used.
    app.recheck_listener(connection);
    Some(reader)
}
