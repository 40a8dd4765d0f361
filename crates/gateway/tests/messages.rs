//! Messages for people: each names the likely mistake and what to do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use support::Gateway;
use tempfile::TempDir;

/// Runs the program in a folder with a configuration.
fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(arguments).current_dir(folder.path()).stdin(Stdio::null());
    command.env("XDG_DATA_HOME", folder.path().join("data")).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks a configuration, and returns the report.
fn report(config: &Value) -> Value {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("mcp.json"), config.to_string()).unwrap();
    let output = run(&folder, &["check", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", errors(&output)))
}

/// Returns the part of a report about one server.
fn of_server<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut servers = report["servers"].as_array().unwrap().iter();
    servers.find(|server| server["server"] == name).unwrap_or_else(|| panic!("{report}"))
}

/// Checks these servers, and returns the first finding of each by its name.
fn check(servers: &Value) -> impl Fn(&str) -> String + use<> {
    let checked = report(&json!({ "mcpServers": servers }));
    move |name| of_server(&checked, name)["findings"][0]["what"].to_string()
}

/// Answers every request with the response for its path.
fn web_server(response: fn(&str) -> String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let path = head.split_whitespace().nth(1).unwrap_or_default();
            let _ = stream.write_all(response(path).as_bytes());
        }
    });
    origin
}

fn http(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// A URL that is wrong gets the likely mistake: a path without a server, a web page, a port without TLS. The remedy does
/// not contradict: a server that answers need not be started.
#[test]
fn wrong_url_gets_the_likely_mistake() {
    let origin = web_server(|path| match path {
        "/page" => http("200 OK", "text/html; charset=utf-8", "<!DOCTYPE html><html></html>"),
        "/lost" => http("404 Not Found", "text/html", "<html>nothing</html>"),
        "/text" => http("200 OK", "text/plain", "hello"),
        _ => http("404 Not Found", "text/plain", "nothing here"),
    });
    let checked = report(&json!({ "mcpServers": {
        "path": { "url": format!("http://{origin}/nowhere") },
        "page": { "url": format!("http://{origin}/page") },
        "lost": { "url": format!("http://{origin}/lost") },
        "text": { "url": format!("http://{origin}/text") },
        "tls": { "url": format!("https://{origin}/mcp") },
        "dead": { "url": "http://127.0.0.1:1/mcp" },
    } }));
    for (name, part) in [
        (
            "path",
            "cannot be used: the server answered with HTTP status 404: nothing here; check the path",
        ),
        ("page", "a web page (HTTP 200); check the path of its URL"),
        ("lost", "HTTP status 404 and a web page; check the path"),
        ("text", "neither JSON nor events (HTTP 200); check the path"),
        ("tls", "does not speak TLS at this port: write http://"),
        ("dead", "`dead` cannot be reached"),
    ] {
        let finding = &of_server(&checked, name)["findings"][0];
        assert!(finding["what"].as_str().unwrap().contains(part), "{name}: {finding}");
        let remedy = finding["remedy"].as_str().unwrap_or_default();
        let is_down = matches!(name, "dead" | "tls");
        assert_eq!(remedy.contains("start it"), is_down, "{name}: {finding}");
    }
}

/// A URL without `http://` is told so, and a server that cannot be reached says once where and why.
#[test]
fn unreachable_url_is_described_once() {
    let checked = report(&json!({ "mcpServers": {
        "bare": { "url": "127.0.0.1:1/mcp" },
        "dead": { "url": "http://127.0.0.1:1/mcp" },
    } }));
    let what = |name: &str| of_server(&checked, name)["findings"][0]["what"].to_string();
    assert!(
        what("bare").contains("it begins neither with http:// nor with https://"),
        "{}",
        what("bare")
    );
    let sentence = "the server `dead` cannot be reached: no connection to http://127.0.0.1:1: Connection refused; check";
    assert!(what("dead").contains(sentence), "{}", what("dead"));
}

/// Times are short, output of the server is told apart from Stayput's own words, and text among the messages is named.
#[test]
fn server_that_does_not_begin_is_described_in_plain_words() {
    let soon = json!({ "startup_timeout": "1500ms" });
    let checked = report(&json!({ "mcpServers": {
        "mute": { "command": "sh", "args": ["-c", "while read -r line; do :; done"], "stayput": soon },
        "chatty": {
            "command": "sh", "args": ["-c", "echo Server started; while read -r line; do :; done"], "stayput": soon
        },
        "exits": { "command": "sh", "args": ["-c", "echo no key >&2; exit 3"] },
        "quits": { "command": "true" },
    } }));
    let what =
        |name: &str| of_server(&checked, name)["findings"][0]["what"].as_str().unwrap().to_owned();
    // The time that the start of the process took is not part of it.
    let mute = what("mute");
    assert!(mute.contains("within 1."), "{mute}");
    assert!(mute.contains("s; check that it is an MCP server"), "{mute}");
    assert_eq!(of_server(&checked, "mute")["findings"][0]["remedy"], Value::Null);
    assert!(what("chatty").contains("not JSON-RPC (1 line so far)"), "{}", what("chatty"));
    assert!(what("exits").ends_with("before it was ready; it wrote:\nno key"), "{}", what("exits"));
    assert!(what("quits").ends_with("exited with code 0 before it was ready"), "{}", what("quits"));
}

/// `check` warns about text on the standard output and about `listen` without `auth`, and says what it did not test.
#[test]
fn check_warns_and_says_what_it_did_not_test() {
    let server = stayput_testkit::program("stayput-testserver");
    let invalid_lines =
        json!({ "command": server, "args": ["stdio", "--era", "legacy", "--invalid-lines"] });
    let notes = json!({ "command": env!("CARGO_BIN_EXE_stayput"), "args": ["demo-server"] });
    let config = json!({
        "mcpServers": { "invalid_lines": invalid_lines, "notes": notes },
        "stayput": { "listen": "0.0.0.0:7337" },
    });
    let checked = report(&config);
    assert_eq!(checked["ok"], true, "{checked}");
    let warning = of_server(&checked, "invalid_lines")["warnings"][0].as_str().unwrap();
    assert!(warning.contains("not JSON-RPC") && warning.contains("stderr"), "{warning}");
    assert!(!warning.contains("(1 lines"), "{warning}");
    assert_eq!(of_server(&checked, "notes")["warnings"], json!([]));
    let exposed = checked["warnings"].to_string();
    assert!(
        exposed.contains("0.0.0.0:7337") && exposed.contains("there is no `auth`"),
        "{exposed}"
    );
    let left = checked["not_tested"].to_string();
    assert!(left.contains("state outside of the processes and sessions"), "{left}");
    assert!(left.contains("the tools of invalid_lines, notes: none"), "{left}");
    let mut closed = config;
    closed["stayput"]["listen"] = json!("127.0.0.1:7337");
    assert_eq!(report(&closed)["warnings"], json!([]));
}

/// An error that is found after the message was read carries its id.
#[tokio::test]
async fn refusal_carries_the_id_of_the_request() {
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::start(json!({ "notes": notes })).await;
    let request = r#"{"jsonrpc":"2.0","id":"a 7","method":"tools/list"}"#;
    for (headers, status) in [
        (&[][..], 400),
        (&[("mcp-session-id", "sp_never")], 404),
        (&[("mcp-session-id", "sp_never"), ("mcp-protocol-version", "1999-01-01")], 400),
    ] {
        let answer = gateway.post("notes", headers, request).await;
        assert_eq!(answer.status, status, "{headers:?}");
        let said: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(said["id"], "a 7", "{said}");
    }
}

/// A browser gets a page at `/`; other clients an error. Without credentials the page names no server.
#[tokio::test]
async fn browser_gets_a_page_that_names_servers_only_with_credentials() {
    let folder = TempDir::new().unwrap();
    let token: Value =
        serde_json::from_slice(&run(&folder, &["token", "ann", "--json"]).stdout).unwrap();
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let servers = json!({ "notes": notes });
    let closed = json!({ "auth": { "tokens": { "ann": token["hash"] } } });
    let html = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    for (settings, is_closed) in [(json!({}), false), (closed, true)] {
        let gateway = Gateway::with(servers.clone(), settings).await;
        let url = format!("{}/", gateway.url);
        let get = async |headers: &[(&str, &str)]| {
            let answer =
                stayput_testkit::mcp::send(http::Method::GET, &url, headers, "").await.unwrap();
            let kind = answer.headers.get("content-type").unwrap().to_str().unwrap().to_owned();
            let (status, body) = (answer.status.as_u16(), answer.bytes().await.unwrap());
            (status, kind, String::from_utf8_lossy(&body).into_owned())
        };
        let (status, kind, page) = get(&[html]).await;
        assert_eq!((status, &*kind), (200, "text/html; charset=utf-8"), "{page}");
        assert_eq!(page.contains("/mcp/notes"), !is_closed, "{page}");
        // A person who opens the URL of a server gets the same page.
        let server = format!("{}/mcp/notes", gateway.url);
        let opened = stayput_testkit::mcp::send(http::Method::GET, &server, &[html], "").await;
        let opened = opened.unwrap().bytes().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&opened), page);
        let stream = [("accept", "text/html, text/event-stream")];
        let refused = stayput_testkit::mcp::send(http::Method::GET, &server, &stream, "").await;
        assert_eq!(refused.unwrap().status.as_u16(), if is_closed { 401 } else { 400 });
        let (status, kind, _) = get(&[("accept", "*/*")]).await;
        assert_eq!(status, if is_closed { 401 } else { 404 });
        assert!(kind.starts_with("application/json"), "{kind}");
        if is_closed {
            let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
            let (_, _, page) = get(&[html, ("authorization", &bearer)]).await;
            assert!(page.contains("/mcp/notes"), "{page}");
        }
        let (status, _, _) = get(&[html, ("origin", "http://evil.example")]).await;
        assert_eq!(status, 403, "a page of another origin asks");
    }
}

#[test]
fn command_that_is_not_found_gets_the_likely_remedy() {
    let says = check(&json!({
        "line": { "command": "npx -y @playwright/mcp --isolated" },
        "script": { "command": "./server.sh" },
        "program": { "command": "stayput-no-such-program" },
    }));
    let line = says("line");
    assert!(line.contains("give `npx` as the command, and the rest as arguments"), "{line}");
    let script = says("script");
    assert!(script.contains("there is no file `./server.sh`"), "{script}");
    assert!(!script.contains("PATH"), "{script}");
    let program = says("program");
    assert!(program.contains("on the PATH") && program.contains("install it"), "{program}");
}

#[test]
fn misspelt_expansion_suggests_the_nearest_name() {
    let says = check(&json!({ "it": { "command": "x", "args": ["${sesion.dir}"] } }));
    let it = says("it");
    assert!(it.contains("the most similar one is ${session.dir}"), "{it}");
}

/// A server with OAuth metadata wants a token, which the user has to get.
#[test]
fn server_that_wants_oauth_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let challenge = "Bearer resource_metadata=\"http://127.0.0.1/meta\"";
            let _ = stream.write_all(
                format!(
                    "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: {challenge}\r\n\
                     content-length: 0\r\nconnection: close\r\n\r\n"
                )
                .as_bytes(),
            );
        }
    });
    let it = check(&json!({ "it": { "url": url } }))("it");
    assert!(it.contains("HTTP 401") && it.contains("it wants OAuth"), "{it}");
    assert!(it.contains("the header `Authorization`"), "{it}");
}

#[test]
fn configuration_that_is_missing_is_told_in_words() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["serve", "--config", "nowhere.json"]);
    let said = errors(&output);
    assert!(said.contains("nowhere.json: the file does not exist; check its name"), "{said}");
    assert!(!said.contains("entity"), "{said}");
}

/// A call of an unknown tool or server lists those that exist.
#[tokio::test]
async fn call_of_an_unknown_name_lists_the_known_ones() {
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::start(json!({ "notes": notes })).await;
    let tool = run(&gateway.folder, &["call", "notes", "nosuch"]);
    assert_eq!(tool.status.code(), Some(1));
    let said = errors(&tool);
    let names = "its tools are note_add, note_list, count, whoami";
    assert!(said.contains("has no tool `nosuch`") && said.contains(names), "{said}");
    let server = run(&gateway.folder, &["call", "nosuch", "count"]);
    let said = errors(&server);
    assert!(said.contains("there is no server `nosuch`; servers are at /mcp/notes"), "{said}");
    let broken = run(&gateway.folder, &["call", "notes", "note_add"]);
    assert!(!errors(&broken).contains("its tools are"), "{}", errors(&broken));
}

/// A gateway that was started a moment ago is waited for, as in `stayput serve & stayput call …`.
#[test]
fn call_waits_for_a_gateway_that_starts() {
    let folder = TempDir::new().unwrap();
    let notes = json!({ "command": env!("CARGO_BIN_EXE_stayput"), "args": ["demo-server"] });
    let config =
        json!({ "mcpServers": { "notes": notes }, "stayput": { "listen": "127.0.0.1:0" } });
    std::fs::write(folder.path().join("mcp.json"), config.to_string()).unwrap();
    let script = r#"stayput serve --stop-with-stdin 2>log <&3 & stayput call notes count"#;
    let mut command = Command::new("bash");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_stayput")).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    // The gateway ends with the pipe, which only the shell and the gateway hold.
    command.args([
        "-c",
        &format!(
            "exec 3< <(sleep 60 & echo $! >sleeper; wait); {script}; kill $(cat sleeper); wait"
        ),
    ]);
    command.current_dir(folder.path()).stdin(Stdio::null()).env("PATH", path);
    let output = command.env("XDG_DATA_HOME", folder.path().join("data")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{}", errors(&output));
    let alone = run(&folder, &["call", "notes", "count"]);
    assert!(errors(&alone).contains("start one with `stayput serve`"), "{}", errors(&alone));
}

/// The token is alone on the standard output; what to do with it is beside it.
#[test]
fn token_comes_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["token", "ann"]);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap().lines().count(), 2);
    let said = errors(&output);
    assert!(said.contains("not shown again") && said.contains("\"tokens\""), "{said}");
    assert_eq!(errors(&run(&folder, &["token", "ann", "--json"])), "");
}

#[tokio::test]
async fn unknown_session_id_says_where_the_ids_are() {
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::start(json!({ "notes": notes })).await;
    let said = errors(&run(&gateway.folder, &["sessions", "show", "zz"]));
    assert!(said.contains("`stayput sessions` lists the ids"), "{said}");
}

#[tokio::test]
async fn tools_are_listed_as_they_are_called() {
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::start(json!({ "notes": notes })).await;
    let one = run(&gateway.folder, &["tools", "notes"]);
    let said = String::from_utf8(one.stdout).unwrap();
    assert!(said.starts_with("note_add text=…\n    Writes a note"), "{said}");
    let all = run(&gateway.folder, &["tools", "--json"]);
    let tools: Vec<Value> = serde_json::from_slice(&all.stdout).unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["notes__note_add", "notes__note_list", "notes__count", "notes__whoami"]);
}

/// Legacy server whose answer to a tool call is the first argument, with its id instead of `ID`.
const SCRIPTED: &str = r#"while IFS= read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"scripted","version":"1"}}}\n' "$id" ;;
    *'"tools/call"'*) printf '%s\n' "$1" | sed "s/ID/$id/" ;;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}\n' "$id" ;;
    esac
done"#;

fn scripted(answer: &str) -> Value {
    let options = json!({ "era": "legacy", "timeout": "20s" });
    json!({ "command": "sh", "args": ["-c", SCRIPTED, "server", answer], "stayput": options })
}

/// An answer that is no message fails its call when it comes. The client does not wait until the timeout.
#[tokio::test]
async fn invalid_answer_of_a_server_fails_its_call() {
    for (answer, part) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":{},"error":null}"#, "not several"),
        (r#"{"jsonrpc":"2.0","id":ID}"#, "one of 'method', 'result' and 'error'"),
        (r#"{"id":ID,"result":{}}"#, "'jsonrpc'"),
        (r#"{"jsonrpc":"2.0","id":ID,"error":"failed"}"#, "'error' must be an object"),
    ] {
        let gateway = Gateway::start(json!({ "scripted": scripted(answer) })).await;
        let client = gateway.client("scripted").await;
        let told = client.call(&gateway, "any", json!({})).await.to_string();
        assert!(
            told.contains("the server sent an invalid answer") && told.contains(part),
            "{told}"
        );
        assert!(told.contains("it may have carried out the request"), "{told}");
    }
}

/// Text of a server cannot clear the terminal of the operator, or turn the text around.
#[tokio::test]
async fn text_of_a_server_is_printed_without_control_characters() {
    let answer =
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no\u001b[2J\u202eon"}}"#;
    let gateway = Gateway::start(json!({ "scripted": scripted(answer) })).await;
    let said = errors(&run(&gateway.folder, &["call", "scripted", "any"]));
    assert!(said.contains("no\u{fffd}[2J\u{fffd}on"), "{said}");
    let folder = TempDir::new().unwrap();
    let dies = json!({ "command": "sh", "args": ["-c", r"printf 'no\342\200\256on' >&2; exit 3"] });
    let config = json!({ "mcpServers": { "dies": dies } });
    std::fs::write(folder.path().join("mcp.json"), config.to_string()).unwrap();
    let output = run(&folder, &["check"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no\u{fffd}on"), "{said}");
}
