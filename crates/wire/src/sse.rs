//! Server-sent events, which carry several messages in one HTTP response.
//!
//! Follows the [WHATWG specification](https://html.spec.whatwg.org/multipage/server-sent-events.html), except that
//! data are kept as bytes. The message parser checks them.

mod decoder;
mod event;

pub use decoder::{Decoder, EventTooLarge};
pub use event::{Event, InvalidField};

/// Comment and empty line, which keep a stream alive.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// Name of events with a message, and of events without a name.
pub const MESSAGE: &str = "message";

/// Name of the first event of the 2024-11-05 transport, with the URL for messages.
pub const ENDPOINT: &str = "endpoint";
