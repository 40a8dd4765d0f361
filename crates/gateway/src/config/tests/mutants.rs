//! Mutation tests: the program and the schema refuse the same files.

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use super::*;

/// File that contains every key, each with a valid value.
fn whole() -> Value {
    let hash = format!("sha256:{}", "0".repeat(64));
    json!({
        "$schema": "x",
        "mcpServers": {
            "files": {
                "type": "stdio", "command": "x", "args": ["a", "b"], "env": {"A": "1", "B": "2"},
                "cwd": "/x", "disabled": false,
                "stayput": {
                    "isolation": "per-session", "era": "legacy", "timeout": "10m",
                    "startup_timeout": 120, "grace": "5s", "warm": {"count": 1, "max_age": "5m"},
                    "on_loss": "restart", "inherit": ["A"], "handles": "always",
                    "tools": {"allow": ["a"], "deny": ["b"]}, "for": {"team": ["ops"], "sub": "ann"},
                },
            },
            "web": {
                "url": "https://h/x", "headers": {"A": "1"}, "unknown": {"a": [1]},
                "stayput": {"delete_on_end": true},
            },
        },
        "servers": {"code": {"type": "http", "url": "https://h/y"}},
        "stayput": {
            "listen": "127.0.0.1:1", "store": "memory:", "lease": "15s", "public_url": "https://h",
            "allowed_origins": ["https://a"], "allowed_hosts": ["a"],
            "expiry": {"idle": "never", "absolute": 60}, "ui": {"show_arguments": true},
            "limits": {
                "processes": 1, "links": 2, "memory": "2GiB", "wait": "5s", "body": 1000,
                "per_owner": {"processes": 1, "links": 2, "bodies": "2MiB", "requests_per_second": 5},
                "body_time": "1m", "bodies": "4MiB", "sockets_per_address": 2,
                "sessions_per_owner": 3, "calls_per_session": 6, "headers": "8KiB", "stall": "5s",
                "drain": "1m", "sockets": 4,
            },
            "identify": {
                "argument": true, "meta": true, "header": true, "path": true, "connection": true,
                "cookie": false, "custom": ["header:A"],
            },
            "hints": ["vscode", "otel"], "unidentified": "mint", "session_tools": "all",
            "auth": {
                "tokens": {"ann": {"hash": hash, "claims": {"a": 1}, "admin": true}},
                "jwt": {
                    "issuer": "https://i", "audience": ["a"], "jwks": "https://i/k",
                    "subject": "s", "leeway": "5s",
                },
                "proxy": {"header": "A", "from": ["10.0.0.0/8"]},
                "admin": {"team": ["ops"], "sub": "ann"}, "metrics": "public",
            },
            "audit": {"to": "stderr", "arguments": true},
            "otlp": {"url": "https://h/v1/traces", "headers": {"A": "1"}},
            "seal": ["0".repeat(64)], "data": "/var/lib/stayput",
            "folders": "/mnt/stayput",
            "cluster": {
                "listen": "127.0.0.1:2", "advertise": "http://h:2", "key": "k".repeat(32),
            },
        },
    })
}

/// Mutation of a file.
#[derive(Clone, Debug)]
enum Mutation {
    /// Renames a key.
    Rename(String),
    /// Removes a key.
    Remove,
    /// Adds a key next to it.
    Add(String, Value),
    /// Replaces a value. A string is not replaced by another string, because a schema cannot check the meaning of a
    /// string.
    Replace(Value),
}

/// Collects all places in a file, as JSON pointers.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => {
            // No name here contains `~` or `/`, which a pointer would have to escape.
            members.iter().map(|(name, value)| (format!("{at}/{name}"), value)).collect()
        }
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(n, value)| (format!("{at}/{n}"), value)).collect()
        }
        _ => Vec::new(),
    };
    for (at, value) in inner {
        all.push(at.clone());
        places(value, &at, all);
    }
}

fn mutate(file: &mut Value, place: &str, mutation: Mutation) {
    let (outer, name) = place.rsplit_once('/').unwrap();
    match (file.pointer_mut(outer).unwrap(), mutation) {
        (Value::Object(members), Mutation::Rename(new)) => {
            if let Some(value) = members.remove(name) {
                members.insert(new, value);
            }
        }
        (Value::Object(members), Mutation::Remove) => {
            members.remove(name);
        }
        (Value::Object(members), Mutation::Add(new, value)) => {
            members.insert(new, value);
        }
        (Value::Object(members), Mutation::Replace(value)) => replace(&mut members[name], value),
        (Value::Array(elements), harm) => {
            let at: usize = name.parse().unwrap();
            match harm {
                Mutation::Replace(value) => replace(&mut elements[at], value),
                _ => drop(elements.remove(at)),
            }
        }
        _ => {}
    }
}

fn replace(old: &mut Value, new: Value) {
    if !(old.is_string() && new.is_string()) {
        *old = new;
    }
}

/// Values of each kind, and edge cases.
fn all_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("x"),
        json!("0s"),
        json!("5m"),
        json!("2GiB"),
        json!("never"),
        json!([]),
        json!({}),
        json!([1]),
        json!(["x"]),
        json!({"x": 1}),
        json!({"x": "y"}),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    proptest::sample::select(all_values())
}

/// Generates names that are no known key.
fn names() -> impl Strategy<Value = String> {
    "[a-z]{3}_[a-z]{3}".prop_map(|name| format!("{name}_x"))
}

fn mutations() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        names().prop_map(Mutation::Rename),
        Just(Mutation::Remove),
        (names(), values()).prop_map(|(name, value)| Mutation::Add(name, value)),
        values().prop_map(Mutation::Replace),
    ]
}

/// Whether an error is beyond a schema: about the meaning of a string, about a relation between distant places, or
/// inside of a disabled server, which the program does not read.
fn is_beyond_schema(file: &Value, error: &str) -> bool {
    let beyond = [
        "no client could authenticate",
        "this must be an address",
        "the URL of a store begins",
        "this must be an origin",
        "this must be a host",
        "\"header:NAME\"",
        "the name of a header",
        "this must be a hash of a token",
        "this must be an address or a network",
        "this must be https",
        "cannot be used",
        "the command is empty",
        "the name of",
        "needs \"",
        "it has both",
        "also that of another name",
        "unless there is a",
        "no client has claims",
        "an amount from",
        "a time of a second or more",
        "a time from",
        "a sealing key has",
        "a cluster key has",
    ];
    let disabled = file["mcpServers"]["files"]["disabled"] == true;
    disabled || beyond.iter().any(|it| error.contains(it))
}

/// Compares the verdicts of the program and the schema. An error contains both.
fn agree(file: &Value) -> Result<(), String> {
    let text = file.to_string();
    match (parse(&text), schema::validate(&text)) {
        (Ok(_), Ok(())) | (Err(_), Err(_)) => Ok(()),
        (Err(error), Ok(())) if is_beyond_schema(file, &error.to_string()) => Ok(()),
        (Err(error), Ok(())) => Err(format!("the program alone refuses it: {error}\n{text}")),
        (Ok(_), Err(_)) if is_beyond_schema(file, "") => Ok(()),
        (Ok(_), Err(error)) => Err(format!("the schema alone refuses it: {error}\n{text}")),
    }
}

/// Applies each mutation at each place: the program and the schema refuse the same files.
#[test]
fn program_and_schema_agree_on_every_single_mutation() {
    let (file, mut all) = (whole(), Vec::new());
    places(&file, "", &mut all);
    let mut mutations = vec![Mutation::Rename("abc_def_x".to_owned()), Mutation::Remove];
    mutations.extend(all_values().into_iter().map(Mutation::Replace));
    mutations.extend(all_values().into_iter().map(|it| Mutation::Add("abc_def_x".to_owned(), it)));
    let (mut refused, mut count, mut problems) = (0, 0, Vec::new());
    for place in &all {
        for how in &mutations {
            let mut file = file.clone();
            mutate(&mut file, place, how.clone());
            problems.extend(agree(&file).err().map(|it| format!("{place} {how:?}: {it}")));
            refused += usize::from(parse(&file.to_string()).is_err());
            count += 1;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 3_000 && refused > count / 3, "{refused} of {count}");
}

#[test]
fn file_with_every_key_is_valid() {
    let text = whole().to_string();
    parse(&text).unwrap();
    schema::validate(&text).unwrap();
    let keys: Vec<&str> = [
        common::ENTRY,
        common::SERVER,
        common::WARM,
        common::TOOLS,
        keys::FILE,
        keys::EXPIRY,
        keys::LIMITS,
        keys::PER_OWNER,
        keys::IDENTIFY,
        keys::AUTH,
        keys::TOKEN,
        keys::JWT,
        keys::PROXY,
        keys::AUDIT,
        keys::OTLP,
        keys::CLUSTER,
        keys::UI,
    ]
    .concat();
    for key in keys {
        // The values of these keys are names of files.
        let there = text.contains(&format!("\"{key}\":"))
            || ["envFile", "tokens_file", "tls", "ca_file"].contains(&key);
        assert!(there, "{key} is not harmed");
    }
}

proptest! {
    /// The program and the schema refuse the same files.
    #[test]
    fn program_and_schema_agree_on_random_mutations(
        at in any::<Index>(), first in mutations(), again in proptest::option::of((any::<Index>(), mutations())),
    ) {
        let mut file = whole();
        for (at, how) in std::iter::once((at, first)).chain(again) {
            let mut all = Vec::new();
            places(&file, "", &mut all);
            let place: &String = at.get(&all);
            mutate(&mut file, place, how);
        }
        let validate = agree(&file);
        prop_assert!(validate.is_ok(), "{}", validate.unwrap_err());
    }

    /// An error about a misspelt key names its place and suggests the right key.
    #[test]
    fn misspelt_key_error_names_its_place(at in any::<Index>(), letter in any::<Index>(), lines in 1..5_usize) {
        let tables: [(&str, &[&'static str]); 12] = [
            ("mcpServers.it.stayput", common::SERVER),
            ("mcpServers.it.stayput.warm", common::WARM),
            ("mcpServers.it.stayput.tools", common::TOOLS),
            ("stayput", keys::FILE),
            ("stayput.expiry", keys::EXPIRY),
            ("stayput.limits", keys::LIMITS),
            ("stayput.limits.per_owner", keys::PER_OWNER),
            ("stayput.identify", keys::IDENTIFY),
            ("stayput.auth", keys::AUTH),
            ("stayput.auth.tokens.ann", keys::TOKEN),
            ("stayput.auth.jwt", keys::JWT),
            ("stayput.auth.proxy", keys::PROXY),
        ];
        let all: Vec<(&str, &str)> = tables
            .iter()
            .flat_map(|(table, keys)| keys.iter().map(move |key| (*table, *key)))
            .collect();
        let (table, key) = *at.get(&all);
        // Misspells the key by doubling a letter.
        let twice = letter.index(key.len());
        let wrong = format!("{}{}", &key[..=twice], &key[twice..]);
        let text = misspelt(table, &wrong, lines);
        let said = parse(&text).unwrap_err().to_string();
        let place = format!("/etc/mcp.json:{}:1: {table}.{wrong}: unknown key", lines + 1);
        prop_assert!(said.starts_with(&place), "{said}");
        prop_assert!(said.ends_with(&format!("is \"{key}\"")), "{said}");
    }
}

/// Builds a file with one wrong key, at the start of a line.
fn misspelt(table: &str, wrong: &str, lines: usize) -> String {
    // Each is a line of its own, with or without a comment.
    let line: String = (0..lines).map(|n| if n % 2 == 0 { "\n" } else { " // odd\n" }).collect();
    let mut text = format!("{{{line}\"{wrong}\": 1}}");
    let mut names: Vec<&str> = table.split('.').collect();
    let first = names.remove(0);
    for name in names.iter().rev() {
        text = format!("{{\"{name}\": {text}}}");
    }
    if first == "mcpServers" {
        // The server also needs a command.
        let entry = text.replacen("{\"it\": {", "{\"it\": {\"command\": \"x\", ", 1);
        return format!("{{\"mcpServers\": {entry}}}");
    }
    format!("{{\"mcpServers\": {{}}, \"stayput\": {text}}}")
}
