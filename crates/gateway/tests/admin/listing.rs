//! `stayput sessions` and `stayput status`: states, prefixes of ids, the repeated list.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    commands::{Spoken, stayput},
    kit::{sessions, until_some},
    support::{Gateway, gone, mark, stdio},
};

fn run(gateway: &Gateway, arguments: &[&str]) -> Spoken {
    stayput(gateway.folder.path(), arguments, "")
}

/// The first characters of an id are enough, if no other id begins with them.
#[tokio::test]
async fn prefix_of_an_id_names_its_session() {
    let mark = mark("prefix");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    for _ in 0..2 {
        gateway.client("test").await.text(&gateway, "count").await;
    }
    let all = sessions(&gateway, "").await;
    let ids: Vec<&str> = all.iter().map(|it| it["id"].as_str().unwrap()).collect();
    let common = ids[0].bytes().zip(ids[1].bytes()).take_while(|(one, other)| one == other).count();
    let (unique, both) = (ids[1].get(..=common).unwrap(), ids[1].get(..common).unwrap());
    let shown = run(&gateway, &["sessions", "show", unique, "--json"]).good();
    assert!(shown.contains(ids[1]), "{shown}");
    assert!(run(&gateway, &["sessions", "show", &unique.to_uppercase()]).good().contains(ids[1]));
    let several = run(&gateway, &["sessions", "end", both]).bad();
    assert!(several.contains("several ids begin with") && several.contains(ids[0]), "{several}");
    let ended = run(&gateway, &["sessions", "end", unique]).good();
    assert_eq!(ended, format!("ended {}", ids[1]));
    let over = run(&gateway, &["sessions", "show", unique]).bad();
    assert!(over.contains("of one that is over, write the whole id"), "{over}");
    // Now the common part is enough for the other one.
    assert_eq!(run(&gateway, &["sessions", "end", both]).good(), format!("ended {}", ids[0]));
    drop(gateway);
    gone(&mark).await;
}

/// A client that listens and makes no call leaves its session `connected`. A call makes it `busy`.
#[tokio::test]
async fn listening_client_is_connected_and_not_busy() {
    let mark = mark("connected");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let mut stream = client.get(&gateway, None).await.events();
    stream.next().await.unwrap();
    let in_state = async |state: &str| {
        let query = format!("state={state}");
        until_some(state, async || sessions(&gateway, &query).await.into_iter().next()).await
    };
    let seen = in_state("connected").await;
    assert_eq!(seen["state"], "connected", "{seen}");
    assert!(run(&gateway, &["sessions", "ls", "--state", "busy", "--json"]).good() == "[]");
    let called = async {
        let call = client.call(&gateway, "slow", json!({ "ms": 600_000 }));
        tokio::time::timeout(std::time::Duration::from_secs(600), call).await
    };
    tokio::select! {
        _ = called => panic!("the call ended"),
        busy = in_state("busy") => assert_eq!(busy["state"], "busy", "{busy}"),
    }
    drop(stream);
    drop(gateway);
    gone(&mark).await;
}

/// Sessions that only the store has, here after a restart, are listed with `--all` alone.
#[tokio::test]
async fn away_sessions_are_listed_only_on_request() {
    let mark = mark("away");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    gateway.client("test").await.text(&gateway, "count").await;
    assert!(gateway.stop().success());
    gateway.restart().await;
    let listed = run(&gateway, &["sessions"]).good();
    assert_eq!(
        listed,
        "there are no sessions\n1 more is away, which means in the store only: --all lists them, too"
    );
    assert_eq!(run(&gateway, &["sessions", "--json"]).good(), "[]");
    for arguments in [&["sessions", "--all"][..], &["sessions", "ls", "--state", "away"]] {
        let listed = run(&gateway, arguments).good();
        assert!(listed.lines().count() == 2 && listed.contains(" away "), "{listed}");
    }
    let misplaced = run(&gateway, &["sessions", "--all", "ls"]);
    assert!(misplaced.bad().contains("behind the subcommand"));
    let status = run(&gateway, &["status", "--json"]).good();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (&status["sessions"]["away"], &status["process"]["sessions"]),
        (&json!(1), &json!(0))
    );
}

/// `--watch` lists again and again, until the gateway is gone.
#[tokio::test]
async fn watched_list_is_printed_again_until_the_gateway_ends() {
    let mark = mark("watch");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["sessions", "--watch", "--json"]).current_dir(gateway.folder.path());
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "[]");
    gateway.client("test").await.text(&gateway, "count").await;
    let mut seen =
        lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert!(seen.any(|list| list[0]["last_tool"] == "count"), "the next list has the session");
    assert!(gateway.stop().success());
    let rest = lines.count();
    let ended = watch.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{rest} more lists");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("no gateway runs"), "{ended:?}");
    gone(&mark).await;
}

/// `stayput status` shows the process, its sessions and its servers, without colours in a pipe.
#[tokio::test]
async fn status_shows_the_process_and_its_servers() {
    let mark = mark("status");
    let missing = json!({ "command": "stayput-no-such-program" });
    let servers = json!({ "test": stdio(&mark, &[]), "missing": missing });
    let gateway = Gateway::start(servers).await;
    let nothing = run(&gateway, &["status"]).good();
    assert!(nothing.contains("sessions    0\n") && !nothing.contains('\u{1b}'), "{nothing}");
    gateway.client("test").await.text(&gateway, "count").await;
    until_some("idle session", async || sessions(&gateway, "state=idle").await.pop()).await;
    let said = run(&gateway, &["status"]).good();
    let process = format!("`stayput serve`, process {}, up ", gateway.pid());
    for part in [&*process, ": ready\n", &*gateway.url, "sessions    1: 1 idle\n", "\nSERVER "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let row = said.lines().find(|line| line.starts_with("test ")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells.get(1..3), Some(&["stdio", "ready"][..]), "{said}");
    let json: Value = serde_json::from_str(&run(&gateway, &["status", "--json"]).good()).unwrap();
    assert_eq!(json["process"]["role"], "serve", "{json}");
    assert_eq!(
        (&json["process"]["url"], json["servers"].as_array().unwrap().len()),
        (&json!(gateway.url), 2)
    );
    drop(gateway);
    let elsewhere = tempfile::tempdir().unwrap();
    let none = stayput(elsewhere.path(), &["status"], "").bad();
    assert!(none.contains("no gateway runs"), "{none}");
    gone(&mark).await;
}

/// Memory is proportional: pages that processes of one session share count once.
#[tokio::test]
async fn memory_counts_shared_pages_once() {
    let mark = mark("pss");
    let server = stayput_testkit::program("stayput-testserver");
    // The children share the memory of the shell that started them, and sleep until the session ends.
    let script = format!(
        "import os, time\nkept = bytearray(os.urandom(1 << 20) * 96)\nfor _ in range(4):\n    if os.fork() == 0:\n        \
         time.sleep(3600)\nos.execv({server:?}, ['t', 'stdio', '--era', 'legacy', '--mark', {mark:?}])"
    );
    let entry = json!({ "command": "python3", "args": ["-c", script] });
    let gateway = Gateway::start(json!({ "test": entry })).await;
    gateway.client("test").await.text(&gateway, "count").await;
    let used = sessions(&gateway, "").await[0]["links"][0]["memory_bytes"].as_u64().unwrap();
    assert!(((90 << 20)..(250 << 20)).contains(&used), "{} MiB", used >> 20);
    drop(gateway);
    gone(&mark).await;
}
