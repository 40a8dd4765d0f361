//! Current request of a task.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::RequestSession;

thread_local! {
    static CURRENT: Cell<Option<Arc<RequestSession>>> = const { Cell::new(None) };
}

/// Returns the current request.
pub(crate) fn current() -> Option<Arc<RequestSession>> {
    let look = |slot: &Cell<Option<Arc<RequestSession>>>| {
        let request_session = slot.take();
        slot.set(request_session.clone());
        request_session
    };
    CURRENT.try_with(look).ok().flatten()
}

/// Runs synchronous work for a request.
pub(crate) fn run_in_scope<T>(
    request_session: &Arc<RequestSession>,
    work: impl FnOnce() -> T,
) -> T {
    let mut request_session = Some(request_session.clone());
    let _guard = ScopeGuard::enter(&mut request_session);
    work()
}

pin_project! {
    /// Future that runs for a request. Smaller than `tokio::task_local!`, because every request passes through it.
    pub(crate) struct RequestScope<F> {
        request_session: Option<Arc<RequestSession>>,
        #[pin]
        work: F,
    }
}

impl<F> RequestScope<F> {
    pub(crate) fn new(request_session: Arc<RequestSession>, work: F) -> Self {
        Self { request_session: Some(request_session), work }
    }

    pub(crate) fn request_session(&self) -> Option<&Arc<RequestSession>> {
        self.request_session.as_ref()
    }

    /// Takes the request after the work is done.
    pub(crate) fn take_request(self: Pin<&mut Self>) -> Option<Arc<RequestSession>> {
        self.project().request_session.take()
    }
}

impl<F: Future> Future for RequestScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _guard = ScopeGuard::enter(this.request_session);
        this.work.poll(cx)
    }
}

/// Makes a request the current one while the guard exists; the previous one is stored in its place.
struct ScopeGuard<'a>(&'a mut Option<Arc<RequestSession>>);

impl<'a> ScopeGuard<'a> {
    fn enter(request_session: &'a mut Option<Arc<RequestSession>>) -> Self {
        swap(request_session);
        Self(request_session)
    }
}

impl Drop for ScopeGuard<'_> {
    fn drop(&mut self) {
        swap(self.0);
    }
}

fn swap(request_session: &mut Option<Arc<RequestSession>>) {
    // While a thread shuts down, there is no current request.
    let _ = CURRENT.try_with(|slot| *request_session = slot.replace(request_session.take()));
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, panic::AssertUnwindSafe};

    use stayput_core::Owner;

    use super::*;
    use crate::{
        ServerSessions,
        names::RequestHeaders,
        request::{RequestKind, parse::from_headers},
    };

    fn request_session() -> Arc<RequestSession> {
        let (sessions, owner, headers) =
            (ServerSessions::in_memory(), Owner::anonymous(), Default::default());
        let info =
            from_headers(&sessions, &owner, &RequestHeaders::read(&headers), RequestKind::ToolCall);
        RequestSession::new(sessions, owner, info)
    }

    fn is_current(request_session: &Arc<RequestSession>) -> bool {
        current().is_some_and(|it| Arc::ptr_eq(&it, request_session))
    }

    /// R041: the request is current inside the scope, and the previous one outside, also after a panic.
    #[tokio::test]
    async fn scope_restores_the_previous_request() {
        let [one, two] = [request_session(), request_session()];
        let mut polls = 0;
        let inner = poll_fn(|cx| {
            assert!(is_current(&two));
            polls += 1;
            cx.waker().wake_by_ref();
            if polls > 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut inner = std::pin::pin!(RequestScope::new(two.clone(), inner));
        let outer = poll_fn(|cx| {
            let polled = inner.as_mut().poll(cx);
            assert!(is_current(&one));
            polled
        });
        RequestScope::new(one.clone(), outer).await;
        assert!(current().is_none());
        assert!(inner.take_request().is_some_and(|it| Arc::ptr_eq(&it, &two)));
        let panics = AssertUnwindSafe(|| run_in_scope(&one, || panic!("on purpose")));
        assert!(std::panic::catch_unwind(panics).is_err() && current().is_none());
    }
}
