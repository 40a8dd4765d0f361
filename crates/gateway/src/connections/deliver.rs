//! Delivery of messages from servers to a client's stream, under question ids of the connection.

use std::sync::Arc;

use bytes::Bytes;
use stayput_core::Topic;
use stayput_upstream::{Held, Incoming, LinkKey};
use stayput_wire::Message;

use crate::connections::{connection::Connection, event_stream::EventStream};

/// The link that a message came over.
#[derive(Clone, Copy)]
pub(crate) struct Over<'a> {
    pub(crate) key: &'a LinkKey,
    /// See [`Held::slot`].
    pub(crate) place: u64,
    /// Whether several clients may use it.
    pub(crate) shared: bool,
}

impl<'a> Over<'a> {
    pub(crate) fn link(link: &'a Held) -> Self {
        Self { key: link.key(), place: link.slot(), shared: link.is_shared() }
    }
}

/// A new stream of a connection on which one server speaks, or several; kept or not so that it can be taken up again.
pub(crate) fn new_stream(
    connection: &Connection,
    server: Option<Arc<str>>,
    keep: bool,
) -> Arc<EventStream> {
    let mut bytes = [0; 8];
    // Without randomness numbers could meet; the seal of an id still says whose it is.
    let _ = getrandom::fill(&mut bytes);
    let topic = Topic {
        owner: connection.owner.clone(),
        session: connection.session,
        // Stores have signed numbers.
        stream: u64::from_be_bytes(bytes) >> 1,
    };
    let stream = EventStream::new(topic, server);
    if keep {
        connection.streams.keep(&stream);
    }
    stream
}

/// Passes on what a server says or asks, as far as it is for this client; gives the number of a question.
pub(crate) fn say(
    connection: &Connection,
    over: Over<'_>,
    stream: &EventStream,
    incoming: Incoming,
) -> Option<u64> {
    match incoming {
        Incoming::Notification(text) => {
            if let Some(text) = passed(connection, over, text) {
                stream.push(text);
            }
        }
        Incoming::Request(asked) => {
            let text = asked.text().clone();
            let number = connection.ask(over.key, asked)?;
            stream.push(numbered(text, number));
            return Some(number);
        }
        _ => {}
    }
    None
}

/// A notification as the client gets it, if it is for this client.
fn passed(connection: &Connection, over: Over<'_>, text: Bytes) -> Option<Bytes> {
    let Ok(message) = Message::parse(&text) else { return Some(text) };
    match message.method() {
        Some("notifications/cancelled") => withdrawn(connection, over.key, &message),
        // All who share a link hear the same, whoever subscribed.
        Some("notifications/resources/updated") if over.shared => {
            let uri = message.params()?.find(&["uri"])?.text()?;
            connection.is_subscribed(over.place, &uri).then(|| text.clone())
        }
        _ => Some(text),
    }
}

/// A question under an id of ours: servers do not agree on theirs.
fn numbered(text: Bytes, number: u64) -> Bytes {
    let Ok(message) = Message::parse(&text) else { return text };
    let mut edits = message.edit();
    if let Some(id) = message.id() {
        edits.replace(id.raw(), &number.to_string());
    }
    edits.apply().map_or_else(|_| text.clone(), |edited| edited.into_owned().into())
}

/// A question that the server takes back is named by the id that the client knows. Who was not asked is not told.
fn withdrawn(connection: &Connection, link: &LinkKey, message: &Message<'_>) -> Option<Bytes> {
    let id = message.params().and_then(|params| params.find(&["requestId"]))?;
    let number = connection.withdraw(link, id.as_str())?;
    let mut edits = message.edit();
    edits.replace(id, &number.to_string());
    edits.apply().ok().map(|edited| edited.into_owned().into())
}
