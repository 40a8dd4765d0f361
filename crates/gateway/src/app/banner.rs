//! Lines that `stayput serve` logs when it listens: one per server with its state, then how clients reach them.

use std::{
    io::{self, IsTerminal as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::missing_program;
use crate::{config::ConfigError, state::AppState};

/// Logs the address, and the URLs of the servers. `broken` are the servers whose entry is invalid.
pub(super) fn log(
    app: &AppState,
    (scheme, address): (&str, SocketAddr),
    broken: &[(String, ConfigError)],
) {
    let listening = format!("{scheme}://{address}");
    tracing::info!(event = "listening", url = listening, "stayput listens on {listening}");
    let origin = client_origin(app, scheme, address);
    let mut usable = Vec::new();
    for (name, server) in app.servers.iter() {
        let url = format!("{origin}/mcp/{name}");
        if let Some(sentence) = missing_program::find(server) {
            let line = format!("  {name}: {url}, cannot start: {sentence}");
            tracing::warn!(event = "serving", server = &**name, url, "{line}");
        } else {
            tracing::info!(event = "serving", server = &**name, url, "  {name}: {url}");
            usable.push((&**name, url));
        }
    }
    for (name, error) in broken {
        tracing::warn!(event = "disabled", server = &**name, "  {name}: disabled: {error}");
    }
    let all = ("stayput", format!("{origin}/mcp"));
    let has_many = app.servers.len() > 1;
    if has_many {
        let (sentence, url) = ("all of them at once, tools named SERVER__TOOL", &all.1);
        tracing::info!(event = "serving", server = "all", url, "  {sentence}: {url}");
    }
    let Some(first) = usable.first() else { return };
    if app.identify.configured.name_sources.path {
        let url = &first.1;
        tracing::info!("  your own program: {url}/~NAME, a session for each NAME");
    }
    // Only for a person who reads the log as it is written.
    if io::stderr().is_terminal() {
        log_client_setup(if has_many { &all } else { first });
    }
}

/// Returns the beginning of the URLs for clients: `public_url`, or else the address. The address of all interfaces is none
/// that a client can connect to, so it is replaced by that of this machine.
fn client_origin(app: &AppState, scheme: &str, address: SocketAddr) -> String {
    if let Some(url) = &app.rules.public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

/// Logs how to add a URL to a client.
fn log_client_setup((name, url): &(&str, String)) {
    tracing::info!(
        "  in a client's mcpServers: \"{name}\": {{ \"type\": \"http\", \"url\": \"{url}\" }}"
    );
    tracing::info!("  Claude Code: claude mcp add --transport http {name} {url}");
}
