//! Header names that every request is checked for, as constants.
//!
//! A name that is passed as text is validated and hashed again on each lookup.

use http::HeaderName;
use stayput_wire::header as mcp;

/// Names the connection.
pub(crate) static MCP_SESSION_ID: HeaderName = HeaderName::from_static(mcp::MCP_SESSION_ID);

/// Protocol version.
pub(crate) static PROTOCOL_VERSION: HeaderName = HeaderName::from_static(mcp::PROTOCOL_VERSION);
