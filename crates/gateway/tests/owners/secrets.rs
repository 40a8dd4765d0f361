//! Secrets: in no output, and at rest only readable by the owner of the files.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};

use super::{
    Somebody,
    support::{Gateway, LONG, gone, mark, stdio},
    token,
};

/// Prefix of every secret in these tests. `scripts/secrets` searches all output of gateways for it.
const SECRET: &str = "s3cr3t-";

/// Returns the error of a command of the program for an invalid configuration.
fn refused(command: &str, config: &Value, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stayput.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let mut program = Command::new("timeout");
    program.args(["60", env!("CARGO_BIN_EXE_stayput"), command, "--config"]).arg(file);
    program.args(arguments).env("XDG_DATA_HOME", folder.path());
    let Output { status, stdout, stderr } = program.output().unwrap();
    assert!(!status.success(), "{config}");
    format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
}

/// Returns the command lines of a gateway and of its own subprocesses.
fn command_lines(gateway: &Gateway) -> String {
    let own = std::fs::read_link(format!("/proc/{}/exe", gateway.pid())).unwrap();
    let mut pids = processes::descendants(gateway.pid());
    pids.retain(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok().as_ref() == Some(&own));
    pids.push(gateway.pid());
    assert!(pids.len() > 1, "there is no warden");
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    pids.iter().map(|pid| String::from_utf8_lossy(&line(pid)).into_owned()).collect()
}

/// Returns the errors for invalid configurations.
fn refusals() -> Vec<String> {
    let mut told = Vec::new();
    let away = format!("http://ann:{SECRET}password@127.0.0.1:9/mcp");
    let cases: [(Value, &[&str]); 7] = [
        (json!({ "store": format!("postgres://ann:{SECRET}pw@127.0.0.1:9/db") }), &[]),
        (json!({ "store": format!("redis://:{SECRET}pw@127.0.0.1:9") }), &[]),
        (json!({ "listen": format!("{SECRET}listen") }), &[]),
        (json!({ "seal": format!("{SECRET}seal") }), &[]),
        (json!({ "expiry": { "idle": format!("{SECRET}idle") } }), &[]),
        (json!({ "auth": { "tokens": { "ann": format!("{SECRET}hash") } } }), &[]),
        (json!({}), &["--store", "postgres://ann:s3cr3t-pw@127.0.0.1:9/db"]),
    ];
    for (stayput, arguments) in cases {
        let fine = json!({ "command": "x", "env": { "A": format!("{SECRET}env") } });
        let config = json!({ "mcpServers": { "a": fine }, "stayput": stayput });
        told.push(refused("serve", &config, arguments));
    }
    let server = json!({ "url": away, "headers": { "X": format!("{SECRET}header") } });
    told.push(refused("check", &json!({ "mcpServers": { "a": server, "b": 1 } }), &[]));
    told
}

/// Invariant 8: no output contains a secret, whatever fails.
#[tokio::test]
async fn no_output_contains_a_secret() {
    let mark = mark("secrets");
    let (token, hash) = token("ann");
    let mut good = stdio(&mark, &[]);
    good["env"] = json!({ "TOKEN": format!("{SECRET}environment") });
    good["stayput"] = json!({ "handles": "always" });
    let servers = json!({
        "test": good,
        "broken": { "command": "/no/such/program", "args": [format!("--key={SECRET}argument")],
            "env": { "TOKEN": format!("{SECRET}environment") } },
        "dies": { "command": "sh", "args": ["-c", "exit 3"],
            "env": { "TOKEN": format!("{SECRET}environment") } },
        "away": { "url": format!("http://127.0.0.1:9/mcp?key={SECRET}query"),
            "headers": { "Authorization": format!("Bearer {SECRET}header") } },
    });
    let seal = "5ea1".repeat(16);
    let settings =
        json!({ "auth": { "tokens": { "ann": hash }, "metrics": "authenticated" }, "seal": seal });
    let gateway = Gateway::with_arguments(servers, settings, &["--log-format", "json"]).await;
    let ann = Somebody::bearer(&token);
    let mut told = Vec::new();
    for server in ["broken", "dies", "away", "", "never"] {
        let url = gateway.at(server);
        for who in [&ann, &Somebody::bearer(&format!("{SECRET}token")), &ann.and("x-n", "1")] {
            let answer = who.greet(&url).await;
            let body = tokio::time::timeout(LONG, answer.bytes()).await.unwrap().unwrap();
            told.push(String::from_utf8_lossy(&body).into_owned());
        }
    }
    let url = gateway.at("test");
    let connection = ann.connect(&url).await;
    assert_eq!(ann.text(&url, &connection, "count").await, "1");
    let on = ann.and("mcp-session-id", &connection);
    for body in [
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{SECRET}method","params":{{}}}}"#),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "fail", "arguments": { "password": format!("{SECRET}argument") } } })
        .to_string(),
        "invalid_lines".to_owned(),
    ] {
        let answer = on.ask(Method::POST, &url, &body).await;
        let body = tokio::time::timeout(LONG, answer.bytes()).await.unwrap().unwrap();
        // A server may repeat to its own client what that client sent.
        told.push(String::from_utf8_lossy(&body).replace(&format!("{SECRET}method"), ""));
    }
    let metrics = ann.ask(Method::GET, &format!("{}/metrics", gateway.url), "").await;
    told.push(String::from_utf8_lossy(&metrics.bytes().await.unwrap()).into_owned());
    told.extend([command_lines(&gateway), gateway.log()]);
    told.extend(refusals());
    for (number, told) in told.iter().enumerate() {
        for secret in [SECRET, &token, &connection, &seal] {
            assert!(!told.contains(secret), "{number}: {told}");
        }
    }
    drop(gateway);
    gone(&mark).await;
}

/// Writes a key with these digits to a file with this mode.
fn key(folder: &Path, name: &str, digits: &str, mode: u32) -> String {
    let path = folder.join(name);
    std::fs::write(&path, digits.repeat(16)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    format!("file:{}", path.display())
}

/// A new key is used with the old one: records are unsealed with the old key and sealed with the new key at their next
/// use. Without either key a loss is reported.
#[tokio::test]
async fn seal_key_can_be_rotated() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str, digits: &str| key(keys.path(), name, digits, 0o600);
    let (one, two, three) = (key("one", "0001"), key("two", "0002"), key("three", "0003"));
    let servers = json!({ "test": { "url": server.url() } });
    let mut gateway = Gateway::with(servers, json!({ "seal": [one] })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let mut now = json!([one]);
    for (next, expected) in
        [(json!([two, one]), Some("2")), (json!(two), Some("3")), (json!([three]), None)]
    {
        assert!(gateway.stop().success());
        gateway.edit(&now.to_string(), &next.to_string());
        now = next;
        gateway.restart().await;
        match expected {
            Some(expected) => assert_eq!(client.text(&gateway, "count").await, expected, "{now}"),
            None => {
                let lost = client.call(&gateway, "count", json!({})).await;
                assert_eq!(lost["result"]["isError"], true, "{lost}");
            }
        }
    }
}

/// Issue 6: the session id of a server is in no file of the gateway in plain text.
#[tokio::test]
async fn server_session_id_is_sealed_at_rest() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let mut gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = gateway.client("test").await;
    let answer = client.call(&gateway, "header", json!({ "name": "mcp-session-id" })).await;
    let id = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(id.len() > 8 && id != client.id, "{answer}");
    assert!(gateway.stop().success());
    let (mut folders, mut files) = (vec![gateway.folder.path().to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                let found = bytes.windows(id.len()).any(|part| part == id.as_bytes());
                assert!(!found, "{}", entry.path().display());
                files += 1;
            }
        }
    }
    assert!(files > 1, "{files}");
    gateway.restart().await;
    let again = client.call(&gateway, "header", json!({ "name": "mcp-session-id" })).await;
    assert_eq!(again["result"]["content"][0]["text"], *id, "it was kept");
}

/// A file that other users can read or change is refused with advice.
#[test]
fn file_open_to_other_users_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = |stayput: &Value| json!({ "mcpServers": {}, "stayput": stayput });
    for mode in [0o640, 0o604, 0o620, 0o666] {
        let open = key(folder.path(), "open", "0001", mode);
        let said = refused("serve", &config(&json!({ "seal": open })), &[]);
        assert!(said.contains("can be read by others") && said.contains("chmod 600"), "{said}");
    }
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("ann {}", token("ann").1)).unwrap();
    for mode in [0o620, 0o602, 0o666] {
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(mode)).unwrap();
        let said = refused("serve", &config(&json!({ "auth": { "tokens_file": tokens } })), &[]);
        assert!(said.contains("can be changed by others"), "{said}");
    }
}

/// A data folder that belongs to another user is refused: that user could read and replace the keys in it.
#[test]
fn data_folder_of_another_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("store.db.d");
    std::fs::create_dir(&data).unwrap();
    let nobody = Some(65_534);
    if std::os::unix::fs::chown(&data, nobody, nobody).is_err() {
        // Only root can give a folder away; for others, one of root's is there.
        std::fs::remove_dir(&data).unwrap();
        std::os::unix::fs::symlink("/usr", &data).unwrap();
    }
    let store = format!("sqlite:{}", folder.path().join("store.db").display());
    let config = folder.path().join("stayput.json");
    let settings = json!({ "store": store, "listen": "127.0.0.1:0" });
    std::fs::write(&config, json!({ "mcpServers": {}, "stayput": settings }).to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let mut child = command
        .args(["serve", "--config"])
        .arg(&config)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut lines = lines.map_while(Result::ok);
    // Without a refusal it would listen.
    let said = lines.find(|line| line.contains("store.db.d") || line.contains("listens on"));
    let said = said.unwrap_or_default();
    let _ = child.kill();
    assert!(!child.wait().unwrap().success(), "{said}");
    assert!(said.contains("belongs to another user") && said.contains("store.db.d"), "{said}");
}
