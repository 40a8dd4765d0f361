//! Standalone process: input, output and exit.

use serde_json::json;

use crate::{
    kit::{Home, servers},
    support::{gone, mark, stdio},
};

/// R050, R051, R169: without any setup the process has one session, and leaves nothing behind.
#[tokio::test]
async fn client_has_one_session_until_it_leaves() {
    let (home, mark) = (Home::new(), mark("stdio-one"));
    let mut window = home.alone(&mark, &[]);
    let greeting = window.greet().await;
    assert_eq!(greeting["result"]["protocolVersion"], "2025-11-25");
    assert_eq!((window.count().await, window.count().await), ("1".to_owned(), "2".to_owned()));
    assert_eq!(servers(&mark), 1);
    assert!(window.close().await.success());
    gone(&mark).await;
    // R054: the next process starts with a new state, and reports no loss.
    let mut window = home.alone(&mark, &[]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// A file with several servers: `--server` chooses one, without it all are merged. The error for an unknown name lists
/// the known ones.
#[tokio::test]
async fn servers_of_a_file_are_chosen_by_name_or_merged() {
    let (home, mark) = (Home::new(), mark("stdio-file"));
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &["--tool", "extra"]) });
    let file = home.0.path().join("team.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let mut window = home.window(&["--no-daemon", "--config", file, "--server", "two"]);
    window.greet().await;
    assert_eq!(window.text("extra", json!({})).await, "extra");
    assert!(window.close().await.success());
    let mut window = home.window(&["--no-daemon", "--config", file]);
    window.greet().await;
    assert_eq!(window.text("two__extra", json!({})).await, "extra");
    assert_eq!(window.text("one__count", json!({})).await, "1");
    assert!(window.close().await.success());
    let mut window = home.window(&["--no-daemon", "--config", file, "--server", "three"]);
    assert_eq!(window.rest().await, Vec::<String>::new());
    assert_eq!(window.wait().await.code(), Some(1));
    let log = window.log();
    assert!(log.contains("\"three\"") && log.contains("one, two"), "{log}");
    let mut window = home.window(&["--no-daemon"]);
    assert_eq!(window.wait().await.code(), Some(1));
    assert!(window.log().contains("behind `--`"), "{}", window.log());
    gone(&mark).await;
}

/// R052, R053: a client has a session even without `initialize`. A second `initialize` starts another one.
#[tokio::test]
async fn second_initialize_starts_a_new_session() {
    let (home, mark) = (Home::new(), mark("stdio-anew"));
    let mut window = home.alone(&mark, &[]);
    assert_eq!((window.count().await, window.count().await), ("1".to_owned(), "2".to_owned()));
    window.greet().await;
    assert_eq!(window.count().await, "3", "what was made in passing is what was greeted");
    window.greet().await;
    assert_eq!(window.count().await, "1");
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// Each malformed line is answered, and has no other effect. Only messages are written to stdout.
#[tokio::test]
async fn malformed_lines_are_answered() {
    let (home, mark) = (Home::new(), mark("stdio-invalid_lines"));
    let mut window = home.alone(&mark, &[]);
    window.greet().await;
    for (line, code) in [
        ("invalid_lines", -32_700),
        ("{\"jsonrpc\":\"2.0\",", -32_700),
        ("\u{fffd}\u{0}", -32_700),
        ("{}", -32_600),
        ("[]", -32_600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32_600),
        ("17", -32_600),
    ] {
        window.say(line).await;
        let answer = window.hear().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &json!(null)),
            "{line}"
        );
    }
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"x":"{}"}}"#, "x".repeat(33 << 20));
    window.say(&long).await;
    assert_eq!(window.hear().await["error"]["code"], -32_700);
    window.say("").await;
    window.say("\r").await;
    assert_eq!(window.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(window.count().await, "1");
    for line in window.rest().await {
        serde_json::from_str::<serde_json::Value>(&line).unwrap_or_else(|_| panic!("{line}"));
    }
    assert!(window.wait().await.success());
    gone(&mark).await;
}

/// Large messages pass complete in both directions.
#[tokio::test]
async fn large_messages_pass_in_both_directions() {
    let (home, mark) = (Home::new(), mark("stdio-large"));
    let mut window = home.alone(&mark, &[]);
    window.greet().await;
    let large = "ä\"\\x".repeat(250_000);
    let said = window.text("echo", json!({ "it": large })).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&said).unwrap()["it"], *large);
    assert_eq!(window.text("big", json!({ "bytes": 3 << 20 })).await.len(), 3 << 20);
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// Progress and server requests come before the answer, and the client's answer reaches the server.
#[tokio::test]
async fn progress_and_server_requests_pass() {
    let (home, mark) = (Home::new(), mark("stdio-asks"));
    let mut window = home.alone(&mark, &[]);
    window.greet_with(json!({ "elicitation": {} })).await;
    let slow = json!({ "name": "slow", "arguments": { "ms": 300, "steps": 3 },
        "_meta": { "progressToken": "p" } });
    let answer = window.ask("tools/call", slow).await;
    assert!(answer["result"].is_object(), "{answer}");
    let progress = window.heard.iter().filter(|it| it["method"] == "notifications/progress");
    assert_eq!(progress.count(), 4, "{:?}", window.heard);
    let call = json!({ "name": "elicit", "arguments": {} });
    let id = window.send("tools/call", call).await;
    let question = window.hear().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let reply = json!({ "jsonrpc": "2.0", "id": question["id"],
        "result": { "action": "accept", "content": { "answer": "yes" } } });
    window.say(&reply.to_string()).await;
    let answer = window.answer(id).await;
    assert!(answer["result"].is_object(), "{answer}");
    // A cancelled call gets no answer, and the next call does.
    let id =
        window.send("tools/call", json!({ "name": "slow", "arguments": { "ms": 60_000 } })).await;
    let back = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    window.say(&back.to_string()).await;
    assert_eq!(window.count().await, "1");
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// End of input, a signal, and a closed output: each ends the process and the call in flight.
#[tokio::test]
async fn every_exit_is_clean() {
    let (home, mark) = (Home::new(), mark("stdio-ends"));
    for how in ["input", "-TERM", "-INT", "output"] {
        let mut window = home.alone(&mark, &[]);
        window.greet().await;
        window.count().await;
        // At the end of the input the process waits for answers, see `piped_requests_are_answered_before_the_exit`.
        if how != "input" {
            let slow = json!({ "name": "slow", "arguments": { "ms": 600_000 } });
            window.send("tools/call", slow).await;
        }
        match how {
            "input" => assert!(window.close().await.success()),
            "output" => {
                window.stop_reading();
                window.send("ping", json!({})).await;
                assert!(window.wait().await.success(), "{how}");
            }
            signal => {
                window.kill(signal);
                assert!(window.wait().await.success(), "{how}");
            }
        }
        gone(&mark).await;
    }
}

/// A key resumes the session. The loss of the child's state is reported once.
#[tokio::test]
async fn key_resumes_a_session_and_the_loss_is_reported() {
    let (home, mark) = (Home::new(), mark("stdio-key"));
    let mut window = home.alone(&mark, &["--session", "work"]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    let mut second = home.alone(&mark, &["--session", "work"]);
    assert_eq!(second.wait().await.code(), Some(1));
    assert!(second.log().contains("--no-daemon"), "{}", second.log());
    assert!(window.close().await.success());
    gone(&mark).await;
    let mut window = home.alone(&mark, &["--session", "work"]);
    window.greet().await;
    let lost = window.call("count", json!({})).await;
    assert_eq!(lost["result"]["isError"], true, "{lost}");
    assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
    assert_eq!(window.count_after_a_loss().await, "1");
    assert!(window.close().await.success());
    gone(&mark).await;
}
