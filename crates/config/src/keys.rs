//! Every key of a server that has a meaning, once. The schema in `docs` has the same ones, which a test sees to.

/// Where servers stand. The second is how VS Code calls it.
pub const SERVERS: [&str; 2] = ["mcpServers", "servers"];

/// Our own settings: of the file, and of each server.
pub const STAYPUT: &str = "stayput";

/// Of a server. Everything else in an entry belongs to other programs.
pub const ENTRY: &[&str] =
    &["type", "command", "args", "env", "envFile", "cwd", "url", "headers", "disabled", STAYPUT];

/// Of `stayput` in a server.
pub const SERVER: &[&str] = &[
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
    "for",
];

/// Of `warm`.
pub const WARM: &[&str] = &["count", "max_age"];

/// Of `tools`.
pub const TOOLS: &[&str] = &["allow", "deny"];
