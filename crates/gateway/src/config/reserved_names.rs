//! Server names that would collide with paths of the gateway.

use stayput_config::{Member, Problem, ReadResult};

/// First segments of the gateway's own paths. The paths of a server can begin with its name, as in `/notes/mcp`.
const RESERVED: [&str; 8] =
    ["mcp", "sse", "ui", "admin", "healthz", "readyz", "metrics", ".well-known"];

/// Whether a name is reserved. Letter case does not count, because some proxies ignore it.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Refuses a server with a reserved name.
///
/// # Errors
/// The error is at the name.
pub(super) fn check(member: &Member<'_>) -> ReadResult<()> {
    if !is_reserved(&member.name) {
        return Ok(());
    }
    let reserved = RESERVED.join(", ");
    let sentence =
        format!("this name is a path of the gateway itself, like {reserved}; rename the server");
    Err(member.error(Problem::Other(sentence)))
}
