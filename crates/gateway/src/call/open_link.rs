//! Link of a call: found in the pool, or opened once. A client that uses it for the first time is introduced to it.

use std::{sync::Arc, time::Duration};

use stayput_upstream::{CallOptions, ClientInfo, PooledLink, Server};

use super::owner::CallOwner;
use crate::{
    connections::connection::{ClientPreferences, Connection},
    messages::listen_stream,
    reply::RequestRef,
    state::AppState,
};

/// Timeout for the log level and subscriptions that a new link takes over from its client.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the link of a connection to a server for a request of the gateway itself. Opens the link if there is none.
pub(crate) async fn of_connection(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    server: &Server,
) -> Option<PooledLink> {
    let session = app.session(&connection.owner, connection.default_session()).await.ok()?;
    let owner = CallOwner::for_gateway(app, server, session);
    let request = RequestRef { id: "null", method: "" };
    find_or_open(&owner, Some(connection), || connection.client_info.clone(), request).await.ok()
}

/// Finds or opens the link of a call. A legacy connection that uses the link for the first time applies its preferences
/// and starts to listen there. `client_info` is the client information for a new link.
pub(super) async fn find_or_open(
    owner: &CallOwner,
    connection: Option<&Arc<Connection>>,
    client_info: impl FnOnce() -> ClientInfo,
    request: RequestRef<'_>,
) -> Result<PooledLink, String> {
    let (mut link, opened) = match owner.find_link() {
        Some(link) => (link, false),
        // Boxed, like every rare path: otherwise the future of every call would have its size.
        None => (Box::pin(owner.open_link(client_info())).await?, true),
    };
    if let Some(connection) = connection {
        let not_listening = listen_stream::lacks(&owner.app, connection, &link);
        if connection.note_link_use(link.entry_id(), link.generation()) || opened || not_listening {
            link = Box::pin(start_listening(&owner.app, connection, link, opened)).await?;
        }
    }
    owner.note_dependence(&link, request).await?;
    Ok(link)
}

/// Starts to listen on a link, after the preferences of the client are applied. Runs in its own task, so that it completes
/// exactly once even if the client disconnects.
async fn start_listening(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    link: PooledLink,
    opened: bool,
) -> Result<PooledLink, String> {
    let (app, connection) = (app.clone(), connection.clone());
    let task = tokio::runtime::Handle::current().spawn(async move {
        app.refresh_preferences(&connection).await;
        introduce(&connection, &link, opened).await;
        listen_stream::start_first(&app, &connection, &link).await;
        link
    });
    task.await.map_err(|_| "the gateway is stopping; try again in a moment".to_owned())
}

/// Applies to a new link the log level and subscriptions that the client requested before. Only the connection that
/// opened the link sets the log level.
async fn introduce(connection: &Arc<Connection>, link: &PooledLink, opened: bool) {
    let ClientPreferences { log_level, subscriptions } = connection.preferences();
    let level = log_level
        .filter(|_| opened && link.initialize_result().has("logging"))
        .map(|level| ("logging/setLevel", level));
    for uri in subscriptions.keys() {
        connection.subscribe(link.entry_id(), uri.clone());
    }
    let subscriptions = subscriptions.into_values().map(|it| ("resources/subscribe", it));
    let requests = async {
        for (method, params) in level.into_iter().chain(subscriptions) {
            if let Ok(call) = link.call(method, Some(&params), CallOptions::default()).await {
                let _ = call.answer().await;
            }
        }
    };
    let _ = tokio::time::timeout(INTRODUCTION_TIMEOUT, requests).await;
}

/// Sends the log level of the client to a server.
pub(crate) async fn tell_level(connection: &Connection, link: &PooledLink) {
    let options = CallOptions { limit: Some(INTRODUCTION_TIMEOUT), ..CallOptions::default() };
    if let Some(level) = connection.preferences().log_level
        && link.initialize_result().has("logging")
        && let Ok(call) = link.call("logging/setLevel", Some(&level), options).await
    {
        let _ = call.answer().await;
    }
}
