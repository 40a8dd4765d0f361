//! Check of `Host` and `Origin`, against web pages that reach the gateway through a browser of this machine.

use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use stayput_wire::Code;

use crate::{
    reply::{self, Reply},
    state::RequestRules,
};

/// Refuses a foreign `Host` or `Origin`. Without this check, a web page in a browser on this machine could reach the
/// gateway through a domain name of its own (DNS rebinding).
pub(super) fn foreign(rules: &RequestRules, head: &Parts) -> Option<Response<Reply>> {
    fn text(value: &HeaderValue) -> &str {
        value.to_str().unwrap_or("?")
    }
    let host = head.headers.get(header::HOST).map(text).unwrap_or_default();
    // A request target in absolute form names the host, too.
    let hosts = [Some(host), head.uri.authority().map(http::uri::Authority::as_str)];
    let allowed =
        |host: &&str| is_local(host) || rules.allowed_hosts.iter().any(|allowed| allowed == host);
    if !hosts.iter().flatten().all(allowed) {
        let sentence = "this Host is not allowed; add it to `allowed_hosts`";
        return Some(reply::refusal(StatusCode::FORBIDDEN, None, Code::INVALID_REQUEST, sentence));
    }
    let allowed = |origin: &HeaderValue| {
        let origin = text(origin);
        let mut schemes = ["http://", "https://"].iter();
        let host = schemes.find_map(|scheme| origin.strip_prefix(scheme));
        host.is_some_and(is_local) || rules.allowed_origins.iter().any(|allowed| allowed == origin)
    };
    (!head.headers.get_all(header::ORIGIN).iter().all(allowed)).then(|| {
        let sentence = "this Origin is not allowed; add it to `allowed_origins`";
        reply::refusal(StatusCode::FORBIDDEN, None, Code::INVALID_REQUEST, sentence)
    })
}

/// Whether a `Host` is this machine, with any port.
pub(crate) fn is_local(host: &str) -> bool {
    let names = ["localhost", "127.0.0.1", "[::1]"];
    let Some(rest) = names.iter().find_map(|name| host.strip_prefix(name)) else { return false };
    // The rest may only be a port. Numbers are parsed with a sign, too, but a port has none.
    let is_port = |port: &str| !port.starts_with('+') && port.parse::<u16>().is_ok();
    rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)
}
