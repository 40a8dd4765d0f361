//! Known keys of a server. A test compares them with the JSON schema in `docs`.

/// Keys of the server list. VS Code uses the second one.
pub const SERVERS: [&str; 2] = ["mcpServers", "servers"];

/// Key of the server list of Codex.
pub const CODEX_SERVERS: &str = "mcp_servers";

/// Key of the server list of opencode. Gemini CLI has other settings under it.
pub const OPENCODE_SERVERS: &str = "mcp";

/// Key of the projects of Claude Code, each with servers of its own.
pub const PROJECTS: &str = "projects";

/// Key of Stayput's own settings, in the file and in each server.
pub const STAYPUT: &str = "stayput";

/// Keys of a server. Other keys belong to other programs.
pub const ENTRY: &[&str] =
    &["type", "command", "args", "env", "envFile", "cwd", "url", "headers", "disabled", STAYPUT];

/// Keys of `stayput` in a server.
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
    "ca_file",
    "tools",
    "handles",
    "for",
];

/// Those of them that other programs have in an entry, too.
pub const ALSO_OF_OTHERS: &[&str] = &["timeout", "tools"];

/// Keys of `warm`.
pub const WARM: &[&str] = &["count", "max_age"];

/// Keys of `tools`.
pub const TOOLS: &[&str] = &["allow", "deny"];
