//! Time after which the answer to a call becomes a stream.

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

/// Source of the deadline for the future that is polled on this thread.
#[derive(Clone, Copy)]
enum Watch {
    Nobody,
    /// The caller has a timer, which has not fired yet.
    Waits,
    Over,
}

/// Polls a future whose deadline is tracked by the caller: a connection has one timer for all its calls. `over` says
/// that the timer has fired; the caller polls once more then.
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

/// Future that is ready at the deadline. Outside of [`watched`] it uses its own timer.
#[derive(Debug)]
pub(crate) struct StreamDeadline {
    time: Duration,
    own: Option<Pin<Box<Sleep>>>,
}

impl StreamDeadline {
    /// Creates a deadline after this time, unless the caller tracks it.
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
    async fn deadline_follows_the_timer_of_the_caller() {
        let mut deadline = pin!(StreamDeadline::new(Duration::from_millis(1)));
        let mut poll = async |over| {
            poll_fn(|cx| Poll::Ready(watched(over, || deadline.as_mut().poll(cx).is_ready()))).await
        };
        assert!(!poll(false).await && poll(true).await && !poll(false).await);
        deadline.await;
    }
}
