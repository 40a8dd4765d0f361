//! Server names that would collide with paths of the gateway.

use stayput_config::{ConfigObject, Problem, ReadResult, keys as common};

/// First segments of the gateway's own paths. The paths of a server can begin with its name, as in `/notes/mcp`.
const RESERVED: [&str; 7] = ["mcp", "sse", "ui", "admin", "healthz", "readyz", "metrics"];

/// Whether a name is reserved. Letter case does not count, because some proxies ignore it.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Refuses servers with a reserved name.
///
/// # Errors
/// The error is at the name of the first such server.
pub(super) fn check(file: &ConfigObject<'_>) -> ReadResult<()> {
    for list in common::SERVERS.into_iter().filter_map(|key| file.get(key)) {
        if let Some(member) = list.object()?.iter().find(|member| is_reserved(&member.name)) {
            let sentence = format!(
                "this name is a path of the gateway itself, like {}; rename the server",
                RESERVED.join(", ")
            );
            return Err(member.error(Problem::Other(sentence)));
        }
    }
    Ok(())
}
