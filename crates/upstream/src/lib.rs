//! Live, recoverable links to MCP servers.
