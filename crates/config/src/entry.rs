//! One entry of the servers: how a server is reached.

use std::path::Path;

use stayput_upstream::{Http, Stdio, Transport, misspelt};

use crate::{
    env_file,
    error::Problem,
    expand::escaped,
    spot::{Member, Read, Spot, Table},
};

#[derive(Clone, Copy)]
enum Kind {
    Stdio,
    Http,
    Sse,
}

const KINDS: [(&str, Kind); 5] = [
    ("stdio", Kind::Stdio),
    ("http", Kind::Http),
    ("streamable-http", Kind::Http),
    ("streamableHttp", Kind::Http),
    ("sse", Kind::Sse),
];

/// The longest name: it is part of paths, of the names of tools and of lines that people read.
const NAME_LIMIT: usize = 64;

/// Whether a server may be called so.
pub(crate) fn is_name(name: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    (1..=NAME_LIMIT).contains(&name.len())
        && name.bytes().all(word)
        && !name.bytes().all(|c| c == b'.')
}

/// Whether it is switched off. Then nothing else of it is looked at: its variables may not be set.
pub(crate) fn is_disabled(table: &Table<'_>) -> Read<bool> {
    Ok(table.read("disabled", Spot::boolean)?.unwrap_or(false))
}

/// How the server is reached; `None` if it is the gateway itself. `inherit` are variables of our
/// environment that a process gets too.
pub(crate) fn transport(
    member: &Member<'_>,
    table: &Table<'_>,
    inherit: &[String],
) -> Read<Option<Transport>> {
    // What was filled in before belongs to others.
    let environment = member.value.around.environment;
    environment.take_filled();
    let transport = match kind(member, table)? {
        Kind::Stdio => process(member, table, inherit)?.map(Transport::Stdio),
        Kind::Http => Some(Transport::Http(http(member, table)?)),
        Kind::Sse => Some(Transport::Sse(http(member, table)?)),
    };
    let filled = environment.take_filled().into_iter();
    Ok(transport.map(|transport| match transport {
        Transport::Stdio(stdio) => Transport::Stdio(filled.fold(stdio, Stdio::secret)),
        Transport::Http(http) => Transport::Http(filled.fold(http, Http::secret)),
        Transport::Sse(http) => Transport::Sse(filled.fold(http, Http::secret)),
    }))
}

fn process(member: &Member<'_>, table: &Table<'_>, inherit: &[String]) -> Read<Option<Stdio>> {
    let spot = needed(member, table, "command")?;
    let command = home(spot, &spot.template()?)?;
    let args = table.read("args", templates)?.unwrap_or_default();
    if is_ourselves(spot, &command, &args) {
        return Ok(None);
    }
    let stdio = Stdio::new(command).args(args);
    let stdio = spot.around.environment.inherited(stdio, inherit);
    let stdio = match spot.around.environment.elsewhere() {
        Some(folder) => {
            stdio.cwd(escaped(folder.to_str().ok_or_else(|| spot.wrong(Problem::Folder))?))
        }
        None => stdio,
    };
    Ok(Some(with_folder(with_variables(stdio, table)?, table)?))
}

fn kind(member: &Member<'_>, table: &Table<'_>) -> Read<Kind> {
    if let Some(kind) = table.get("type") {
        return kind.choice(&KINDS);
    }
    match (table.get("command"), table.get("url")) {
        (Some(_), Some(_)) => Err(member.wrong(Problem::TwoTransports)),
        (Some(_), None) => Ok(Kind::Stdio),
        (None, Some(_)) => Ok(Kind::Http),
        (None, None) => {
            // What belongs to other programs is left alone, but this may be a slip.
            let slip =
                table.iter().find_map(|it| Some((it, misspelt(&it.name, &["command", "url"])?)));
            Err(match slip {
                Some((slip, nearest)) => slip.wrong(Problem::UnknownKey { nearest }),
                None => member.wrong(Problem::NoTransport),
            })
        }
    }
}

fn needed<'t, 'a>(
    member: &Member<'_>,
    table: &'t Table<'a>,
    needs: &'static str,
) -> Read<&'t Spot<'a>> {
    table.get(needs).ok_or_else(|| member.wrong(Problem::Needs { needs }))
}

fn templates(spot: &Spot<'_>) -> Read<Vec<String>> {
    spot.list()?.iter().map(Spot::template).collect()
}

/// A path as a template, with the user's folder for `~/`.
fn home(spot: &Spot<'_>, path: &str) -> Read<String> {
    if !path.starts_with('~') {
        return Ok(path.to_owned());
    }
    let path = spot.around.at_home(path).map_err(|problem| spot.wrong(problem))?;
    Ok(path.to_string_lossy().into_owned())
}

/// A gateway behind a gateway helps nobody, and one that starts itself never ends.
fn is_ourselves(spot: &Spot<'_>, command: &str, args: &[String]) -> bool {
    let program = spot.around.environment.program().map(escaped);
    let is_program = |word: &str| {
        let stem = Path::new(word).file_stem().and_then(|stem| stem.to_str());
        stem == Some("stayput") || Some(word) == program.as_deref()
    };
    // Behind the name of a launcher, such as `uvx stayput stdio`, it is the same.
    let words: Vec<&str> =
        std::iter::once(command).chain(args.iter().map(String::as_str)).collect();
    words.windows(2).any(|two| is_program(two[0]) && matches!(two[1], "stdio" | "serve"))
}

/// With the variables of its file, and over them those of the entry itself.
fn with_variables(mut stdio: Stdio, table: &Table<'_>) -> Read<Stdio> {
    if let Some(spot) = table.get("envFile") {
        let wrong = |problem| spot.wrong(problem);
        let path = spot.text()?;
        let text = spot.around.read(&path).map_err(wrong)?;
        let variables = env_file::variables(&text).map_err(|line| {
            spot.around
                .path(&path)
                .map_or_else(wrong, |file| wrong(Problem::EnvLine { file, line }))
        })?;
        for (name, value) in variables {
            stdio = stdio.env(name, escaped(&value));
        }
    }
    if let Some(spot) = table.get("env") {
        for member in spot.table()?.iter() {
            stdio = stdio.env(member.name.as_ref(), member.value.template()?);
        }
    }
    Ok(stdio)
}

/// In its folder, from that of the configuration on: the gateway may be started from anywhere.
fn with_folder(stdio: Stdio, table: &Table<'_>) -> Read<Stdio> {
    let Some(spot) = table.get("cwd") else { return Ok(stdio) };
    let folder = home(spot, &spot.template()?)?;
    if folder.starts_with("${") || Path::new(&folder).is_absolute() {
        return Ok(stdio.cwd(folder));
    }
    let base = spot.around.folder.to_str().ok_or_else(|| spot.wrong(Problem::Folder))?;
    Ok(stdio.cwd(Path::new(&escaped(base)).join(folder)))
}

fn http(member: &Member<'_>, table: &Table<'_>) -> Read<Http> {
    let mut http = Http::new(needed(member, table, "url")?.template()?);
    if let Some(spot) = table.get("headers") {
        for member in spot.table()?.iter() {
            http = http.header(member.name.as_ref(), member.value.template()?);
        }
    }
    Ok(http)
}
