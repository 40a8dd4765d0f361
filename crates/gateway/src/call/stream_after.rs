//! How long a call is waited for before its answer becomes a stream.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

thread_local! {
    static WATCH: Cell<Watch> = const { Cell::new(Watch::Nobody) };
}

/// Who looks at the clock for what is polled here.
#[derive(Clone, Copy)]
enum Watch {
    Nobody,
    /// Whoever polls, and it is not time yet.
    Waits,
    Over,
}

/// Polls something for which the caller looks at the clock: a connection has one timer for all its calls.
/// `over` says that it is time. It is polled once more then.
pub(crate) fn watched<T>(over: bool, poll: impl FnOnce() -> T) -> T {
    struct Before(Watch);
    impl Drop for Before {
        fn drop(&mut self) {
            WATCH.set(self.0);
        }
    }
    let watch = if over { Watch::Over } else { Watch::Waits };
    let _before = Before(WATCH.replace(watch));
    poll()
}

/// Ready when patience is over. Where nobody looks at the clock it has a timer of its own.
#[derive(Debug)]
pub(crate) struct StreamDeadline {
    time: Duration,
    own: Option<Pin<Box<Sleep>>>,
}

impl StreamDeadline {
    /// For as long as this, unless the caller knows better.
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, own: None }
    }
}

impl Future for StreamDeadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match WATCH.get() {
            Watch::Over => Poll::Ready(()),
            Watch::Waits => Poll::Pending,
            Watch::Nobody => {
                let time = self.time;
                let own = self.own.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
                own.as_mut().poll(cx)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin};

    use super::*;

    #[tokio::test]
    async fn whoever_polls_may_look_at_the_clock() {
        let mut patience = pin!(StreamDeadline::new(Duration::from_millis(1)));
        let mut poll = async |over| {
            poll_fn(|cx| Poll::Ready(watched(over, || patience.as_mut().poll(cx).is_ready()))).await
        };
        assert!(!poll(false).await && poll(true).await && !poll(false).await);
        patience.await;
    }
}
