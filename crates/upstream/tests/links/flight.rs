//! Concurrent first calls: one link.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::future::join_all;
use stayput_upstream::{EraChoice, Isolation, LinkOpenError, Options, Server, Timeouts};

use crate::support::{
    alive, call, close, links, none_alive, open, place, quick, server_with, stats, stdio, token,
    try_open, until,
};

/// Counts the starts of the server so far.
fn starts(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

/// Server that records each start in a file, and starts slowly.
fn counted(file: &Path, era: EraChoice, isolation: Option<Isolation>) -> Server {
    let stdio = stdio(&["--starts", file.to_str().unwrap(), "--startup-ms", "100"]);
    server_with(stdio, Options { era, isolation, ..quick() })
}

/// Invariant 4, R019, R020, R128, R129, E02. If the era of the server has to be probed first, the process of
/// the probe becomes that of the link.
#[tokio::test]
async fn fifty_first_calls_open_one_link() {
    for (era, isolation) in [
        (EraChoice::Legacy, None),
        (EraChoice::Auto, None),
        (EraChoice::Auto, Some(Isolation::PerSession)),
    ] {
        let (links, folder) = (links(), tempfile::tempdir().unwrap());
        let file = folder.path().join("starts");
        let (server, ann) = (counted(&file, era, isolation), place());
        let calls = (0..50).map(|_| async {
            let link = open(&links, &server, &ann).await;
            call(&link, "count", "{}").await.parse::<u32>().unwrap()
        });
        let mut counts = join_all(calls).await;
        counts.sort_unstable();
        assert_eq!(counts, (1..=50).collect::<Vec<_>>(), "{era:?}");
        let link = open(&links, &server, &ann).await;
        assert_eq!(stats(&link).await["initialize"], 1, "{era:?}");
        assert_eq!(starts(&file), 1, "{era:?}");
        assert_eq!((links.used().processes, links.status().len()), (1, 1));
        drop(link);
        close(&links).await;
    }
}

/// Ten sessions learn the era of a server from one process.
#[tokio::test]
async fn ten_sessions_probe_the_era_once() {
    let (links, folder) = (links(), tempfile::tempdir().unwrap());
    let file = folder.path().join("starts");
    let server = counted(&file, EraChoice::Auto, None);
    let calls = (0..10).map(|_| async {
        let link = open(&links, &server, &place()).await;
        assert_eq!(call(&link, "count", "{}").await, "1");
    });
    join_all(calls).await;
    assert_eq!(starts(&file), 10);
    close(&links).await;
}

/// E02, E28: all who waited for the same attempt get the same error, and there was one attempt.
#[tokio::test]
async fn fifty_first_calls_fail_with_one_attempt() {
    for (era, isolation) in [
        (EraChoice::Legacy, None),
        (EraChoice::Auto, None),
        (EraChoice::Auto, Some(Isolation::PerSession)),
    ] {
        let (links, folder) = (links(), tempfile::tempdir().unwrap());
        let file = folder.path().join("starts");
        let stdio = stdio(&["--starts", file.to_str().unwrap(), "--silent"]);
        let timeouts = Timeouts { open: Duration::from_millis(500), ..Timeouts::default() };
        let server = server_with(stdio, Options { era, isolation, timeouts, ..quick() });
        let ann = place();
        let opened = join_all((0..50).map(|_| try_open(&links, &server, &ann))).await;
        for error in opened {
            let error = error.unwrap_err();
            assert!(matches!(&*error, LinkOpenError::Silent { .. }), "{era:?}: {error}");
        }
        assert_eq!(starts(&file), 1, "{era:?}");
        let error = try_open(&links, &server, &ann).await.unwrap_err();
        assert!(matches!(&*error, LinkOpenError::BackingOff { .. }), "{era:?}: {error}");
        assert_eq!(starts(&file), 1, "{era:?}");
        close(&links).await;
    }
}

/// R020: slow I/O does not block unrelated keys.
#[tokio::test]
async fn slow_opening_blocks_no_other() {
    let links = links();
    let (slow, ann) = (server_with(stdio(&["--startup-ms", "60000"]), quick()), place());
    let waiting = tokio::select! {
        _ = open(&links, &slow, &ann) => panic!("it takes a minute"),
        link = async {
            until("it is being opened", || links.status().len() == 1).await;
            let server = server_with(stdio(&[]), quick());
            // The same session with another server, and the same server with another session.
            let link = open(&links, &server, &ann).await;
            call(&link, "count", "{}").await;
            link
        } => link,
    };
    assert_eq!(links.status().len(), 2);
    drop(waiting);
    close(&links).await;
}

/// Invariant 6: a cancelled opener does not cancel the others, and costs no second process.
#[tokio::test]
async fn cancelled_opener_does_not_cancel_others() {
    for era in [EraChoice::Legacy, EraChoice::Auto] {
        let (links, folder) = (links(), tempfile::tempdir().unwrap());
        let file = folder.path().join("starts");
        let (server, ann) = (Arc::new(counted(&file, era, None)), place());
        let mut first = Box::pin(open(&links, &server, &ann));
        tokio::select! {
            _ = &mut first => panic!("nothing is that fast"),
            () = until("it has begun", || starts(&file) == 1) => {}
        }
        let second = open(&links, &server, &ann);
        drop(first);
        let link = second.await;
        assert_eq!(call(&link, "count", "{}").await, "1");
        assert_eq!(starts(&file), 1, "{era:?}");
        drop(link);
        close(&links).await;
    }
}

/// Invariant 6: a link whose openers were all cancelled is there for the next, or ends with its session.
#[tokio::test]
async fn nothing_is_left_when_all_openers_were_cancelled() {
    for era in [EraChoice::Legacy, EraChoice::Auto] {
        for ended in [true, false] {
            let links = links();
            let (token, ann) = (token(), place());
            let stdio = stdio(&["--startup-ms", "60000"]).env("TOKEN", token.as_str());
            let server = server_with(stdio, Options { era, ..quick() });
            {
                let openers = join_all((0..5).map(|_| open(&links, &server, &ann)));
                tokio::pin!(openers);
                tokio::select! {
                    _ = &mut openers => panic!("it takes a minute"),
                    () = until("it has begun", || alive(&token).len() == 1) => {}
                }
            }
            assert_eq!(links.used().processes, 1);
            if ended {
                assert!(links.end(ann.session).await.is_empty());
                assert!(alive(&token).is_empty(), "{era:?}");
                assert_eq!(links.used().links, 0, "{era:?}");
            }
            close(&links).await;
            none_alive(&token).await;
        }
    }
}
