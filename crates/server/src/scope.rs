//! The request that a task works on.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use crate::visit::Visit;

thread_local! {
    static CURRENT: Cell<Option<Arc<Visit>>> = const { Cell::new(None) };
}

/// The request that is worked on here and now.
pub(crate) fn current() -> Option<Arc<Visit>> {
    let look = |slot: &Cell<Option<Arc<Visit>>>| {
        let visit = slot.take();
        slot.set(visit.clone());
        visit
    };
    CURRENT.try_with(look).ok().flatten()
}

/// Does something for a request at once.
pub(crate) fn within<T>(visit: &Arc<Visit>, work: impl FnOnce() -> T) -> T {
    let mut visit = Some(visit.clone());
    let _turn = Turn::of(&mut visit);
    work()
}

pin_project! {
    /// Work on a request. Every request has some of it, and so it is as little as it can be: `tokio::task_local!` does the
    /// same with several times the code.
    pub(crate) struct Scoped<F> {
        visit: Option<Arc<Visit>>,
        #[pin]
        work: F,
    }
}

impl<F> Scoped<F> {
    pub(crate) fn new(visit: Arc<Visit>, work: F) -> Self {
        Self { visit: Some(visit), work }
    }

    pub(crate) fn visit(&self) -> Option<&Arc<Visit>> {
        self.visit.as_ref()
    }

    /// The request, for whoever goes on with it when the work is done.
    pub(crate) fn take(self: Pin<&mut Self>) -> Option<Arc<Visit>> {
        self.project().visit.take()
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _turn = Turn::of(this.visit);
        this.work.poll(cx)
    }
}

/// While this lives, a request is the current one, and the one before it is kept in its place.
struct Turn<'a>(&'a mut Option<Arc<Visit>>);

impl<'a> Turn<'a> {
    fn of(visit: &'a mut Option<Arc<Visit>>) -> Self {
        swap(visit);
        Self(visit)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        swap(self.0);
    }
}

fn swap(visit: &mut Option<Arc<Visit>>) {
    // A thread that ends has no current one.
    let _ = CURRENT.try_with(|slot| *visit = slot.replace(visit.take()));
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, panic::AssertUnwindSafe};

    use stayput_core::Owner;

    use super::*;
    use crate::{
        Keeper,
        ask::{Kind, plain},
        head::Head,
    };

    fn visit() -> Arc<Visit> {
        let (keeper, owner, headers) = (Keeper::memory(), Owner::anonymous(), Default::default());
        let meant = plain(&keeper, &owner, &Head::read(&headers), Kind::Tool);
        Visit::new(keeper, owner, meant)
    }

    fn is_current(visit: &Arc<Visit>) -> bool {
        current().is_some_and(|it| Arc::ptr_eq(&it, visit))
    }

    /// R041: inside is the request, and outside is who was there before, however the work ends.
    #[tokio::test]
    async fn a_scope_ends_with_its_work() {
        let [one, two] = [visit(), visit()];
        let mut polls = 0;
        let inner = poll_fn(|cx| {
            assert!(is_current(&two));
            polls += 1;
            cx.waker().wake_by_ref();
            if polls > 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut inner = std::pin::pin!(Scoped::new(two.clone(), inner));
        let outer = poll_fn(|cx| {
            let polled = inner.as_mut().poll(cx);
            assert!(is_current(&one));
            polled
        });
        Scoped::new(one.clone(), outer).await;
        assert!(current().is_none());
        assert!(inner.take().is_some_and(|it| Arc::ptr_eq(&it, &two)));
        let panics = AssertUnwindSafe(|| within(&one, || panic!("on purpose")));
        assert!(std::panic::catch_unwind(panics).is_err() && current().is_none());
    }
}
