//! Waiting for many at once.

use std::{future::poll_fn, pin::Pin, task::Poll};

/// What all of them give, in their order. Dropped, all are.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<State<F>> =
        futures.into_iter().map(|future| State::Waits(Box::pin(future))).collect();
    poll_fn(|cx| {
        let mut done = Poll::Ready(());
        for state in &mut all {
            if let State::Waits(future) = state {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *state = State::Done(output),
                    Poll::Pending => done = Poll::Pending,
                }
            }
        }
        done
    })
    .await;
    let outputs = all.into_iter().filter_map(|state| match state {
        State::Done(output) => Some(output),
        State::Waits(_) => None,
    });
    outputs.collect()
}

enum State<F: Future> {
    Waits(Pin<Box<F>>),
    Done(F::Output),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn outputs_come_in_order_and_waits_add_up_to_the_longest() {
        let (first, wait) = tokio::sync::oneshot::channel();
        let mut first = Some(first);
        let mut wait = Some(wait);
        // The first one waits for what the last one does.
        let futures = (0..3).map(|number| {
            let (wait, first) = (
                if number == 0 { wait.take() } else { None },
                if number == 2 { first.take() } else { None },
            );
            async move {
                if let Some(wait) = wait {
                    wait.await.unwrap();
                }
                if let Some(first) = first {
                    first.send(()).unwrap();
                }
                number
            }
        });
        assert_eq!(all(futures).await, [0, 1, 2]);
    }
}
