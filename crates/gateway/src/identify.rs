//! Who asks, and which session that leads to.

use std::sync::Arc;

use http::HeaderMap;
use stayput_core::{Agent, Handle, InUse, Key, Opened, Origin, Owner, Wish};
use stayput_upstream::Server;
use stayput_wire::{Era, Message, header as mcp};

use crate::{connection::Connection, house::House, reply, visit::Asked};

/// The owner of what a request does. Nobody says who they are yet.
pub(crate) fn owner(_headers: &HeaderMap) -> Owner {
    Owner::anonymous()
}

/// What a request brings along to say which session it means.
#[allow(dead_code, reason = "only the header is looked at yet")]
pub(crate) struct Claim<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) server: &'a Server,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) path_key: Option<&'a str>,
    pub(crate) message: &'a Message<'a>,
    pub(crate) connection: Option<&'a Arc<Connection>>,
}

/// The session that a request means.
pub(crate) enum Which {
    /// This session. `text`: the message without what only named the session, if anything had to be taken
    /// out. `given`: a handle minted for it that the answer gives out. `fleeting`: nothing named one, it
    /// ends with this call.
    Session {
        session: InUse,
        origin: Origin,
        text: Option<String>,
        given: Option<Handle>,
        fleeting: bool,
    },
    /// Nothing is run: this is the answer, a tool error or an error, as JSON-RPC text.
    Answer(String),
}

/// Which session a request means, by the header `Stayput-Session: key:NAME`.
pub(crate) async fn which(house: &Arc<House>, claim: Claim<'_>) -> Which {
    let id = claim.message.id().map_or("null", |id| id.as_str());
    let method = claim.message.method().unwrap_or_default();
    let refused =
        |sentence: &str| Which::Answer(reply::failure(Asked { id, method }, Era::Modern, sentence));
    let named = claim.headers.get(mcp::STAYPUT_SESSION).and_then(|name| name.to_str().ok());
    let named = named.and_then(|name| name.strip_prefix("key:"));
    let owner = claim.owner.clone();
    let (wish, fleeting) = match named.map(Key::named) {
        Some(Ok(key)) => (Wish::keyed(owner, Agent::default(), key), false),
        Some(Err(error)) => return refused(&error.to_string()),
        None if method == "tools/call" => {
            let sentence = "This server keeps state, and nothing says which session is meant. Nothing was \
                            done. Send the header `Stayput-Session: key:NAME`, with a name of your own for \
                            this conversation.";
            return refused(sentence);
        }
        None => (Wish::new(owner).provisional(), true),
    };
    match house.open(&wish).await {
        Ok(Opened { session, origin }) => {
            Which::Session { session, origin, text: None, given: None, fleeting }
        }
        Err(error) => refused(&error.to_string()),
    }
}
