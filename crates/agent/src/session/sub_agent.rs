//! Sub-agents: futures with their own access to the servers of a session.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use stayput_core::scope::{InSession as _, Scope};
use tokio::task::futures::TaskLocalFuture;

use super::{
    access::ServerRule,
    scope::{TaskContext, is_known_around},
};

/// Access of a sub-agent to the servers of the session in which it is called:
///
/// ```
/// use stayput::{Hub, SubAgent as _};
/// # async fn research(_: &str) {}
/// # async fn example(hub: &Hub) {
/// hub.run(async {
///     // The first shares the browser of this run, the second has its own and no shell.
///     tokio::join!(research("a"), research("b").isolated("browser").denied("shell"));
/// })
/// .await;
/// # }
/// ```
///
/// Without a rule a sub-agent inherits: the same links, the same state. A rule holds in every session that the sub-agent
/// uses, in its own sub-agents, and outside any scope. If a rule names a server that the hub does not have, all calls of
/// the sub-agent fail with [`Error::UnknownServer`](crate::Error::UnknownServer).
pub trait SubAgent: Future + Sized {
    /// Gives it its own link to this server in each session, which ends with the sub-agent. A server that all sessions share, such as
    /// one of the modern era, stays shared.
    fn isolated(self, server: &str) -> SubAgentFuture<Self> {
        SubAgentFuture::new(self, server, Access::Isolated)
    }

    /// Lets it use its caller's link to this server. This is the default; it only makes the choice explicit.
    fn inherited(self, server: &str) -> SubAgentFuture<Self> {
        SubAgentFuture::new(self, server, Access::Inherited)
    }

    /// Denies it this server, and also denies it to its own sub-agents.
    fn denied(self, server: &str) -> SubAgentFuture<Self> {
        SubAgentFuture::new(self, server, Access::Denied)
    }
}

impl<F: Future> SubAgent for F {}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Inherited,
    Isolated,
    Denied,
}

pin_project! {
    /// Future of a sub-agent. See [`SubAgent`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct SubAgentFuture<F> {
        server: Box<str>,
        access: Access,
        // Taken by the first poll: the enclosing scope is that of the task that polls it.
        unstarted: Option<F>,
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjection]
    #[derive(Debug)]
    enum State<F> {
        Unstarted,
        Started { #[pin] future: TaskLocalFuture<Scope, F> },
        Done,
    }
}

impl<F: Future> SubAgentFuture<F> {
    fn new(future: F, server: &str, access: Access) -> Self {
        Self { server: server.into(), access, unstarted: Some(future), state: State::Unstarted }
    }
}

impl<F: Future> Future for SubAgentFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if let Some(future) = this.unstarted.take() {
            let scope = sub_agent_scope(None, this.server, *this.access);
            this.state.set(State::Started { future: future.in_session(scope) });
        }
        let polled = match this.state.as_mut().project() {
            StateProjection::Started { future } => future.poll(cx),
            StateProjection::Unstarted | StateProjection::Done => Poll::Pending,
        };
        if polled.is_ready() {
            // Drops the scope now, so that its own links end even if the caller keeps this value.
            this.state.set(State::Done);
        }
        polled
    }
}

/// Creates the scope of a sub-agent inside the current one, with a rule for a server of one hub or of each.
pub(crate) fn sub_agent_scope(hub: Option<u64>, server: &str, access: Access) -> Scope {
    let is_known = is_known_around(server);
    let context = TaskContext::of_sub_agent(|rules| match access {
        Access::Inherited => rules.clone(),
        Access::Isolated => {
            rules.with(hub, (server, is_known), ServerRule::Isolated(Arc::default()))
        }
        Access::Denied => rules.with(hub, (server, is_known), ServerRule::Denied),
    });
    context.into_scope()
}
