//! Every key of ours that is not of a server, once. The schema in `docs` has the same ones, which a test sees to.

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
