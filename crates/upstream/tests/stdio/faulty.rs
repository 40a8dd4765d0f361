//! Faulty programs.

use std::time::Duration;

use stayput_process::Grace;
use stayput_process::{ExitStatus, Processes, StartError};
use stayput_testkit::processes;
use stayput_upstream::{
    CallError, CallOptions, Delivery, LinkOpenError, LinkSettings, Links, LossReason, Options,
    SessionDirs, Stdio, Timeouts,
};
use tokio::runtime::Handle;

use crate::support::{
    LONG, SHAKE, alive, call, close, links, none_alive, open, params, place, quick, scripted,
    server_with, shell, stdio, token, try_call, try_open, until,
};

/// R029.
#[tokio::test]
async fn missing_program_is_named() {
    let links = links();
    let server = server_with(Stdio::new("no-such-program").env("KEY", "s3cret"), quick());
    let error = try_open(&links, &server, &place()).await.unwrap_err();
    assert!(
        matches!(&*error, LinkOpenError::Start { error: StartError::NotFound { .. }, .. }),
        "{error}"
    );
    let said = format!("{error} {error:?} {server:?}");
    assert!(said.contains("no-such-program") && !said.contains("s3cret"), "{said}");
    assert_eq!(links.used().links, 0);
    close(&links).await;
}

/// R029: the error contains the exit status and stderr.
#[tokio::test]
async fn program_that_exits_at_once_is_reported_with_stderr() {
    let links = links();
    let (token, ann) = (token(), place());
    let server = shell("echo 'API_KEY is not set' >&2; exit 7", &token);
    let error = try_open(&links, &server, &ann).await.unwrap_err();
    let LinkOpenError::Exited { exited, hint, .. } = &*error else { panic!("{error}") };
    assert_eq!(*exited, ExitStatus::Code(7));
    assert!(hint.contains("API_KEY is not set"), "{hint}");
    let said = error.to_string();
    assert!(said.contains("code 7") && said.contains("API_KEY is not set"), "{said}");
    // E28: the program is not started again at once.
    let error = try_open(&links, &server, &ann).await.unwrap_err();
    let LinkOpenError::BackingOff { last, .. } = &*error else { panic!("{error}") };
    assert!(last.contains("API_KEY is not set"), "{last}");
    until("its place is free", || links.used().links == 0).await;
    close(&links).await;
}

/// E25: a start that times out ends its processes.
#[tokio::test]
async fn program_that_never_answers_is_ended() {
    let links = links();
    let (token, limit) = (token(), Duration::from_millis(500));
    let timeouts = Timeouts { open: limit, ..Timeouts::default() };
    let server = server_with(
        stdio(&["--silent", "--ignore-eof"]).env("TOKEN", token.as_str()),
        Options { timeouts, ..quick() },
    );
    let error = try_open(&links, &server, &place()).await.unwrap_err();
    let LinkOpenError::Silent { method, .. } = &*error else { panic!("{error}") };
    assert_eq!(method, "initialize");
    none_alive(&token).await;
    until("its place is free", || links.used().links == 0).await;
    close(&links).await;
}

#[tokio::test]
async fn malformed_lines_between_messages_are_skipped() {
    let links = links();
    let link = open(&links, &server_with(stdio(&["--invalid-lines"]), quick()), &place()).await;
    for n in 1..=3 {
        assert_eq!(call(&link, "count", "{}").await, n.to_string());
    }
    assert!(link.counts().invalid_lines >= 3, "{:?}", link.counts());
    drop(link);
    close(&links).await;
}

/// A line over the limit fails the waiting calls. It does not end the link or use memory.
#[tokio::test]
async fn line_of_fifty_megabytes_fails_the_call_and_not_the_link() {
    let links = Links::new(
        LinkSettings {
            message_limit: 1 << 20,
            ..LinkSettings::new(
                Processes::local(Handle::current()),
                SessionDirs::temporary().unwrap(),
            )
        },
        Handle::current(),
    );
    let script = r#"take
head -c 52428800 /dev/zero | tr '\0' x; echo
answer $id '{"late":true}'
take
answer $id '{"content":[{"type":"text","text":"here"}]}'
cat >/dev/null"#;
    let link = open(&links, &scripted(script, &token()), &place()).await;
    let before = processes::memory(std::process::id());
    let error = try_call(&link, "x", "{}").await.unwrap_err();
    assert!(matches!(error, CallError::TooLarge { .. }), "{error}");
    assert_eq!(call(&link, "x", "{}").await, "here");
    assert_eq!(link.counts().late, 1, "the answer that came after all");
    let grown = processes::memory(std::process::id()).saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes");
    drop(link);
    // Before the first message there is no link yet that could survive.
    let server = server_with(stdio(&["--long-line", "8000000"]), quick());
    let error = try_open(&links, &server, &place()).await.unwrap_err();
    assert!(matches!(&*error, LinkOpenError::Protocol { .. }), "{error}");
    close(&links).await;
}

/// R015: stderr is always read, because the child would block otherwise. Its end is kept.
#[tokio::test]
async fn flood_on_stderr_is_read_and_dropped() {
    let links = links();
    let link = open(&links, &server_with(stdio(&["--stderr-flood"]), quick()), &place()).await;
    for n in 1..=5 {
        assert_eq!(call(&link, "count", "{}").await, n.to_string());
    }
    let words = link.stderr_tail();
    assert!(!words.is_empty() && words.len() <= 64 << 10, "{}", words.len());
    drop(link);
    close(&links).await;
}

/// R034, E25.
#[tokio::test]
async fn child_that_ignores_eof_and_term_is_killed() {
    let links = links();
    let (token, ann) = (token(), place());
    let stubborn = stdio(&["--ignore-eof", "--ignore-term"]).env("TOKEN", token.as_str());
    let link = open(&links, &server_with(stubborn, quick()), &ann).await;
    call(&link, "count", "{}").await;
    assert_eq!(alive(&token).len(), 1);
    assert!(links.end(ann.session).await.is_empty());
    assert!(alive(&token).is_empty());
    assert_eq!((links.used().links, link.is_gone()), (0, true));
    close(&links).await;
}

/// Invariant 5, E25: a process that left the group and the session ends, too.
#[tokio::test]
async fn hidden_grandchild_ends_with_the_link() {
    let links = links();
    let (token, ann) = (token(), place());
    let server = server_with(stdio(&["--daemonize"]).env("TOKEN", token.as_str()), quick());
    drop(open(&links, &server, &ann).await);
    assert_eq!(alive(&token).len(), 2, "the server and what it started");
    assert!(links.end(ann.session).await.is_empty());
    assert!(alive(&token).is_empty());
    close(&links).await;
}

/// E13, E22, R030: calls in flight fail at once and are not sent again. The next link has another generation and the
/// reason of the loss.
#[tokio::test]
async fn crash_fails_the_call_and_the_next_link_reports_the_loss() {
    let links = links();
    let (server, ann) = (server_with(stdio(&[]), quick()), place());
    let old = open(&links, &server, &ann).await;
    assert!(old.loss().is_none());
    call(&old, "count", "{}").await;
    let slow = params("slow", r#"{"ms":60000}"#);
    let slow = old.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    let crash = try_call(&old, "crash", "{}").await.unwrap_err();
    let slow = tokio::time::timeout(LONG, slow.answer()).await.unwrap().unwrap_err();
    for error in [&crash, &slow] {
        let loss = error.loss().unwrap_or_else(|| panic!("{error}"));
        assert_eq!(loss.reason(), LossReason::Exited(ExitStatus::Code(3)));
        assert_eq!(error.delivery(), Delivery::Unknown);
    }
    let new = open(&links, &server, &ann).await;
    assert_eq!(new.generation(), old.generation().next());
    assert_eq!(new.loss().unwrap().reason(), LossReason::Exited(ExitStatus::Code(3)));
    // Late events of the old link have no effect.
    let late = try_call(&old, "count", "{}").await.unwrap_err();
    assert_eq!((late.delivery(), old.in_flight()), (Delivery::NotSent, 0));
    drop(old);
    assert_eq!(call(&new, "count", "{}").await, "1");
    let again = open(&links, &server, &ann).await;
    assert_eq!(again.generation(), new.generation());
    assert_eq!(call(&again, "count", "{}").await, "2");
    drop((new, again));
    close(&links).await;
}

/// E19, E22.
#[tokio::test]
async fn child_that_closes_its_output_is_ended() {
    let links = links();
    let (token, ann) = (token(), place());
    let script = "read -r line\necho 'out of words' >&2\nexec >&-\nsleep 1000";
    let link = open(&links, &scripted(script, &token), &ann).await;
    let error = try_call(&link, "x", "{}").await.unwrap_err();
    let loss = error.loss().unwrap();
    assert!(matches!(loss.reason(), LossReason::Exited(_)), "{loss:?}");
    assert!(loss.detail().contains("closed its output"), "{}", loss.detail());
    assert!(loss.detail().contains("out of words"), "{}", loss.detail());
    none_alive(&token).await;
    until("its place is free", || links.used().links == 0).await;
    drop(link);
    // The same before its first message.
    let error = try_open(&links, &shell("exec >&-; sleep 1000", &token), &place()).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("closed its output"), "{error}");
    none_alive(&token).await;
    close(&links).await;
}

/// An answer that a child wrote before its exit counts.
#[tokio::test]
async fn last_answer_of_a_child_counts() {
    let links = links();
    let script = r#"take
printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"bye"}]}}' $id
exit 0"#;
    let link = open(&links, &scripted(script, &token()), &place()).await;
    assert_eq!(call(&link, "x", "{}").await, "bye");
    let loss = tokio::time::timeout(LONG, link.over()).await.unwrap();
    assert_eq!(loss.reason(), LossReason::Exited(ExitStatus::Code(0)));
    drop(link);
    close(&links).await;
}

/// A descendant that floods the pipes of a dead child blocks nothing, not even on a single thread.
#[tokio::test]
async fn flood_from_inherited_pipes_does_not_block() {
    let links = links();
    let (token, ann) = (token(), place());
    let flood = r#"(trap '' TERM; yes '{"jsonrpc":"2.0","method":"notifications/message"}') &
(trap '' TERM; yes 'words' >&2) &"#;
    let server = shell(&format!("{SHAKE}\n{flood}\nread -r line\nexit 5"), &token);
    let link = open(&links, &server, &ann).await;
    let error = try_call(&link, "x", "{}").await.unwrap_err();
    assert_eq!(error.loss().unwrap().reason(), LossReason::Exited(ExitStatus::Code(5)));
    none_alive(&token).await;
    drop(link);
    // The same holds when the link ends during the flood.
    let server = shell(&format!("{SHAKE}\n{flood}\nsleep 1000"), &token);
    let link = open(&links, &server, &place()).await;
    let ended = links.end(link.key().scope().session().unwrap());
    assert!(tokio::time::timeout(LONG, ended).await.unwrap().is_empty());
    assert!(alive(&token).is_empty());
    drop(link);
    close(&links).await;
}

/// E22: the exit of a child is noticed within a moment even if a silent descendant keeps its pipes open, with or
/// without a call in flight. Only the exit itself shows it.
#[tokio::test]
async fn silent_inherited_pipes_do_not_hide_an_exit() {
    let links = links();
    let token = token();
    let heir = "(trap '' TERM; exec sleep 1000) &";
    let server = shell(&format!("{SHAKE}\n{heir}\nread -r line\nexit 6"), &token);
    let link = open(&links, &server, &place()).await;
    let error = try_call(&link, "x", "{}").await.unwrap_err();
    assert_eq!(error.loss().unwrap().reason(), LossReason::Exited(ExitStatus::Code(6)));
    assert_eq!(error.delivery(), Delivery::Unknown);
    none_alive(&token).await;
    drop(link);
    let server = shell(&format!("{SHAKE}\n{heir}\nexit 7"), &token);
    let link = open(&links, &server, &place()).await;
    let loss = tokio::time::timeout(LONG, link.over()).await.unwrap();
    assert_eq!(loss.reason(), LossReason::Exited(ExitStatus::Code(7)));
    none_alive(&token).await;
    drop(link);
    close(&links).await;
}

/// The grace period of a child is configured per server.
#[tokio::test]
async fn child_that_cleans_up_has_its_grace_period() {
    let links = links();
    let (folder, ann) = (tempfile::tempdir().unwrap(), place());
    let done = folder.path().join("done");
    let script = format!("{SHAKE}\ncat >/dev/null\nsleep 0.5\necho done >{}", done.display());
    let grace = Grace { quit: LONG, term: LONG };
    let server = server_with(Stdio::new("sh").args(["-c", &script]), Options { grace, ..quick() });
    drop(open(&links, &server, &ann).await);
    assert!(links.end(ann.session).await.is_empty());
    assert!(done.exists(), "it was not let finish");
    close(&links).await;
}
