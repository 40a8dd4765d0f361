//! Runs whose output is a stream.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use stayput_core::scope::Scope;

use super::{
    guard::SessionGuard,
    run::RunRoot,
    scope::{self, TaskScope},
};
use crate::Hub;

pin_project! {
    /// Stream that is a run: all its calls belong to one session, whichever task polls it. See
    /// [`Hub::run_stream`].
    #[must_use = "streams do nothing unless polled"]
    pub struct RunStream<S> {
        #[pin]
        stream: S,
        // `None` after the end of the stream.
        scope: Option<Scope>,
        // Ends the session of the run. `None` if the stream joined another run.
        root: Option<RunRoot>,
    }
}

impl Hub {
    /// Runs a stream as [`Hub::run`] runs a future: it is one run from its first item to its last, whichever tasks
    /// poll it, and the session ends when the stream ends or is dropped. Inside a scope of this hub, it joins that
    /// scope.
    pub fn run_stream<S: Stream>(&self, stream: S) -> RunStream<S> {
        if scope::current_of_hub(self.inner.id).is_some() {
            return RunStream { stream, scope: stayput_core::scope::current(), root: None };
        }
        let guard = SessionGuard::ephemeral(self.inner.clone());
        let scope = TaskScope::new(guard.clone()).into_scope();
        RunStream { stream, scope: Some(scope), root: Some(RunRoot(guard)) }
    }
}

impl<S: Stream> Stream for RunStream<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        let Some(scope) = this.scope.clone() else { return Poll::Ready(None) };
        let polled = stayput_core::scope::within(scope, || this.stream.poll_next(cx));
        if matches!(polled, Poll::Ready(None)) {
            *this.scope = None;
            *this.root = None;
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<S> fmt::Debug for RunStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunStream({:?})", self.scope)
    }
}
