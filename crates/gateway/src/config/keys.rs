//! All keys of the gateway's own objects, except those of servers. A test checks that the schema in `docs` has the same
//! ones.

/// Keys of the file's `stayput` object.
pub(super) const FILE: &[&str] = &[
    "listen",
    "tls",
    "store",
    "lease",
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
    "cluster",
    "data",
    "folders",
    "ui",
];

/// Keys of `cluster`.
pub(super) const CLUSTER: &[&str] = &["listen", "advertise", "key"];

/// Keys of `tls`.
pub(super) const TLS: &[&str] = &["cert", "key"];

/// Keys of `audit`.
pub(super) const AUDIT: &[&str] = &["to", "arguments"];

/// Keys of `ui`.
pub(super) const UI: &[&str] = &["show_arguments"];

/// Keys of `otlp`.
pub(super) const OTLP: &[&str] = &["url", "headers"];

/// Keys of `auth`.
pub(super) const AUTH: &[&str] = &["tokens", "tokens_file", "jwt", "proxy", "admin", "metrics"];

/// Keys of a token that is an object.
pub(super) const TOKEN: &[&str] = &["hash", "claims", "admin"];

/// Keys of `jwt`.
pub(super) const JWT: &[&str] = &["issuer", "audience", "jwks", "subject", "leeway"];

/// Keys of `proxy`.
pub(super) const PROXY: &[&str] = &["header", "from"];

/// Keys of `identify`.
pub(super) const IDENTIFY: &[&str] =
    &["argument", "meta", "header", "path", "connection", "cookie", "custom"];

/// Keys of `expiry`.
pub(super) const EXPIRY: &[&str] = &["idle", "absolute"];

/// Keys of `limits`.
pub(super) const LIMITS: &[&str] = &[
    "processes",
    "links",
    "memory",
    "wait",
    "per_owner",
    "sessions_per_owner",
    "calls_per_session",
    "body",
    "body_time",
    "bodies",
    "headers",
    "stall",
    "drain",
    "sockets",
    "sockets_per_address",
];

/// Keys of `per_owner`.
pub(super) const PER_OWNER: &[&str] = &["processes", "links", "bodies", "requests_per_second"];
