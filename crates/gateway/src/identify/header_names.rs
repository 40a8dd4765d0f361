//! The names of headers that every request is asked for, ready to be looked up.
//!
//! A name that is given as text is checked and hashed anew each time.

use http::HeaderName;
use stayput_wire::header as mcp;

/// What names the connection.
pub(crate) static SESSION_ID: HeaderName = HeaderName::from_static(mcp::SESSION_ID);

/// The version of the protocol.
pub(crate) static PROTOCOL_VERSION: HeaderName = HeaderName::from_static(mcp::PROTOCOL_VERSION);

/// The method, once more.
pub(crate) static METHOD: HeaderName = HeaderName::from_static(mcp::METHOD);

/// What names a session.
pub(crate) static STAYPUT_SESSION: HeaderName = HeaderName::from_static(mcp::STAYPUT_SESSION);
