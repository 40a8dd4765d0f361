//! `stayput sessions`.

use std::{collections::BTreeSet, io::IsTerminal as _, time::Duration};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{GatewayAddress, RemoteError, say, write};
use crate::commands::terminal::{colours, memory, plain, span, strong, table};
use crate::{
    admin::encoded,
    commands::cli::{End, Filter, SessionsArgs, SessionsCommand},
};

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of sessions per request.
const PAGE_SIZE: usize = 200;

/// Interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Escape sequence that clears the screen and moves the cursor to its first line.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// Number of characters of a whole id.
const ID_LENGTH: usize = 36;

const HEADINGS: [&str; 11] = [
    "ID",
    "OWNER",
    "KEY",
    "STATE",
    "SERVERS",
    "AGE",
    "IDLE",
    "CALLS",
    "PID",
    "MEMORY",
    "LAST TOOL",
];

/// Runs the subcommand and prints its result.
///
/// # Errors
/// [`RemoteError`] is a sentence for the user.
pub(crate) async fn run(gateway: &GatewayAddress, args: SessionsArgs) -> Result<(), RemoteError> {
    let (json, filter) = (args.at.json, args.filter);
    if args.what.is_some() && filter != Filter::default() {
        let sentence =
            "write the options that choose sessions behind the subcommand: `stayput sessions ls …`";
        return Err(RemoteError::Wrong(sentence.to_owned()));
    }
    match args.what.unwrap_or(SessionsCommand::Ls(filter)) {
        SessionsCommand::Ls(filter) if filter.watch => return watch(gateway, &filter, json).await,
        SessionsCommand::Ls(filter) => say(&list(gateway, &filter, json).await?),
        SessionsCommand::Show { id } => {
            let path = format!("/admin/sessions/{}", encoded(&id));
            let session = ask(gateway, Method::GET, &path).await?.json()?;
            say(&if json { session.to_string() } else { shown(&session, colours()) });
        }
        SessionsCommand::End(end) => return end_all(gateway, end, json).await,
    }
    Ok(())
}

/// Formats the sessions that match the filter.
async fn list(
    gateway: &GatewayAddress,
    filter: &Filter,
    json: bool,
) -> Result<String, RemoteError> {
    let (mut sessions, spares) = all_with_spares(gateway, filter, true).await?;
    let found = sessions.len();
    if !filter.all && filter.state.is_none() {
        sessions.retain(|it| it["state"] != "away");
    }
    let away = found - sessions.len();
    sessions.extend(spares.iter().map(spare_row));
    if json {
        return Ok(Value::from(sessions).to_string());
    }
    let mut text = listed(&sessions);
    if away > 0 {
        let are = if away == 1 { "is" } else { "are" };
        text += &format!(
            "\n{away} more {are} away, which means in the store only: --all lists them, too"
        );
    }
    Ok(text)
}

/// Lists the sessions again and again, until the gateway is gone or the program is ended.
async fn watch(gateway: &GatewayAddress, filter: &Filter, json: bool) -> Result<(), RemoteError> {
    let clears = !json && std::io::stdout().is_terminal();
    let mut every = tokio::time::interval(WATCH_INTERVAL);
    loop {
        every.tick().await;
        let text = list(gateway, filter, json).await?;
        let written = if clears { write(&format!("{CLEAR_SCREEN}{text}")) } else { write(&text) };
        // The reader of the output is gone.
        if written.is_err() {
            return Ok(());
        }
    }
}

pub(super) async fn ask(
    gateway: &GatewayAddress,
    method: Method,
    path: &str,
) -> Result<super::GatewayResponse, RemoteError> {
    gateway.ask((method, path), &[], Bytes::new(), REQUEST_TIMEOUT).await
}

/// Returns all sessions that match the filter, page by page.
pub(super) async fn all(
    gateway: &GatewayAddress,
    filter: &Filter,
    memory: bool,
) -> Result<Vec<Value>, RemoteError> {
    Ok(all_with_spares(gateway, filter, memory).await?.0)
}

/// Returns all sessions that match the filter, page by page, and the spare processes.
async fn all_with_spares(
    gateway: &GatewayAddress,
    filter: &Filter,
    memory: bool,
) -> Result<(Vec<Value>, Vec<Value>), RemoteError> {
    let mut query = format!("limit={PAGE_SIZE}&memory={memory}");
    let wanted = [("owner", &filter.owner), ("server", &filter.server), ("state", &filter.state)];
    for (name, value) in wanted {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    let (mut found, mut spares, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let path = format!("/admin/sessions?{query}{cursor}");
        let mut page = ask(gateway, Method::GET, &path).await?.json()?;
        if let Value::Array(sessions) = page["sessions"].take() {
            found.extend(sessions);
        }
        if let Value::Array(more) = page["spares"].take() {
            spares.extend(more);
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encoded(next)),
            None => return Ok((found, spares)),
        }
    }
}

/// Presents a spare process like a session: it has no id, and its state is `spare`.
fn spare_row(spare: &Value) -> Value {
    let link = json!({
        "server": spare["server"], "state": "spare", "pid": spare["pid"],
        "memory_bytes": spare["memory_bytes"], "age_seconds": spare["age_seconds"],
    });
    json!({
        "id": null, "state": "spare", "servers": [spare["server"]], "age_seconds": spare["age_seconds"],
        "links": [link],
    })
}

async fn end_all(gateway: &GatewayAddress, end: End, json: bool) -> Result<(), RemoteError> {
    let ids = if end.ids.is_empty() {
        let filter = Filter { owner: end.owner, server: end.server, ..Filter::default() };
        let found = all(gateway, &filter, false).await?;
        found.iter().map(|it| it["id"].as_str().unwrap_or_default().to_owned()).collect()
    } else {
        end.ids
    };
    let (mut ended, mut failed) = (Vec::new(), Vec::new());
    for id in ids {
        match end_one(gateway, &id).await {
            Ok(id) => {
                if !json {
                    say(&format!("ended {id}"));
                }
                ended.push(id);
            }
            Err(RemoteError::Refused(sentence)) => failed.push(format!("{id}: {sentence}")),
            Err(error) => return Err(error),
        }
    }
    if json {
        say(&json!({ "ended": ended, "failed": failed }).to_string());
    } else if ended.is_empty() && failed.is_empty() {
        say("there is no such session");
    }
    if failed.is_empty() { Ok(()) } else { Err(RemoteError::Refused(failed.join("; "))) }
}

/// Ends a session by its id, or by the first characters of it. Returns the id.
async fn end_one(gateway: &GatewayAddress, id: &str) -> Result<String, RemoteError> {
    let path = |id: &str| format!("/admin/sessions/{}", encoded(id));
    let id = match id.len() {
        ID_LENGTH => id.to_owned(),
        _ => text(&ask(gateway, Method::GET, &path(id)).await?.json()?["id"]),
    };
    ask(gateway, Method::DELETE, &path(&id)).await?.good()?;
    Ok(id)
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => plain(text).replace('\n', " "),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn listed(sessions: &[Value]) -> String {
    if sessions.is_empty() {
        return "there are no sessions".to_owned();
    }
    let row = |it: &Value| {
        let links = it["links"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pids = links.iter().map(|link| text(&link["pid"])).filter(|pid| !pid.is_empty());
        let used: u64 = links.iter().filter_map(|link| link["memory_bytes"].as_u64()).sum();
        let since = |name: &str| span(it[name].as_u64().unwrap_or_default());
        let is_spare = it["state"] == "spare";
        let key = match &it["key"] {
            Value::Null if is_spare => String::new(),
            Value::Null => format!("({})", text(&it["source"])),
            key => text(key),
        };
        let mut row = vec![text(&it["id"]), text(&it["owner"]), key, text(&it["state"])];
        let idle = if is_spare { String::new() } else { since("idle_seconds") };
        row.extend([text(&it["servers"]), since("age_seconds"), idle]);
        row.extend([text(&it["calls"]), pids.collect::<Vec<_>>().join(",")]);
        row.push(if used == 0 { String::new() } else { memory(used) });
        row.push(text(&it["last_tool"]));
        row
    };
    let mut rows: Vec<_> = sessions.iter().map(row).collect();
    let mut headings = HEADINGS.to_vec();
    let holders: BTreeSet<_> = sessions.iter().filter_map(|it| it["holder"].as_str()).collect();
    if holders.len() > 1 {
        headings.push("HOLDER");
        rows.iter_mut().zip(sessions).for_each(|(row, it)| row.push(text(&it["holder"])));
    }
    table(&headings, &rows)
}

fn shown(it: &Value, coloured: bool) -> String {
    let since = |name: &str| span(it[name].as_u64().unwrap_or_default());
    let mut lines = vec![format!("session {}", strong(&text(&it["id"]), coloured))];
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("  {name:<11} {value}"));
        }
    };
    line("owner", text(&it["owner"]));
    line("agent", text(&it["agent"]));
    line("key", text(&it["key"]));
    line("named by", text(&it["source"]));
    line("state", strong(&text(&it["state"]), coloured));
    if !it["ended"].is_null() {
        line("ended", format!("{} ({})", text(&it["ended"]["at"]), text(&it["ended"]["reason"])));
    }
    line("servers", text(&it["servers"]).replace(',', ", "));
    line("generation", text(&it["generation"]));
    line("created", format!("{} ({} ago)", text(&it["created"]), since("age_seconds")));
    line("last used", format!("{} ({} ago)", text(&it["last_used"]), since("idle_seconds")));
    line("expires", text(&it["expires"]));
    line("calls", format!("{}, {} failed", text(&it["calls"]), text(&it["failures"])));
    line("last tool", text(&it["last_tool"]));
    for link in it["links"].as_array().into_iter().flatten() {
        lines.extend(link_lines(link, coloured));
    }
    if !it["last_error"].is_null() {
        let (error, at) = (&it["last_error"], text(&it["last_error"]["at"]));
        lines.push(format!("last error, on {} at {at}", text(&error["server"])));
        lines.push(format!("  {}", text(&error["message"])));
        lines.extend(written(&error["stderr"]));
    }
    lines.join("\n")
}

fn link_lines(link: &Value, coloured: bool) -> Vec<String> {
    let mut parts = vec![strong(&text(&link["state"]), coloured)];
    if let Some(generation) = link["generation"].as_u64() {
        parts.push(format!("generation {generation}"));
    }
    if let Some(pid) = link["pid"].as_u64() {
        parts.push(format!("pid {pid}"));
    }
    parts.extend(link["memory_bytes"].as_u64().map(memory));
    parts.extend(link["age_seconds"].as_u64().map(|age| format!("up {}", span(age))));
    parts.push(format!("{} in flight", text(&link["in_flight"])));
    if link["shared_by"] != "session" {
        parts.push(format!("shared by {}", text(&link["shared_by"])));
    }
    let mut lines = vec![format!("link to {}: {}", text(&link["server"]), parts.join(", "))];
    if let Some(message) = link["trouble"]["message"].as_str() {
        lines.push(format!("  before: {}", plain(message)));
    }
    lines.extend(written(&link["stderr"]));
    lines
}

/// Formats the stderr of a process, line by line.
fn written(stderr: &Value) -> Vec<String> {
    let wrote = plain(stderr.as_str().unwrap_or_default());
    let lines: Vec<_> = wrote.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.len().saturating_sub(20);
    lines.iter().skip(last).map(|line| format!("  | {line}")).collect()
}
