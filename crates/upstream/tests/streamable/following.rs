//! Readers of a call's answer: the future of the call, or a background task if it is not polled.

use stayput_testkit::mcp::TestServer;

use crate::support::{
    call, close, links, open, place,
    remote::{begin, end, legacy_at, until_counted},
    text, until,
};

/// A call is sent and read to its end, even if its future is not polled.
#[tokio::test]
async fn unpolled_call_is_read() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let made = begin(&link, "count", "{}").await;
    until("it has its answer", || link.in_flight() == 0).await;
    assert_eq!(text(&end(made).await.unwrap()), "1");
    close(&links).await;
}

/// So is a call that was polled before the answer came, and not after.
#[tokio::test]
async fn call_that_is_no_longer_polled_is_read() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for arguments in [r#"{"ms":100}"#, r#"{"ms":100,"steps":3}"#] {
        let mut made = begin(&link, "slow", arguments).await;
        tokio::select! {
            biased;
            incoming = made.next() => panic!("{incoming:?} before its time"),
            () = tokio::task::yield_now() => {}
        }
        until("it has its answer", || link.in_flight() == 0).await;
        assert_eq!(text(&end(made).await.unwrap()), "done");
    }
    close(&links).await;
}

/// Invariant 6: a call that is dropped while it is polled is cancelled once, even if nothing is polled again.
#[tokio::test]
async fn call_dropped_while_polled_is_cancelled() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for n in 1..=3 {
        let mut made = begin(&link, "slow", r#"{"ms":60000}"#).await;
        until_counted(&http, "tools/slow", n).await;
        tokio::select! {
            biased;
            incoming = made.next() => panic!("{incoming:?} before its time"),
            () = tokio::task::yield_now() => {}
        }
        drop(made);
        assert_eq!(link.in_flight(), 0);
        until_counted(&http, "notifications/cancelled", n).await;
    }
    assert_eq!(call(&link, "count", "{}").await, "1");
    close(&links).await;
}

/// A call can be polled outside any runtime.
#[test]
fn call_can_be_polled_without_a_runtime() {
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let home = home.unwrap();
    let (links, http, link) = home.block_on(async {
        let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
        let link = open(&links, &legacy_at(http.url()), &place()).await;
        (links, http, link)
    });
    for n in 1..=20 {
        let counted = futures_util::FutureExt::now_or_never(begin(&link, "count", "{}")).unwrap();
        let answer = wait(counted.answer()).unwrap();
        assert_eq!(text(&answer), n.to_string());
    }
    drop(link);
    home.block_on(close(&links));
    drop(http);
}

/// Polls on this thread, which is parked meanwhile.
fn wait<F: Future>(future: F) -> F::Output {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        let mut cx = std::task::Context::from_waker(&waker);
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::park();
    }
}
