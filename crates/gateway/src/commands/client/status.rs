//! `stayput status`.

use http::Method;
use serde_json::{Value, json};

use super::{
    GatewayAddress, RemoteError, say,
    sessions::{all, ask, text},
};
use crate::{
    commands::cli::Filter,
    commands::terminal::{colours, memory, span, strong, table},
};

const HEADINGS: [&str; 7] =
    ["SERVER", "TRANSPORT", "STATE", "TOOLS", "PROCESSES", "MEMORY", "LAST ERROR"];

/// States of a session, in the order in which they are counted.
const STATES: [&str; 4] = ["busy", "connected", "idle", "away"];

/// Prints the process, its sessions and its servers.
///
/// # Errors
/// If the request fails, or the process is not ready; the error is a sentence for the user.
pub(crate) async fn run(way: &GatewayAddress, json: bool) -> Result<(), RemoteError> {
    let process = ask(way, Method::GET, "/admin/status").await?.json()?;
    let servers = ask(way, Method::GET, "/admin/servers").await?.json()?["servers"].take();
    let sessions = all(way, &Filter::default(), false).await?;
    let count = |state: &str| sessions.iter().filter(|it| it["state"] == state).count();
    let counts: Vec<(&str, usize)> = STATES.map(|state| (state, count(state))).to_vec();
    if json {
        let sessions: serde_json::Map<_, _> =
            counts.iter().map(|(state, count)| ((*state).to_owned(), json!(count))).collect();
        let whole = json!({ "process": process, "sessions": sessions, "servers": servers });
        say(&whole.to_string());
    } else {
        say(&format_process(&process, &counts, &servers));
        let servers = servers.as_array().map(Vec::as_slice).unwrap_or_default();
        if !servers.is_empty() {
            say(&format!("\n{}", table(&HEADINGS, &servers.iter().map(row).collect::<Vec<_>>())));
        }
    }
    match process["problem"].as_str() {
        Some(problem) => Err(RemoteError::Refused(problem.to_owned())),
        None => Ok(()),
    }
}

/// Names a process by its role: `stayput serve`, or the background process of an editor.
pub(super) fn role(process: &Value) -> &'static str {
    match process["role"] == "background" {
        true => "background process of `stayput stdio`",
        false => "`stayput serve`",
    }
}

fn format_process(process: &Value, counts: &[(&str, usize)], servers: &Value) -> String {
    let ready = if process["ready"] == true { "ready" } else { "not ready" };
    let uptime = span(process["uptime_seconds"].as_u64().unwrap_or_default());
    let mut lines = vec![format!(
        "stayput {}, {}, process {}, up {uptime}: {}",
        text(&process["version"]),
        role(process),
        text(&process["pid"]),
        strong(ready, colours())
    )];
    let mut line = |name: &str, value: String| lines.push(format!("  {name:<11} {value}"));
    if let Some(url) = process["url"].as_str() {
        line("listens on", url.to_owned());
    }
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let parts = counts.iter().filter(|(_, count)| *count > 0);
    let parts: Vec<String> = parts.map(|(state, count)| format!("{count} {state}")).collect();
    line(
        "sessions",
        match total {
            0 => "0".to_owned(),
            _ => format!("{total}: {}", parts.join(", ")),
        },
    );
    let bytes = servers.as_array().into_iter().flatten();
    let bytes: u64 = bytes.filter_map(|it| it["memory_bytes"].as_u64()).sum();
    line("processes", format!("{}, {}", text(&process["processes"]), memory(bytes)));
    line("in flight", text(&process["in_flight"]));
    for replica in process["replicas"].as_array().into_iter().flatten() {
        line("replica", format_replica(replica));
    }
    lines.join("\n")
}

/// Describes another gateway of the cluster, and what is wrong with it.
fn format_replica(it: &Value) -> String {
    let mut parts = vec![text(&it["address"])];
    if let Some(reason) = it["unreached"].as_str() {
        parts
            .push(format!("cannot be reached from here ({reason}): check its `cluster.advertise`"));
    }
    if let Some(reason) = it["unreached_by"].as_str() {
        parts.push(format!("cannot reach this one ({reason}): check `cluster.advertise`"));
    }
    let ahead = it["clock_ahead_ms"].as_i64().unwrap_or_default();
    if ahead.abs() > 1_000 {
        parts.push(format!("its clock differs by {ahead} ms"));
    }
    parts.join(", ")
}

fn row(it: &Value) -> Vec<String> {
    let used = it["memory_bytes"].as_u64().filter(|used| *used > 0);
    vec![
        text(&it["name"]),
        text(&it["transport"]),
        text(&it["state"]),
        text(&it["profile"]["tools"]),
        text(&it["processes"]),
        used.map(memory).unwrap_or_default(),
        text(&it["last_error"]["message"]),
    ]
}
