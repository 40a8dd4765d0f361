//! Transport of a server entry.

use std::path::Path;

use stayput_upstream::{Http, Stdio, TransportConfig, misspelt};

use crate::{
    client_file::{URL_KEYS, proxy_args_len},
    env_file,
    environment::escaped,
    error::Problem,
    server_options::ServerOptions,
    value::{ConfigObject, ConfigValue, Member, ReadResult},
};

#[derive(Clone, Copy)]
enum TransportKind {
    Stdio,
    Http,
    Sse,
}

/// Kinds by their names. The last two are those of opencode.
const TRANSPORT_KINDS: [(&str, TransportKind); 7] = [
    ("stdio", TransportKind::Stdio),
    ("http", TransportKind::Http),
    ("streamable-http", TransportKind::Http),
    ("streamableHttp", TransportKind::Http),
    ("sse", TransportKind::Sse),
    ("local", TransportKind::Stdio),
    ("remote", TransportKind::Http),
];

/// Longest name of a server. It is part of paths, tool names and log lines.
const MAX_NAME_LEN: usize = 64;

/// Returns whether a server may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    (1..=MAX_NAME_LEN).contains(&name.len())
        && name.bytes().all(word)
        && !name.bytes().all(|c| c == b'.')
}

/// Returns whether the server is disabled. The rest of the entry is not read then, because its variables may be
/// unset.
pub(crate) fn is_disabled(object: &ConfigObject<'_>) -> ReadResult<bool> {
    let disabled = object.read("disabled", ConfigValue::boolean)?.unwrap_or(false);
    // As in Codex and opencode.
    let enabled = object.read("enabled", ConfigValue::boolean)?.unwrap_or(true);
    Ok(disabled || !enabled)
}

/// Returns the transport of a server; `None` if the server is Stayput itself. A process also gets the inherited
/// variables.
pub(crate) fn transport(
    member: &Member<'_>,
    object: &ConfigObject<'_>,
    options: &ServerOptions,
) -> ReadResult<Option<TransportConfig>> {
    // Values that were filled in before belong to other servers.
    let environment = member.value.context.environment;
    environment.take_filled();
    let trust = options.trust.clone();
    let transport = match kind(member, object)? {
        TransportKind::Stdio => {
            process(member, object, &options.inherit)?.map(TransportConfig::Stdio)
        }
        TransportKind::Http => Some(TransportConfig::Http(http(member, object)?.trust(trust))),
        TransportKind::Sse => Some(TransportConfig::Sse(http(member, object)?.trust(trust))),
    };
    let filled = environment.take_filled().into_iter();
    Ok(transport.map(|transport| match transport {
        TransportConfig::Stdio(stdio) => TransportConfig::Stdio(filled.fold(stdio, Stdio::secret)),
        TransportConfig::Http(http) => TransportConfig::Http(filled.fold(http, Http::secret)),
        TransportConfig::Sse(http) => TransportConfig::Sse(filled.fold(http, Http::secret)),
    }))
}

fn process(
    member: &Member<'_>,
    object: &ConfigObject<'_>,
    inherit: &[String],
) -> ReadResult<Option<Stdio>> {
    let value = required(member, object, "command")?;
    let Some((command, args)) = command_line(value, object)? else { return Ok(None) };
    let stdio = Stdio::new(command).args(args);
    let stdio = value.context.environment.inherited(stdio, inherit);
    let stdio = match value.context.environment.child_cwd() {
        Some(folder) => {
            stdio.cwd(escaped(folder.to_str().ok_or_else(|| value.error(Problem::Folder))?))
        }
        None => stdio,
    };
    Ok(Some(with_folder(with_variables(stdio, object)?, object)?))
}

/// Returns the command and its arguments; `None` if the server is Stayput itself. Behind `stayput stdio --` is the
/// command that counts: `stayput install` wrote it there.
fn command_line(
    value: &ConfigValue<'_>,
    object: &ConfigObject<'_>,
) -> ReadResult<Option<(String, Vec<String>)>> {
    let mut args = object.read("args", templates)?.unwrap_or_default();
    // opencode has one list for both.
    let is_local = object.get("type").is_some_and(|it| it.text().is_ok_and(|it| it == "local"));
    let command = match is_local && value.is_array() {
        true => {
            args.splice(0..0, templates(value)?);
            let expected = "a list that begins with a program";
            (!args.is_empty()).then(|| args.remove(0)).ok_or_else(|| value.unexpected(expected))?
        }
        false => value.template()?,
    };
    let command = expand_home(value, &command)?;
    if is_stayput(value, &command, &args) {
        let behind = proxy_args_len(|at| args.get(at).cloned())
            .and_then(|proxy| args.get(proxy..)?.split_first())
            .map(|(inner, rest)| (inner.clone(), rest.to_vec()));
        return Ok(behind.filter(|(command, args)| !is_stayput(value, command, args)));
    }
    Ok(Some((command, args)))
}

/// Returns the URL of a server, under the name that the client has for it.
fn url<'t, 'a>(object: &'t ConfigObject<'a>) -> Option<&'t ConfigValue<'a>> {
    URL_KEYS.iter().find_map(|key| object.get(key))
}

fn kind(member: &Member<'_>, object: &ConfigObject<'_>) -> ReadResult<TransportKind> {
    if let Some(kind) = object.get("type") {
        return kind.choice(&TRANSPORT_KINDS);
    }
    match (object.get("command"), url(object)) {
        (Some(_), Some(_)) => Err(member.error(Problem::TwoTransports)),
        (Some(_), None) => Ok(TransportKind::Stdio),
        (None, Some(_)) => Ok(TransportKind::Http),
        (None, None) => {
            // Unknown keys belong to other programs, but this one may be a typo.
            let typo =
                object.iter().find_map(|it| Some((it, misspelt(&it.name, &["command", "url"])?)));
            Err(match typo {
                Some((typo, nearest)) => typo.error(Problem::UnknownKey { nearest }),
                None => member.error(Problem::NoTransport),
            })
        }
    }
}

fn required<'t, 'a>(
    member: &Member<'_>,
    object: &'t ConfigObject<'a>,
    needs: &'static str,
) -> ReadResult<&'t ConfigValue<'a>> {
    object.get(needs).ok_or_else(|| member.error(Problem::Needs { needs }))
}

fn templates(value: &ConfigValue<'_>) -> ReadResult<Vec<String>> {
    value.list()?.iter().map(ConfigValue::template).collect()
}

/// Replaces `~/` in a path template by the home folder.
fn expand_home(value: &ConfigValue<'_>, path: &str) -> ReadResult<String> {
    if !path.starts_with('~') {
        return Ok(path.to_owned());
    }
    let path = value.context.expand_home(path).map_err(|problem| value.error(problem))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Returns whether the command starts Stayput. A gateway that starts itself would never end.
fn is_stayput(value: &ConfigValue<'_>, command: &str, args: &[String]) -> bool {
    let program = value.context.environment.program().map(escaped);
    let is_program = |word: &str| {
        let stem = Path::new(word).file_stem().and_then(|stem| stem.to_str());
        stem == Some("stayput") || Some(word) == program.as_deref()
    };
    // Also find it after a launcher, such as `uvx stayput stdio`.
    let words: Vec<&str> =
        std::iter::once(command).chain(args.iter().map(String::as_str)).collect();
    words.windows(2).any(|two| is_program(two[0]) && matches!(two[1], "stdio" | "serve"))
}

/// Sets the variables of the environment file, then those of the entry.
fn with_variables(mut stdio: Stdio, object: &ConfigObject<'_>) -> ReadResult<Stdio> {
    if let Some(value) = object.get("envFile") {
        let error = |problem| value.error(problem);
        let path = value.text()?;
        let text = value.context.read(&path).map_err(error)?;
        let variables = env_file::parse(&text).map_err(|line| {
            value
                .context
                .path(&path)
                .map_or_else(error, |file| error(Problem::EnvLine { file, line }))
        })?;
        for (name, value) in variables {
            stdio = stdio.env(name, escaped(&value));
        }
    }
    for value in ["env", "environment"].into_iter().filter_map(|key| object.get(key)) {
        for member in value.object()?.iter() {
            stdio = stdio.env(member.name.as_ref(), member.value.template()?);
        }
    }
    Ok(stdio)
}

/// Sets the working directory, relative to the configuration file: the gateway may be started anywhere.
fn with_folder(stdio: Stdio, object: &ConfigObject<'_>) -> ReadResult<Stdio> {
    let Some(value) = object.get("cwd") else { return Ok(stdio) };
    let folder = expand_home(value, &value.template()?)?;
    if folder.starts_with("${") || Path::new(&folder).is_absolute() {
        return Ok(stdio.cwd(folder));
    }
    let base = value.context.folder.to_str().ok_or_else(|| value.error(Problem::Folder))?;
    Ok(stdio.cwd(Path::new(&escaped(base)).join(folder)))
}

fn http(member: &Member<'_>, object: &ConfigObject<'_>) -> ReadResult<Http> {
    let url = url(object).ok_or_else(|| member.error(Problem::Needs { needs: "url" }))?;
    let mut http = Http::new(url.template()?);
    if let Some(value) = object.get("bearer_token_env_var") {
        let name = value.text()?;
        let token = value.context.environment.variable(&name);
        let token = token.ok_or_else(|| value.error(Problem::Unset { name }))?;
        value.context.environment.record_filled(&token);
        http = http.header("Authorization", format!("Bearer {}", escaped(&token)));
    }
    for value in ["headers", "http_headers"].into_iter().filter_map(|key| object.get(key)) {
        for member in value.object()?.iter() {
            http = http.header(member.name.as_ref(), member.value.template()?);
        }
    }
    Ok(http)
}
