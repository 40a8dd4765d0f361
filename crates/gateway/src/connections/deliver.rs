//! Delivery of server messages to a client's stream, with request ids of the connection.

use std::sync::Arc;

use bytes::Bytes;
use stayput_core::Topic;
use stayput_upstream::{Incoming, LinkKey, PooledLink};
use stayput_wire::Message;

use crate::connections::{
    connection::Connection, event_stream::EventStream, question_ids::QuestionIds,
};

/// Link that a message came over.
#[derive(Clone, Copy)]
pub(crate) struct SourceLink<'a> {
    pub(crate) key: &'a LinkKey,
    /// Pool entry of the link, see [`PooledLink::entry_id`].
    pub(crate) place: u64,
    /// Whether several clients may use the link.
    pub(crate) shared: bool,
}

impl<'a> SourceLink<'a> {
    pub(crate) fn link(link: &'a PooledLink) -> Self {
        Self { key: link.key(), place: link.entry_id(), shared: link.is_shared() }
    }
}

/// Creates a stream of a connection, for one server or for several. `keep` stores it for a resume.
pub(crate) fn new_stream(
    connection: &Connection,
    server: Option<Arc<str>>,
    keep: bool,
) -> Arc<EventStream> {
    let mut bytes = [0; 8];
    // Without randomness two numbers could be equal; the sealed event id still identifies the owner and the session.
    let _ = getrandom::fill(&mut bytes);
    let topic = Topic {
        owner: connection.owner.clone(),
        session: connection.session,
        // Stores use signed integers.
        stream: u64::from_be_bytes(bytes) >> 1,
    };
    let stream = EventStream::new(topic, server);
    if keep {
        connection.streams.keep(&stream);
    }
    stream
}

/// Delivers a notification or request of a server, if it is for this client. Returns the number of a request.
pub(crate) fn deliver(
    connection: &Connection,
    ids: &QuestionIds,
    source: SourceLink<'_>,
    stream: &EventStream,
    incoming: Incoming,
) -> Option<u64> {
    match incoming {
        Incoming::Notification(text) => {
            if let Some(text) = translate_notification(connection, source, text) {
                stream.push(text);
            }
        }
        Incoming::Request(asked) => {
            let text = asked.text().clone();
            let (number, id) = connection.ask(ids, source.key, asked)?;
            stream.push(replace_id(text, &id));
            return Some(number);
        }
        _ => {}
    }
    None
}

/// Returns a notification as the client gets it; `None` if it is not for this client.
fn translate_notification(
    connection: &Connection,
    source: SourceLink<'_>,
    text: Bytes,
) -> Option<Bytes> {
    let Ok(message) = Message::parse(&text) else { return Some(text) };
    match message.method() {
        Some("notifications/cancelled") => translate_cancellation(connection, source.key, &message),
        // All clients that share a link get the same notifications, whichever of them subscribed.
        Some("notifications/resources/updated") if source.shared => {
            let uri = message.params()?.find(&["uri"])?.text()?;
            connection.is_subscribed(source.place, &uri).then(|| text.clone())
        }
        _ => Some(text),
    }
}

/// Replaces the id of a server request by an id of the connection, because ids of different servers may be equal.
fn replace_id(text: Bytes, new: &str) -> Bytes {
    let Ok(message) = Message::parse(&text) else { return text };
    let mut edits = message.edit();
    if let Some(id) = message.id() {
        edits.replace(id.raw(), new);
    }
    edits.apply().map_or_else(|_| text.clone(), |edited| edited.into_owned().into())
}

/// Translates the id of a cancelled server request to the id that the client knows. `None` if this client never got
/// the request.
fn translate_cancellation(
    connection: &Connection,
    link: &LinkKey,
    message: &Message<'_>,
) -> Option<Bytes> {
    let id = message.params().and_then(|params| params.find(&["requestId"]))?;
    let known = connection.withdraw(link, id.as_str())?;
    let mut edits = message.edit();
    edits.replace(id, &known);
    edits.apply().ok().map(|edited| edited.into_owned().into())
}
