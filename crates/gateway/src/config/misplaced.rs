//! Settings of Stayput at the top level of the file, where they would have no effect.

use stayput_config::{ConfigObject, Problem, ReadResult};

/// Settings that no other program has at the top level of a file with servers.
const SETTINGS: [&str; 12] = [
    "auth",
    "listen",
    "expiry",
    "tls",
    "allowed_origins",
    "allowed_hosts",
    "public_url",
    "identify",
    "unidentified",
    "session_tools",
    "otlp",
    "seal",
];

/// Refuses the whole file: the author of an `auth` there believes that authentication is on.
///
/// # Errors
/// The error is at the key.
pub(super) fn check(file: &ConfigObject<'_>) -> ReadResult<()> {
    match file.iter().find(|member| SETTINGS.contains(&&*member.name)) {
        Some(member) => Err(member.error(Problem::Misplaced { place: "file" })),
        None => Ok(()),
    }
}
