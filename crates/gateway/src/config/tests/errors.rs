//! Tests of error messages: each names the file, the place and the remedy, and contains no secret.

use super::*;

fn says(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn entry_says(entry: &str) -> String {
    says(&format!("{{\n \"mcpServers\": {{\n  \"it\": {entry}\n }}\n}}"))
}

fn settings_say(stayput: &str) -> String {
    says(&format!("{{\"mcpServers\": {{}},\n\"stayput\": {stayput}}}"))
}

#[test]
fn unknown_key_error_suggests_the_nearest_key() {
    assert_eq!(
        entry_says(r#"{"command": "x", "stayput": {"isolaton": "shared"}}"#),
        "/etc/mcp.json:3:38: mcpServers.it.stayput.isolaton: unknown key; \
         the most similar one is \"isolation\""
    );
    for (stayput, place, nearest) in [
        (r#"{"listens": 1}"#, "2:13: stayput.listens", "\"listen\""),
        (r#"{"limits": {"proceses": 1}}"#, "2:24: stayput.limits.proceses", "\"processes\""),
        (r#"{"expiry": {"Idle": 1}}"#, "2:24: stayput.expiry.Idle", "\"idle\""),
        (r#"{"limits": {"per_owner": {"link": 1}}}"#, "stayput.limits.per_owner.link", "\"links\""),
    ] {
        let said = settings_say(stayput);
        assert!(said.contains(place) && said.contains(nearest), "{said}");
    }
}

#[test]
fn server_errors_name_their_place() {
    for (entry, expected) in [
        (
            r#"{"command": "x", "stayput": {"for": {"a": "b"}}}"#,
            "it.stayput.for: there is no \"auth\"",
        ),
        (r#"{"command": "x", "stayput": {"for": {}}}"#, "stayput.for: this must be an object of"),
        (
            r#"{"command": "x", "stayput": {"for": {"a": []}}}"#,
            "stayput.for.a: this must be an obj",
        ),
        (r#"{"command": "x", "stayput": {"for": {"a": 1}}}"#, "stayput.for.a: this must be a text"),
        (r#"{"command": "x", "stayput": {"for": "a"}}"#, "stayput.for: this must be an object"),
        (r#"{"command": "${NOT_SET}"}"#, "mcpServers.it.command: the environment variable NOT_SET"),
        (r#"{"command": "x", "env": {"A": "${NOT_SET}"}}"#, "3:39: mcpServers.it.env.A: the env"),
        (r#"{"command": "x", "args": ["a", "${NO"]}"#, "mcpServers.it.args.1: a ${ is not closed"),
        (r#"{"command": "x", "args": "a"}"#, "mcpServers.it.args: this must be a list"),
        (r#"{"command": ["x"]}"#, "mcpServers.it.command: this must be a text"),
        (r#"{"command": "x", "env": {"A": 1}}"#, "mcpServers.it.env.A: this must be a text"),
        (r#"{"command": "x", "url": "http://h/"}"#, "3:3: mcpServers.it: it has both"),
        (r#"{"args": []}"#, "mcpServers.it: it has neither"),
        (r#"{"comand": "x"}"#, "mcpServers.it.comand: unknown key; the most similar"),
        (r#"{"comment": "x"}"#, "mcpServers.it: it has neither"),
        (r#"{"type": "stdio", "url": "x"}"#, "mcpServers.it: its \"type\" needs \"command\""),
        (r#"{"type": "htp", "url": "x"}"#, "mcpServers.it.type: unknown value"),
        (r#"{"command": "x", "disabled": "no"}"#, "mcpServers.it.disabled: this must be true"),
        (r#"{"command": ""}"#, "mcpServers.it: the command is empty"),
        (r#"{"url": "ftp://h/"}"#, "mcpServers.it: its URL cannot be used"),
        (r#"{"command": "x", "args": ["${session.dri}"]}"#, "argument 1 has the unknown"),
        (r#"{"command": "x", "command": "y"}"#, "3:26: mcpServers.it.command: this key is here"),
        (r#""x""#, "mcpServers.it: this must be an object"),
        (r#"{"command": "x", "stayput": {"era": "new"}}"#, "stayput.era: unknown value"),
        (r#"{"command": "x", "stayput": {"timeout": "soon"}}"#, "timeout: this must be a time"),
        (r#"{"command": "x", "stayput": {"timeout": true}}"#, "timeout: this must be a time"),
        (r#"{"url": "https://h/x", "stayput": {"warm": 0}}"#, "reached by a URL; remove `warm`"),
        (
            r#"{"command": "x", "args": ["${owner.dir}"], "stayput": {"warm": 1}}"#,
            "uses ${owner.dir}; remove `warm`",
        ),
        (r#"{"command": "x", "stayput": {"warm": -1}}"#, "warm: this must be a whole number"),
        (r#"{"command": "x", "stayput": {"inherit": "A"}}"#, "inherit: this must be a list"),
        (r#"{"command": "x", "stayput": {"inherit": ["A=s3cret"]}}"#, "mcpServers.it: the name of"),
    ] {
        let said = entry_says(entry);
        assert!(said.starts_with("/etc/mcp.json:") && said.contains(expected), "{entry}: {said}");
    }
}

#[test]
fn settings_errors_name_their_place() {
    for (stayput, expected) in [
        (r#"{"listen": "example.com:80"}"#, "stayput.listen: this must be an address"),
        (r#"{"listen": "${session.dir}"}"#, "stayput.listen: ${session.dir} has a value for"),
        (r#"{"tls": {}}"#, "stayput.tls: this must be an object with \"cert\" and \"key\""),
        (r#"{"tls": {"cert": "/no/such", "key": "x"}}"#, "stayput.tls.cert: the file"),
        (r#"{"tls": {"cert": "x", "keys": "y"}}"#, "stayput.tls.keys: unknown key"),
        (r#"{"store": "mysql://h"}"#, "stayput.store: the URL of a store begins with"),
        (r#"{"expiry": {"idle": 0}}"#, "stayput.expiry.idle: this must be a time above zero"),
        (r#"{"limits": {"memory": "2"}}"#, "stayput.limits.memory: this must be an amount"),
        (
            r#"{"limits": {"headers": "1KiB"}}"#,
            "stayput.limits.headers: this must be an amount from",
        ),
        (r#"{"lease": "2h"}"#, "stayput.lease: this must be a time from \"1s\""),
        (
            r#"{"limits": {"stall": "1ms"}}"#,
            "stayput.limits.stall: this must be a time of a second",
        ),
        (r#"{"seal": []}"#, "stayput.seal: this must be a key, or a list of keys"),
        (r#"{"seal": "00"}"#, "stayput.seal: a sealing key has 32 bytes"),
        (
            r#"{"seal": ["file:/no/such"]}"#,
            "stayput.seal.0: the sealing key /no/such cannot be read",
        ),
        (r#"{"limits": {"calls_per_session": 0}}"#, "this must be a whole number from 1"),
        (
            r#"{"limits": {"per_owner": {"requests_per_second": 0}}}"#,
            "this must be a whole number from 1",
        ),
        (
            r#"{"limits": {"per_owner": {"requests_per_second": "unlimted"}}}"#,
            "the most similar one is \"unlimited\"",
        ),
        (r#"{"limits": {"sessions_per_owner": 0}}"#, "this must be a whole number from 1"),
        (r#"{"allowed_origins": ["https://h/"]}"#, "stayput.allowed_origins.0: this must be an"),
        (r#"{"allowed_hosts": ["https://h"]}"#, "stayput.allowed_hosts.0: this must be a host"),
        (
            r#"{"identify": {"custom": ["chat"]}}"#,
            "identify.custom.0: this must be \"header:NAME\"",
        ),
        (r#"{"identify": {"custom": ["header:a b"]}}"#, "identify.custom.0: this must be"),
        (r#"{"identify": {"custom": ["meta:"]}}"#, "identify.custom.0: this must be"),
        (r#"{"hints": ["vs-code"]}"#, "hints.0: unknown value; the most similar one is"),
        (r#"{"hints": true}"#, "hints: this must be a list"),
        ("[]", "stayput: this must be an object"),
    ] {
        let said = settings_say(stayput);
        assert!(said.starts_with("/etc/mcp.json:2:") && said.contains(expected), "{said}");
    }
}

#[test]
fn cluster_errors_name_their_place() {
    for (stayput, expected) in [
        (r#"{"cluster": {}}"#, "stayput.cluster: this must be an object with \"listen\""),
        (
            r#"{"cluster": {"listen": "127.0.0.1:1", "key": "short"}}"#,
            "stayput.cluster.key: a cluster key has at least 32 characters",
        ),
        (
            r#"{"cluster": {"listen": "[::]:1", "key": "0123456789abcdef0123456789abcdef"}}"#,
            "stayput.cluster: \"advertise\" is missing",
        ),
        (
            r#"{"cluster": {"listen": "[::1]:1", "advertise": "https://h/x", "key": "0123456789abcdef0123456789abcdef"}}"#,
            "stayput.cluster.advertise: this must be a URL with host and port",
        ),
    ] {
        let said = settings_say(stayput);
        assert!(said.starts_with("/etc/mcp.json:2:") && said.contains(expected), "{said}");
    }
}

#[test]
fn invalid_json_error_names_its_place() {
    for (text, expected) in [
        ("{\n  \"mcpServers\": {,}\n}", ":2:18: this is not JSON: a name in double quotes"),
        ("{\"é\": 1 \"b\": 2}", ":1:9: this is not JSON: a comma"),
        ("{} /*", ":1:4: this comment has no end"),
        ("", ":1:1: this is not JSON: it ends too early"),
        ("[]", ":1:1: this must be an object"),
        ("{}", ":1:1: no servers are configured"),
    ] {
        let said = says(text);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn server_name_must_be_usable_in_a_path() {
    for name in ["a b", "a/b", "", ".", "..", "é", "~x", &"a".repeat(65)] {
        let said = says(&format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#));
        assert!(said.contains("cannot be part of a path"), "{name}: {said}");
    }
    let name = "A".repeat(64);
    parse(&format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#)).unwrap();
    for second in
        [r#""mcpServers": {"a": X, "A": X}"#, r#""mcpServers": {"a": X}, "servers": {"A": X}"#]
    {
        let said = says(&format!("{{{}}}", second.replace('X', r#"{"command": "x"}"#)));
        assert!(said.contains("another server is called \"a\""), "{said}");
    }
}

#[test]
fn missing_file_error_names_the_file() {
    let said = Config::load(Path::new("/no/such/file.json")).unwrap_err().to_string();
    assert!(said.starts_with("/no/such/file.json: the file does not exist"), "{said}");
}

/// Invariant 8: values of environment variables, headers and URLs appear in no error and no `Debug` output.
#[test]
fn errors_contain_no_secret() {
    for entry in [
        r#"{"url": "https://u:s3cret@/x"}"#,
        r#"{"url": "s3cret"}"#,
        r#"{"url": "https://h/", "headers": {"A": "s3cret\n"}}"#,
        r#"{"url": "https://h/", "headers": {"a s3cret": "x"}}"#,
        r#"{"command": "x", "args": ["${TOKEN}", "${session.x}"]}"#,
        r#"{"command": "x\u0000s3cret"}"#,
        r#"{"type": "${TOKEN}"}"#,
        r#"{"command": "x", "stayput": {"timeout": "${TOKEN}"}}"#,
    ] {
        let error = parse(&format!(r#"{{"mcpServers": {{"it": {entry}}}}}"#)).unwrap_err();
        // The name of a header is a key, not a value, so it may be shown.
        let shown = format!("{error} {error:?}").replace("headers.a s3cret", "");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    for store in ["postgres://u:s3cret@h/d?sslmode=x", "redis://:s3cret@h:x"] {
        let said = settings_say(&format!(r#"{{"store": "{store}"}}"#));
        assert!(!said.contains("s3cret"), "{said}");
    }
    let config = parse(
        r#"{"mcpServers": {
            "a": {"command": "x", "args": ["${TOKEN}"], "env": {"A": "${TOKEN}"}},
            "b": {"url": "https://u:s3cret@h/s3cret?k=s3cret", "headers": {"A": "s3cret"}}
        }, "stayput": {"store": "redis://:s3cret@h/"}}"#,
    );
    let shown = format!("{:?} {:?}", config.unwrap(), environment());
    assert!(!shown.contains("s3cret"), "{shown}");
}

/// The first segment of a path is either a server or the gateway's own.
#[test]
fn name_of_a_gateway_path_is_refused_as_a_server_name() {
    for name in
        ["mcp", "sse", "ui", "admin", "healthz", "readyz", "metrics", ".well-known", "Admin"]
    {
        let said = says(&format!(
            "{{\n \"mcpServers\": {{\n  \"{name}\": {{\"command\": \"x\"}}\n }}\n}}"
        ));
        let place = format!("/etc/mcp.json:3:3: mcpServers.{name}: this name is a path");
        assert!(said.starts_with(&place) && said.contains("rename"), "{said}");
    }
}
