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
    "auth",
    "public_url",
    "audit",
    "otlp",
    "seal",
];

/// Of `audit`.
pub(super) const AUDIT: &[&str] = &["to", "arguments"];

/// Of `otlp`.
pub(super) const OTLP: &[&str] = &["url", "headers"];

/// Of `auth`.
pub(super) const AUTH: &[&str] = &["tokens", "tokens_file", "jwt", "proxy", "admin"];

/// Of a token that has more than a hash.
pub(super) const TOKEN: &[&str] = &["hash", "claims", "admin"];

/// Of `jwt`.
pub(super) const JWT: &[&str] = &["issuer", "audience", "jwks", "subject", "leeway"];

/// Of `proxy`.
pub(super) const PROXY: &[&str] = &["header", "from"];

/// Of `identify`.
pub(super) const IDENTIFY: &[&str] =
    &["argument", "meta", "header", "path", "connection", "cookie", "also"];

/// Of `expiry`.
pub(super) const EXPIRY: &[&str] = &["idle", "absolute"];

/// Of `limits`.
pub(super) const LIMITS: &[&str] = &[
    "processes",
    "links",
    "memory",
    "wait",
    "per_owner",
    "sessions_per_owner",
    "calls_per_session",
    "body",
    "headers",
    "stall",
    "drain",
    "sockets",
];

/// Of `per_owner`.
pub(super) const PER_OWNER: &[&str] = &["processes", "links", "requests_per_second"];
