//! Tests of the configuration file.

mod errors;
mod files;
mod mutants;
mod schema;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use stayput_config::Environment;
use stayput_core::{Expiry, Owner, SessionId, Timestamp};
use stayput_identify::CustomSource;
use stayput_process::Grace;
use stayput_upstream::{
    EraChoice, Expansion, Isolation, Launch, Options, ResolvedTransport, Scope,
};

use super::*;

const PROGRAM: &str = "/opt/bin/stayput";

fn environment() -> Environment {
    let variables = [("HOME", "/home/ann"), ("TOKEN", "s3cret"), ("ODD", "p${session.dir}w")];
    Environment::from_variables(&variables, PROGRAM)
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    let config = Config::parse(text, Path::new("/etc/mcp.json"), environment())?;
    match config.broken.first() {
        Some((_, error)) => Err(error.clone()),
        None => Ok(config),
    }
}

/// Parses the configuration of one server.
fn server(entry: &str) -> Config {
    parse(&format!(r#"{{"mcpServers": {{"it": {entry}}}}}"#)).unwrap()
}

fn options(stayput: &str) -> Options {
    let config = server(&format!(r#"{{"command": "x", "stayput": {stayput}}}"#));
    *config.servers[0].server.options()
}

fn expansion() -> Expansion {
    let session = SessionId::generate(Timestamp::from_millis(0));
    let scope = Scope::Session { owner: Owner::local(), session, branch: 0 };
    Expansion::new(&scope).with_session_dir("/s".into())
}

fn launch(entry: &str) -> Launch {
    match server(entry).servers[0].server.resolve(&expansion()).unwrap() {
        ResolvedTransport::Stdio(launch) => launch,
        other => panic!("{other:?}"),
    }
}

fn variable<'l>(launch: &'l Launch, name: &str) -> Option<&'l str> {
    let found = launch.env.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.to_str().unwrap())
}

#[test]
fn file_of_another_program_is_read() {
    let config = parse(
        r#"// mine
        {
            "$schema": "x", "inputs": [{"a": 1, "a": 2}],
            "mcpServers": {
                "files": { "command": "npx", "args": ["-y", "files"], "alwaysAllow": ["x"], },
                /* the "other" one */
                "web": { "url": "https://example.com/mcp", "headers": {"X-Key": "k"}, "timeout": 60 },
                "old": { "type": "sse", "url": "https://example.com/sse" },
                "off": { "command": "${NOT_SET}", "disabled": true },
            },
            "servers": { "code": { "type": "http", "url": "https://example.com/x" } },
        }"#,
    )
    .unwrap();
    let names: Vec<&str> = config.servers.iter().map(|it| it.server.name()).collect();
    assert_eq!(names, ["files", "web", "old", "code"]);
    let processes: Vec<bool> = config.servers.iter().map(|it| it.server.is_process()).collect();
    assert_eq!(processes, [true, false, false, false]);
    assert!(config.servers[2].server.is_sse() && !config.servers[3].server.is_sse());
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn missing_settings_have_defaults() {
    let config = server(r#"{"command": "x"}"#);
    assert_eq!(config.listen.to_string(), "127.0.0.1:7337");
    assert_eq!(config.store, "sqlite:/home/ann/.local/share/stayput/stayput.db");
    assert_eq!(config.expiry, Expiry::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.limits.body.each, 32 << 20);
    assert!(config.allowed_hosts.is_empty() && config.allowed_origins.is_empty());
    let it = &config.servers[0];
    assert_eq!(*it.server.options(), Options::default());
    assert_eq!((it.on_loss, &it.tools), (OnLoss::Error, &ToolFilter::default()));
}

#[test]
fn default_store_is_in_the_user_data_folder() {
    let text = r#"{"mcpServers": {}}"#;
    let origin = Path::new("/etc/mcp.json");
    let store = |variables: &[(&str, &str)]| {
        Config::parse(text, origin, Environment::from_variables(variables, PROGRAM)).unwrap().store
    };
    let home = ("HOME", "/home/ann");
    assert_eq!(store(&[home, ("XDG_DATA_HOME", "/d")]), "sqlite:/d/stayput/stayput.db");
    let relative = ("XDG_DATA_HOME", "d");
    assert_eq!(store(&[home, relative]), "sqlite:/home/ann/.local/share/stayput/stayput.db");
    assert_eq!(store(&[]), "sqlite:/etc/stayput.db");
}

#[test]
fn gateway_settings_are_read() {
    let config = parse(
        r#"{"mcpServers": {}, "stayput": {
            "listen": "localhost:80",
            "store": "sqlite:data/x.db",
            "allowed_origins": ["https://app.example.com"],
            "allowed_hosts": ["mcp.example.com:8443"],
            "expiry": {"idle": "never", "absolute": "7d"},
            "limits": {"processes": 5, "links": 6, "memory": "2GiB", "body": "1MiB",
                       "per_owner": {"processes": 2}, "sessions_per_owner": 7}
        }}"#,
    )
    .unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:80");
    assert_eq!(config.store, "sqlite:/etc/data/x.db");
    assert_eq!(config.allowed_origins, ["https://app.example.com"]);
    assert_eq!(config.allowed_hosts, ["mcp.example.com:8443"]);
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(config.expiry, Expiry { idle: None, absolute: Some(7 * day) });
    let limits = config.limits;
    assert_eq!((limits.links.processes, limits.links.links), (5, 6));
    assert_eq!(limits.links.memory, Some(2 << 30));
    assert_eq!((limits.links.per_owner.processes, limits.links.per_owner.links), (2, 2_000));
    assert_eq!((limits.body.each, limits.sessions.per_owner), (1 << 20, 7));
    assert!(config.warnings[0].contains("no server"));
}

#[test]
fn store_url_is_kept_unchanged() {
    for store in ["memory:", "postgres://u:p@h/d", "redis://h:1/0", "sqlite:/x/y.db"] {
        let text = format!(r#"{{"mcpServers": {{}}, "stayput": {{"store": "{store}"}}}}"#);
        assert_eq!(parse(&text).unwrap().store, store);
    }
    let text = r#"{"mcpServers": {}, "stayput": {"store": "sqlite:~/x.db"}}"#;
    assert_eq!(parse(text).unwrap().store, "sqlite:/home/ann/x.db");
}

#[test]
fn server_options_are_read() {
    let chosen = options(
        r#"{"isolation": "per-owner", "era": "legacy", "timeout": "2h", "startup_timeout": 90,
            "grace": "5s", "warm": 2}"#,
    );
    assert_eq!(chosen.isolation, Some(Isolation::PerOwner));
    assert_eq!(chosen.era, EraChoice::Legacy);
    let seconds = Duration::from_secs;
    assert_eq!((chosen.timeouts.call, chosen.timeouts.open), (seconds(7_200), seconds(90)));
    assert_eq!(chosen.timeouts.idle, seconds(7_200), "silence is allowed as long as the call");
    assert_eq!(chosen.grace, Grace { quit: seconds(5), term: seconds(5) });
    assert_eq!((chosen.warm.count, chosen.warm.max_age), (2, seconds(600)));
    assert_eq!(options(r#"{"timeout": "30s"}"#).timeouts.idle, seconds(3_600));
    let warm = options(r#"{"warm": {"count": 1, "max_age": "1m"}}"#).warm;
    assert_eq!((warm.count, warm.max_age), (1, seconds(60)));

    let config = server(
        r#"{"url": "http://127.0.0.1:1/", "stayput": {"on_loss": "restart", "delete_on_end": false,
            "tools": {"allow": ["a"], "deny": ["b"]}}}"#,
    );
    let it = &config.servers[0];
    assert_eq!(it.on_loss, OnLoss::Restart);
    assert_eq!(it.tools, ToolFilter { allow: Some(vec!["a".into()]), deny: vec!["b".into()] });
    assert!(!it.server.options().delete_on_end);
}

#[test]
fn identification_settings_are_read() {
    let own = server(r#"{"command": "x"}"#);
    assert_eq!(own.identify, Identify::default());
    assert_eq!(own.servers[0].handles, Handles::Auto);
    assert_eq!(own.identify.unidentified, UnidentifiedPolicy::Offer);
    assert!(own.identify.name_sources.connection && !own.identify.name_sources.cookie);
    assert_eq!(own.identify.hints.0.len(), 6);
    let config = parse(
        r#"{"mcpServers": {"it": {"command": "x", "stayput": {"handles": "never"}}}, "stayput": {
            "identify": {"meta": false, "cookie": true,
                "custom": ["header:X-Chat-Id", "meta:chat", "claim:conversation"]},
            "hints": ["vscode"], "unidentified": "mint", "session_tools": "all"}}"#,
    )
    .unwrap();
    let Identify { name_sources, hints, unidentified, session_tools } = config.settings.identify;
    assert!(!name_sources.meta && name_sources.cookie && name_sources.header);
    let header = CustomSource::Header(http::HeaderName::from_static("x-chat-id"));
    assert_eq!(
        name_sources.custom,
        [header, CustomSource::Meta("chat".into()), CustomSource::Claim("conversation".into())]
    );
    assert_eq!(hints.0, ["vscode"]);
    assert_eq!((unidentified, session_tools), (UnidentifiedPolicy::Mint, SessionTools::All));
    assert_eq!(config.servers[0].handles, Handles::Never);
}

#[test]
fn variables_are_expanded_everywhere() {
    let it = launch(
        r#"{"command": "${stayput}", "args": ["-t", "${env:TOKEN}", "${NO:-d}", "${session.dir}/p"],
            "env": {"A": "Bearer ${TOKEN}", "ODD": "${ODD}", "PLAIN": "$${X}"},
            "cwd": "${session.dir}", "stayput": {"inherit": ["CARGO_MANIFEST_DIR"]}}"#,
    );
    assert_eq!(it.command, PROGRAM);
    assert_eq!(it.args, ["-t", "s3cret", "d", "/s/p"]);
    assert_eq!(variable(&it, "A"), Some("Bearer s3cret"));
    assert_eq!(variable(&it, "ODD"), Some("p${session.dir}w"), "a value is not a template");
    assert_eq!(variable(&it, "PLAIN"), Some("${X}"));
    assert_eq!(it.cwd.as_deref(), Some(Path::new("/s")));
    assert!(variable(&it, "CARGO_MANIFEST_DIR").is_some(), "it is inherited");

    let config = server(r#"{"url": "https://h/${TOKEN}", "headers": {"X": "${TOKEN:-x}"}}"#);
    let ResolvedTransport::Http(endpoint) = config.servers[0].server.resolve(&expansion()).unwrap()
    else {
        panic!()
    };
    assert_eq!(endpoint.url.as_str(), "https://h/s3cret");
    assert_eq!(endpoint.headers["x"], "s3cret");
    let timeout = options(r#"{"timeout": "${NO:-5m}"}"#).timeouts.call;
    assert_eq!(timeout, Duration::from_secs(300));
}

#[test]
fn relative_folders_start_at_the_home_or_the_file() {
    let it = launch(r#"{"command": "~/bin/x", "cwd": "~/work"}"#);
    assert_eq!(it.command, "/home/ann/bin/x");
    assert_eq!(it.cwd.as_deref(), Some(Path::new("/home/ann/work")));
    let it = launch(r#"{"command": "./x", "cwd": "work"}"#);
    assert_eq!(it.command, "./x");
    assert_eq!(it.cwd.as_deref(), Some(Path::new("/etc/work")));
    let it = launch(r#"{"command": "~x", "cwd": "/abs"}"#);
    assert_eq!(it.command, "~x");
    assert_eq!(it.cwd.as_deref(), Some(Path::new("/abs")));
}

#[test]
fn entries_that_run_stayput_are_skipped() {
    for entry in [
        r#"{"command": "stayput", "args": ["stdio"], "env": {"X": "${NOT_SET}"}}"#,
        r#"{"command": "/usr/bin/stayput", "args": ["serve", "--listen", "x"]}"#,
        r#"{"command": "${stayput}", "args": ["stdio"]}"#,
        r#"{"command": "uvx", "args": ["stayput", "stdio"]}"#,
    ] {
        let config = server(entry);
        assert!(config.servers.is_empty(), "{entry}");
        assert!(config.warnings[0].contains("\"it\" is Stayput itself"), "{:?}", config.warnings);
    }
    let demo = server(r#"{"command": "${stayput}", "args": ["demo-server"]}"#);
    assert_eq!((demo.servers.len(), demo.warnings.len()), (1, 0));
}

/// R139.
#[test]
fn unusable_file_of_authorities_is_refused_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), "no certificate").unwrap();
    for (name, problem) in [("ca.pem", "no certificate in PEM form"), ("none.pem", "No such file")]
    {
        let text = serde_json::json!({ "mcpServers": { "it": {
            "url": "https://h/", "stayput": { "ca_file": name } } } });
        let origin = folder.path().join("mcp.json");
        let config = Config::parse(&text.to_string(), &origin, environment()).unwrap();
        let error = config.broken[0].1.to_string();
        assert!(error.contains("mcpServers.it.stayput.ca_file"), "{error}");
        assert!(error.contains(problem) && error.contains(name), "{error}");
    }
}

#[test]
fn option_without_effect_is_a_warning() {
    let url = server(r#"{"url": "http://h/", "stayput": {"inherit": ["X"], "grace": 1}}"#);
    assert_eq!(url.warnings.len(), 2, "{:?}", url.warnings);
    let process = server(r#"{"command": "x", "stayput": {"delete_on_end": true}}"#);
    assert!(process.warnings[0].contains("delete_on_end"), "{:?}", process.warnings);
}
