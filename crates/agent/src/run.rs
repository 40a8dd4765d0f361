//! Runs, and the sub-agents in them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use stayput_core::scope::{InSession as _, Scope};
use tokio::task::futures::TaskLocalFuture;

use crate::{
    ambient::{self, Ambient, Share},
    branch::Branch,
    hold::Hold,
};

/// Runs a future as the root of a session, which ends with it.
pub(crate) async fn root<F: Future>(hold: Arc<Hold>, future: F) -> F::Output {
    let scope = Ambient::of(hold.clone()).scope();
    // If this is dropped half-way, or the future panics, that is the end, whoever still has the scope.
    let root = Root(hold.clone());
    let output = future.in_session(scope).await;
    // What it opened ends, not what is current when it returns (E04). If that fails it idles out.
    let _ = hold.finish().await;
    drop(root);
    output
}

/// The one who began a run: it is over with this.
#[derive(Debug)]
pub(crate) struct Root(pub(crate) Arc<Hold>);

impl Drop for Root {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// What a sub-agent may use of the session it is called in, in one line at the call:
///
/// ```
/// use stayput::{Hub, SubAgent as _};
/// # async fn research(_: &str) {}
/// # async fn example(hub: &Hub) {
/// hub.run(async {
///     // One shares the browser of this run, the other has its own.
///     tokio::join!(research("a"), research("b").isolated("browser").denied("shell"));
/// })
/// .await;
/// # }
/// ```
///
/// A sub-agent that is given no rule inherits: the same links, the same state. Outside any scope there is
/// nothing to share, and these change nothing.
pub trait SubAgent: Future + Sized {
    /// On a link of its own to this server, which ends with the sub-agent. What all sessions share, such as a
    /// server of the modern era, stays shared.
    fn isolated(self, server: &str) -> Sub<Self> {
        Sub::new(self, server, Want::Own)
    }

    /// On the link that whoever calls it has to this server. That is so without saying it, too; said, it is
    /// plain to see beside what is isolated or denied.
    fn inherited(self, server: &str) -> Sub<Self> {
        Sub::new(self, server, Want::Shared)
    }

    /// Without this server. What is denied to an agent is denied to its sub-agents.
    fn denied(self, server: &str) -> Sub<Self> {
        Sub::new(self, server, Want::Nothing)
    }
}

impl<F: Future> SubAgent for F {}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    Shared,
    Own,
    Nothing,
}

pin_project! {
    /// A sub-agent with rules of its own. See [`SubAgent`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Sub<F> {
        server: Box<str>,
        want: Want,
        // Until the first poll: the scope it runs in is that of whoever polls it.
        waiting: Option<F>,
        #[pin]
        running: Running<F>,
    }
}

pin_project! {
    #[project = Polled]
    #[derive(Debug)]
    enum Running<F> {
        NotYet,
        // Nothing is around it.
        Plain { #[pin] future: F },
        Scoped { #[pin] future: TaskLocalFuture<Scope, F> },
        Done,
    }
}

impl<F: Future> Sub<F> {
    fn new(future: F, server: &str, want: Want) -> Self {
        Self { server: server.into(), want, waiting: Some(future), running: Running::NotYet }
    }
}

impl<F: Future> Future for Sub<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if let Some(future) = this.waiting.take() {
            this.running.set(match scope(this.server, *this.want) {
                Some(scope) => Running::Scoped { future: future.in_session(scope) },
                None => Running::Plain { future },
            });
        }
        let polled = match this.running.as_mut().project() {
            Polled::Scoped { future } => future.poll(cx),
            Polled::Plain { future } => future.poll(cx),
            Polled::NotYet | Polled::Done => Poll::Pending,
        };
        if polled.is_ready() {
            // Its own links end with it, not with whoever keeps this.
            this.running.set(Running::Done);
        }
        polled
    }
}

/// The scope of a sub-agent, inside the one that it is called in.
pub(crate) fn scope(server: &str, want: Want) -> Option<Scope> {
    let around = ambient::innermost()?;
    let mut rules = around.rules.clone();
    match want {
        Want::Shared => {}
        Want::Own => rules.set(server, Share::Own(Branch::of(&around.hold))),
        Want::Nothing => rules.set(server, Share::Denied),
    }
    let ambient = Ambient {
        hold: around.hold.clone(),
        rules,
        // It is told of losses for itself.
        seen: Arc::new(around.seen.fork()),
        outer: around.outer.clone(),
    };
    Some(ambient.scope())
}
