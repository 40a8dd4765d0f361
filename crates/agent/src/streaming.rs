//! Runs that give their output piece by piece.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use stayput_core::scope::{self, Scope};

use crate::{
    Hub,
    ambient::{self, Ambient},
    hold::Hold,
    run::Root,
};

pin_project! {
    /// A stream that is a run: whatever it calls belongs to one session, whoever polls it. See
    /// [`Hub::run_stream`].
    #[must_use = "streams do nothing unless polled"]
    pub struct RunStream<S> {
        #[pin]
        stream: S,
        // Until it is over.
        scope: Option<Scope>,
        // Ends the session of a stream that is a run of its own.
        root: Option<Root>,
    }
}

impl Hub {
    /// As [`Hub::run`], for a stream: it is one run from its first piece to its last, whichever tasks
    /// take them, and ends when it is over or dropped. Made inside a scope, it belongs to that one.
    pub fn run_stream<S: Stream>(&self, stream: S) -> RunStream<S> {
        if ambient::of_hub(self.inner.id).is_some() {
            return RunStream { stream, scope: scope::current(), root: None };
        }
        let hold = Hold::own(self.inner.clone());
        let scope = Ambient::of(hold.clone()).scope();
        RunStream { stream, scope: Some(scope), root: Some(Root(hold)) }
    }
}

impl<S: Stream> Stream for RunStream<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        let Some(scope) = this.scope.clone() else { return Poll::Ready(None) };
        let polled = scope::within(scope, || this.stream.poll_next(cx));
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
