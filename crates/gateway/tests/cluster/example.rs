//! The example of docs/replicas.md.

use std::process::Command;

use stayput_testkit::peers;

/// `examples/cluster/run` shows two chats over three gateways, and a failover.
#[test]
fn example_plays_a_failover_on_redis() {
    if peers::are_left_out() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster/run");
    let played = Command::new(script).arg(env!("CARGO_BIN_EXE_stayput")).output().unwrap();
    let text = String::from_utf8(played.stdout).unwrap();
    let problems = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{text}\n{problems}");
    let (before, after) = text.split_once("kill -9 gateway").unwrap();
    let list = |session: &str, notes: &str| format!("{session}: note_list -> {notes}\n");
    assert!(before.contains(&list("chat-1", "1. milk\n2. bread\n3. tea")), "{text}");
    assert!(before.contains(&list("chat-2", "1. stamps")), "{text}");
    assert!(after.contains("holder died"), "{text}");
    // The session of a gateway that lives keeps its notes.
    for (session, kept) in [("chat-1", "4. again"), ("chat-2", "2. again")] {
        let is_lost = after.contains(&list(session, "1. again"));
        assert!(is_lost || after.contains(kept), "{session}: {text}");
    }
    assert_eq!(
        after.matches("holder died").count(),
        after.matches("-> 1. again").count(),
        "{text}"
    );
}
