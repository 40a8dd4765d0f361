//! Notifications of servers outside of calls: changed lists, updated resources, log messages.

use std::fmt;

use serde_json::{Value, json};
use stayput_upstream::{CallOptions, ClientCapabilities, Incoming, Listener, PooledLink};
use stayput_wire::{Era, Message};

use super::{Session, SessionLink};
use crate::{Error, Hub};

/// First notification of a modern subscription, which only confirms it.
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Notification of a server outside of calls.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerNotification {
    /// Method, such as `notifications/resources/updated`.
    pub method: String,
    /// Parameters, as in the protocol.
    pub params: Value,
}

/// Subscription to the notifications of a server outside of calls, see [`Session::listen`]. While it exists, the session is
/// in use: it does not expire by idling, and stays in this process.
pub struct Notifications {
    hub: Hub,
    listener: Listener,
    /// Taken by the drop.
    link: Option<PooledLink>,
    /// Keeps the session in use.
    _session_link: SessionLink,
    /// Resources to unsubscribe from at the end, at a legacy server.
    subscribed: Vec<String>,
}

impl Session {
    /// Subscribes to what a server says outside of calls: changed lists, log messages of a legacy server, and updates of
    /// these resources.
    ///
    /// # Errors
    /// If the server cannot be used, or refuses the subscription to a resource.
    pub async fn listen(&self, server: &str, resources: &[&str]) -> Result<Notifications, Error> {
        let scope = self.hub.scope_of(self.guard.clone())?;
        let hub = self.hub.clone();
        let listening = async {
            let session_link = SessionLink::new(&hub, &scope, server).await?;
            let link = session_link.open().await?;
            let failed = |source| Error::CallFailed { server: server.to_owned(), source };
            let interest = json!({
                "toolsListChanged": true,
                "promptsListChanged": true,
                "resourcesListChanged": true,
                "resourceSubscriptions": resources,
            });
            let listener = link.listen(&interest.to_string(), ClientCapabilities::default()).await;
            let listener = listener.map_err(failed)?;
            let is_legacy = link.initialize_result().era() == Era::Legacy;
            let mut subscribed = Vec::new();
            for uri in resources.iter().filter(|_| is_legacy) {
                subscribe(server, &link, uri).await?;
                subscribed.push((*uri).to_owned());
            }
            let (hub, link, _session_link) = (hub.clone(), Some(link), session_link);
            Ok(Notifications { hub, listener, link, _session_link, subscribed })
        };
        self.hub.inner.thread.in_runtime(listening).await
    }
}

async fn subscribe(server: &str, link: &PooledLink, uri: &str) -> Result<(), Error> {
    let failed = |source| Error::CallFailed { server: server.to_owned(), source };
    let (params, options) = (json!({ "uri": uri }).to_string(), CallOptions::default());
    let call = link.call("resources/subscribe", Some(&params), options).await;
    let answer = call.map_err(failed)?.answer().await.map_err(failed)?;
    match answer.error() {
        None => Ok(()),
        Some(raw) => Err(Error::ProtocolError {
            server: server.to_owned(),
            code: answer.code().map_or(0, |code| code.0),
            message: answer.error_message().unwrap_or_default(),
            raw: raw.into(),
        }),
    }
}

impl Notifications {
    /// Waits for the next notification. Returns `None` when the link has ended; the next call reports the loss, and
    /// [`Session::listen`] subscribes anew.
    pub async fn next(&mut self) -> Option<ServerNotification> {
        loop {
            match self.hub.inner.thread.in_runtime(self.listener.next()).await? {
                Incoming::Notification(text) => {
                    let Ok(message) = Message::parse(&text) else { continue };
                    let method = message.method().unwrap_or_default().to_owned();
                    if method == ACKNOWLEDGED {
                        continue;
                    }
                    let params = message.params();
                    let params = params.and_then(|raw| serde_json::from_str(raw.as_str()).ok());
                    return Some(ServerNotification { method, params: params.unwrap_or_default() });
                }
                Incoming::Answer(_) => return None,
                // A request is refused when it is dropped: another listener of the hub answers it.
                _ => {}
            }
        }
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        let thread = &self.hub.inner.thread;
        if !thread.is_own_process() {
            return;
        }
        let Some(link) = self.link.take().filter(|_| !self.subscribed.is_empty()) else { return };
        let subscribed = std::mem::take(&mut self.subscribed);
        thread.handle().spawn(async move {
            for uri in subscribed {
                let params = json!({ "uri": uri }).to_string();
                let call =
                    link.call("resources/unsubscribe", Some(&params), CallOptions::default());
                // If this fails, the server forgets the subscription with the session.
                if let Ok(call) = call.await {
                    let _ = call.answer().await;
                }
            }
        });
    }
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifications")
    }
}
