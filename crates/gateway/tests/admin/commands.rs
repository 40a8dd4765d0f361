//! `stayput sessions` and `stayput call` against a running gateway.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    kit::{sessions, until_some},
    roles::token,
    support::{Gateway, gone, mark, stdio},
};

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Spoken {
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) error: String,
}

impl Spoken {
    /// Returns the output of a command that succeeded.
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, &*self.error), (0, ""), "{self:?}");
        self.output.trim_end().to_owned()
    }

    fn json(self) -> Value {
        serde_json::from_str(&self.good()).unwrap()
    }

    /// Returns the error text of a command that failed.
    pub(crate) fn bad(self) -> String {
        assert_eq!(self.code, 1, "{self:?}");
        self.error
    }
}

/// Runs `stayput` in a folder with this standard input.
pub(crate) fn stayput(folder: &Path, arguments: &[&str], input: &str) -> Spoken {
    stayput_with(folder, None, arguments, input)
}

/// Runs the program with this token in its environment.
fn stayput_with(folder: &Path, token: Option<&str>, arguments: &[&str], input: &str) -> Spoken {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(arguments).current_dir(folder).env("XDG_DATA_HOME", folder.join("data"));
    command.env_remove("STAYPUT_TOKEN").envs(token.map(|token| ("STAYPUT_TOKEN", token)));
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Spoken {
        code: output.status.code().unwrap(),
        output: text(output.stdout),
        error: text(output.stderr),
    }
}

fn run(gateway: &Gateway, arguments: &[&str]) -> Spoken {
    stayput(gateway.folder.path(), arguments, "")
}

/// The command lists, shows and ends sessions, as text and as JSON.
#[tokio::test]
async fn sessions_command_lists_shows_and_ends_sessions() {
    let mark = mark("commands");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    assert_eq!(run(&gateway, &["sessions"]).good(), "there are no sessions");
    let (one, two) = (gateway.client("test").await, gateway.client("test").await);
    let pid = one.text(&gateway, "pid").await;
    two.text(&gateway, "count").await;
    let listed = run(&gateway, &["sessions", "ls"]).good();
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines[0].starts_with("ID  ") && lines[0].ends_with("LAST TOOL"), "{listed}");
    let words: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!((words[1], words[2], words[4]), ("anonymous", "(connection)", "test"), "{listed}");
    assert!(words.contains(&&*pid) && words.ends_with(&["pid"]), "{listed}");
    assert!(!listed.contains('\u{1b}'), "colours are for terminals");
    let all = run(&gateway, &["sessions", "--json"]).json();
    let id = all[0]["id"].as_str().unwrap().to_owned();
    assert_eq!((words[0], all.as_array().unwrap().len()), (&*id, 2));
    assert_eq!(run(&gateway, &["sessions", "ls", "--json", "--owner", "ann"]).json(), json!([]));
    let shown = run(&gateway, &["sessions", "show", &id]).good();
    for part in [&*id, "anonymous", "link to test: live, generation 0", &format!("pid {pid}")] {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!(run(&gateway, &["sessions", "show", &id, "--json"]).json()["id"], *id);
    assert_eq!(run(&gateway, &["sessions", "end", &id]).good(), format!("ended {id}"));
    let over = run(&gateway, &["sessions", "show", &id]).good();
    assert!(over.contains("(closed)"), "{over}");
    let again = run(&gateway, &["sessions", "end", &id]).bad();
    assert!(again.contains("over already"), "{again}");
    let ended = run(&gateway, &["sessions", "end", "--all", "--json"]).json();
    assert_eq!(ended["ended"].as_array().unwrap().len(), 1);
    assert_eq!(run(&gateway, &["sessions", "end", "--all"]).good(), "there is no such session");
    let unknown = run(&gateway, &["sessions", "show", "7"]).bad();
    assert!(unknown.starts_with("stayput: this is not the id"), "{unknown}");
    gone(&mark).await;
}

/// Without a running gateway the commands say so and give advice. A wrong command line ends with code 2.
#[tokio::test]
async fn commands_without_a_gateway_fail_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["sessions"][..], &["call", "notes", "add"], &["sessions", "end", "--all"]] {
        let said = stayput(folder.path(), arguments, "").bad();
        assert!(said.contains("no gateway runs") && said.contains("`stayput serve`"), "{said}");
    }
    let url = ["sessions", "--url", "http://127.0.0.1:1"];
    let said = stayput(folder.path(), &url, "").bad();
    assert!(said.contains("did not answer"), "{said}");
    for arguments in [
        &["sessions", "end"][..],
        &["sessions", "end", "x", "--all"],
        &["sessions", "ls", "--state", "tired"],
        &["sessions", "--url", "http://h", "--store", "memory:"],
        &["sessions", "--token-file", "x"],
        &["call", "notes"],
    ] {
        assert_eq!(stayput(folder.path(), arguments, "").code, 2, "{arguments:?}");
    }
}

/// `stayput call` makes one call: its text, its failure, its session.
#[tokio::test]
async fn call_command_calls_a_tool() {
    let mark = mark("call");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let call = |arguments: &[&str]| {
        let all: Vec<_> = ["call", "test"].iter().chain(arguments).copied().collect();
        run(&gateway, &all)
    };
    // Without a key each call has its own session, which ends with it.
    assert_eq!(call(&["count"]).good(), "1");
    assert_eq!(call(&["count"]).good(), "1");
    until_some("end", async || sessions(&gateway, "").await.is_empty().then_some(())).await;
    assert_eq!(call(&["--session", "mine", "count"]).good(), "1");
    assert_eq!(call(&["count", "--session", "mine"]).good(), "2");
    let kept = sessions(&gateway, "").await;
    assert_eq!((kept.len(), &kept[0]["key"]), (1, &json!("name:mine")));
    assert_eq!((&kept[0]["owner"], &kept[0]["source"]), (&json!("local"), &json!("name")));
    // Arguments get the types that the tool declares: a number for a string argument stays a string.
    call(&["note_add", "text=42", "--session", "mine"]).good();
    let notes = call(&["note_list", "--session", "mine", "--json"]).json();
    assert_eq!(notes["structuredContent"], json!({ "notes": ["42"] }));
    let echoed = call(&["echo", "n=1", "list=[2]", "word=it is"]).good();
    assert_eq!(echoed, r#"{"list":[2],"n":1,"word":"it is"}"#);
    assert_eq!(call(&["echo", r#"{"a": 1.50}"#]).good(), r#"{"a":1.5}"#);
    let given = stayput(gateway.folder.path(), &["call", "test", "echo", "-"], r#"{"b":2}"#);
    assert_eq!(given.good(), r#"{"b":2}"#);
    // An answer that comes as an SSE stream is accepted, too.
    let slow = call(&["slow", "ms=1800", "steps=3"]);
    assert_eq!(slow.code, 0, "{slow:?}");
    assert!(call(&["fail"]).bad().contains("it failed, as it was asked to"));
    let failed = call(&["fail", "--json"]);
    assert_eq!((failed.code, failed.output.contains("isError")), (1, true));
    assert!(call(&["nothing"]).bad().contains("nothing"));
    assert!(call(&["echo", "x"]).bad().contains("NAME=VALUE"));
    assert!(call(&["echo", "{"]).bad().contains("JSON"));
    let unknown = run(&gateway, &["call", "other", "count"]).bad();
    assert!(unknown.contains("/mcp/test"), "{unknown}");
    drop(gateway);
    gone(&mark).await;
}

/// Over HTTP the token names the owner: calls run as that owner, and only the admin role sees sessions.
#[tokio::test]
async fn remote_gateway_is_called_with_a_token() {
    let mark = mark("elsewhere");
    let ((ann, ann_entry), (ops, ops_entry)) = (token(&["ann"]), token(&["ops", "--admin"]));
    let auth = json!({ "tokens": { "ann": ann_entry, "ops": ops_entry } });
    let servers = json!({ "test": stdio(&mark, &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let elsewhere = tempfile::tempdir().unwrap();
    for (name, token) in [("ann", &ann), ("ops", &ops)] {
        std::fs::write(elsewhere.path().join(name), format!("{token}\n")).unwrap();
    }
    let run = |who: Option<&str>, arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--url", gateway.url.as_str()]);
        all.extend(who.into_iter().flat_map(|who| ["--token-file", who]));
        stayput(elsewhere.path(), &all, "")
    };
    let keyed = ["call", "test", "count", "--session", "k"];
    assert_eq!(run(Some("ann"), &keyed).good(), "1");
    assert_eq!(run(Some("ops"), &keyed).good(), "1", "each has keys of its own");
    assert!(run(None, &keyed).bad().contains("who you are"));
    // Without a file the token comes from the environment, and the file counts first.
    let in_environment = |token: &str, more: &[&str]| {
        let all: Vec<_> =
            keyed.iter().chain(&["--url", &gateway.url]).chain(more).copied().collect();
        stayput_with(elsewhere.path(), Some(token), &all, "")
    };
    assert_eq!(in_environment(&ann, &[]).good(), "2");
    assert_eq!(in_environment("stp_unknown", &["--token-file", "ann"]).good(), "3");
    assert!(in_environment("", &[]).bad().contains("STAYPUT_TOKEN"));
    assert!(run(Some("ann"), &["sessions"]).bad().contains("`admin`"));
    let all = run(Some("ops"), &["sessions", "--json"]).json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let ended = run(Some("ops"), &["sessions", "end", "--owner", "ann"]).good();
    assert_eq!(ended, format!("ended {}", all[0]["id"].as_str().unwrap()));
    let left = run(Some("ops"), &["sessions", "ls", "--json"]).json();
    assert_eq!((&left[0]["owner"], left.as_array().unwrap().len()), (&json!("token#ops"), 1));
    drop(gateway);
    gone(&mark).await;
}
