//! Every key that has a meaning, once. The schema in `docs` has the same ones, which a test sees to.

/// Where servers stand. The second is how VS Code calls it.
pub(super) const SERVERS: [&str; 2] = ["mcpServers", "servers"];

/// Our own settings: of the file, and of each server.
pub(super) const STAYPUT: &str = "stayput";

/// Of a server. Everything else in an entry belongs to other programs.
#[cfg(test)]
pub(super) const ENTRY: &[&str] =
    &["type", "command", "args", "env", "envFile", "cwd", "url", "headers", "disabled", STAYPUT];

/// Of `stayput` in a server.
pub(super) const SERVER: &[&str] = &[
    "isolation",
    "era",
    "timeout",
    "startup_timeout",
    "grace",
    "warm",
    "on_loss",
    "inherit",
    "delete_on_end",
    "tools",
    "handles",
];

/// Of `warm`.
pub(super) const WARM: &[&str] = &["count", "max_age"];

/// Of `tools`.
pub(super) const TOOLS: &[&str] = &["allow", "deny"];

/// Of `stayput` in the file.
pub(super) const FILE: &[&str] = &[
    "listen",
    "store",
    "allowed_origins",
    "allowed_hosts",
    "expiry",
    "limits",
    "identify",
    "hints",
    "unidentified",
    "session_tools",
];

/// Of `identify`.
pub(super) const IDENTIFY: &[&str] =
    &["argument", "meta", "header", "path", "connection", "cookie", "also"];

/// Of `expiry`.
pub(super) const EXPIRY: &[&str] = &["idle", "absolute"];

/// Of `limits`.
pub(super) const LIMITS: &[&str] =
    &["processes", "links", "memory", "per_owner", "body", "sessions_per_owner", "sockets"];

/// Of `per_owner`.
pub(super) const PER_OWNER: &[&str] = &["processes", "links"];
