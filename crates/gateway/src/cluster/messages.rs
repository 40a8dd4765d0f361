//! Messages of servers outside of calls, from the replica that has the link to the one at which the client listens.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use stayput_core::{Handle, Holder};
use stayput_wire::{Message, sse};

use super::{Cluster, ForwardOutcome};
use crate::{
    auth::Principal,
    reply::{EventBody, Reply},
};

/// Start of the path of these messages. The id of the replica that asks follows. GET reads the messages of the links of a
/// connection, and POST says that the replica has links of it.
pub(crate) const MESSAGES: &str = "/cluster/messages/";

/// Longest time until another replica has begun to read the messages of a new link.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest event: a message, and the end of its line.
const MAX_EVENT: usize = Message::MAX_BYTES + 64;

/// Messages of the links of one connection at another replica, as they come.
pub(crate) struct RemoteMessages {
    body: Box<dyn EventBody>,
    decoder: sse::Decoder,
    /// Bytes that were received, but not decoded yet.
    left: Bytes,
}

impl RemoteMessages {
    /// Returns the next message; `None` at the end, or if the stream breaks off.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let mut rest = &self.left[..];
            let event = self.decoder.next_event(&mut rest);
            self.left = self.left.slice_ref(rest);
            match event {
                Some(Ok(event)) if event.name() == sse::MESSAGE => {
                    return Some(event.into_data().into());
                }
                Some(_) => continue,
                None => {}
            }
            let frame = self.body.frame().await?;
            // The error of a body cannot occur.
            self.left = frame.ok()?.into_data().unwrap_or_default();
        }
    }
}

/// The other replica was not reached, or did not answer.
#[derive(Debug)]
pub(crate) struct Unreached;

impl Cluster {
    /// Opens the stream of the messages for a connection at a replica that may have links of it. `None` if it has none.
    pub(crate) async fn messages(
        self: &Arc<Self>,
        from: &Holder,
        name: &Handle,
        principal: &Principal,
    ) -> Result<Option<RemoteMessages>, Unreached> {
        match self.send_about_links(from, (Method::GET, name), principal).await {
            ForwardOutcome::Answered(answer) => Ok(match answer.into_body() {
                Reply::Stream(body) => {
                    let (decoder, left) = (sse::Decoder::new(MAX_EVENT), Bytes::new());
                    Some(RemoteMessages { body, decoder, left })
                }
                _ => None,
            }),
            ForwardOutcome::NotHeld | ForwardOutcome::Rejected(_) => Ok(None),
            ForwardOutcome::NotSent(_) | ForwardOutcome::Unknown(_) => Err(Unreached),
        }
    }

    /// Tells the replica at which a client may listen that this one has links of its connection. Returns when that replica
    /// reads their messages, or need not, and whether the client listens there.
    pub(crate) async fn announce_links(
        self: &Arc<Self>,
        home: &Holder,
        name: &Handle,
        principal: &Principal,
    ) -> bool {
        let told = self.send_about_links(home, (Method::POST, name), principal);
        // A replica that does not answer has no working stream of the client either.
        match tokio::time::timeout(ANNOUNCE_TIMEOUT, told).await {
            Ok(ForwardOutcome::Answered(answer)) => answer.status() == StatusCode::OK,
            _ => false,
        }
    }

    async fn send_about_links(
        self: &Arc<Self>,
        to: &Holder,
        (method, name): (Method, &Handle),
        principal: &Principal,
    ) -> ForwardOutcome {
        let path = format!("{MESSAGES}{}", self.own().id);
        self.send_about(to, (&method, &path), (name, Bytes::new()), principal).await
    }
}
