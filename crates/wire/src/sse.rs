//! Server-sent events: how HTTP carries several messages in one answer.
//!
//! After the [WHATWG specification](https://html.spec.whatwg.org/multipage/server-sent-events.html),
//! but for the data of an event, which are kept as bytes: whoever reads them as a message checks them.

mod decoder;
mod event;

pub use decoder::{Decoder, EventTooLarge};
pub use event::{Event, InvalidField};

/// A comment and an empty line: tells everybody on the way that the stream lives, and nothing else.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// The name of an event that carries a message, and of one without a name.
pub const MESSAGE: &str = "message";

/// The name of the first event of the 2024-11-05 transport, which tells where to post to.
pub const ENDPOINT: &str = "endpoint";
