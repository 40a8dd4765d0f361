//! What servers say outside any call, to a client that listens.

use std::sync::Arc;

use stayput_upstream::{Held, Incoming, Listener, Place};

use crate::{
    connection::Connection,
    forward::{new_stream, say},
    house::House,
    stream::Stream,
};

/// What a modern server is asked to tell.
const INTEREST: &str =
    r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}"#;

/// The client listens from now on.
pub(crate) async fn open(house: &Arc<House>, connection: &Arc<Connection>) -> Arc<Stream> {
    let stream = new_stream(connection, true);
    connection.listen(stream.clone());
    resume(house, connection).await;
    stream
}

/// The client listens again, or for the first time: if there is a link, it is heard.
pub(crate) async fn resume(house: &Arc<House>, connection: &Arc<Connection>) {
    if let Some(server) = house.servers.get(&*connection.server) {
        let place = Place::new(connection.owner.clone(), connection.session);
        if let Some(link) = house.links.find(server, &place) {
            start(connection, &link).await;
        }
    }
}

/// Passes on what comes over this link, while the client listens.
pub(crate) async fn start(connection: &Arc<Connection>, link: &Held) {
    let Some(stream) = connection.ear() else { return };
    let declares = connection.declares;
    let Ok(listener) = link.listen(INTEREST, declares).await else { return };
    let hearing = hear(connection.clone(), stream, listener);
    let task = tokio::runtime::Handle::current().spawn(hearing);
    connection.hear(task.abort_handle());
}

async fn hear(connection: Arc<Connection>, stream: Arc<Stream>, mut listener: Listener) {
    let speaker = stream.clone();
    let abandoned = stream.abandoned();
    tokio::pin!(abandoned);
    loop {
        tokio::select! {
            incoming = listener.next() => match incoming {
                Some(Incoming::Answer(_)) | None => return,
                Some(incoming) => say(&connection, &speaker, incoming),
            },
            // Nobody reads any more: the server need not speak.
            () = &mut abandoned => return,
        }
    }
}
