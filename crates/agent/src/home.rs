//! The thread on which a hub lives.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use pin_project_lite::pin_project;
use stayput_core::Sessions;
use stayput_upstream::Links;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// How long links are waited for when nobody waits for the hub.
const FAREWELL: Duration = Duration::from_secs(10);

/// Where everything of a hub runs: links outlive the runtime of whoever opened them.
pub(crate) struct Home {
    handle: Handle,
    /// Dropped, it ends the thread, which lets go of everything first.
    _stop: oneshot::Sender<()>,
}

/// What is let go of when the hub is gone.
pub(crate) struct Kept {
    pub(crate) links: Links,
    pub(crate) sessions: Arc<Sessions>,
}

impl Kept {
    async fn close(self) {
        self.links.close(FAREWELL).await;
        let _ = self.sessions.close().await;
    }
}

impl Home {
    /// Moves in: `open` runs on the thread, or on the runtime that was given, and what it makes is kept
    /// until the hub is gone.
    pub(crate) fn found<F, T, E>(runtime: Option<Handle>, open: F) -> Result<(Self, T), E>
    where
        F: AsyncFnOnce(Handle) -> Result<(T, Kept), E> + Send + 'static,
        T: Send + 'static,
        E: From<std::io::Error> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let given = runtime.is_some();
        let live = move || {
            let own = match runtime {
                Some(handle) => Ok(Place::Given(handle)),
                None => Builder::new_current_thread().enable_all().build().map(Place::Own),
            };
            let place = match own {
                Ok(place) => place,
                Err(error) => {
                    let _ = tell.send(Err(error.into()));
                    return;
                }
            };
            let handle = place.handle();
            place.block_on(async {
                match open(handle.clone()).await {
                    Ok((made, kept)) => {
                        let _ = tell.send(Ok((handle, made)));
                        let _ = stopped.await;
                        kept.close().await;
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            });
        };
        let name = if given { "stayput-keeper" } else { "stayput" };
        thread::Builder::new().name(name.to_owned()).spawn(live)?;
        let gone = || std::io::Error::other("the thread of the hub ended before it began");
        let (handle, made) = told.recv().map_err(|_| gone())??;
        Ok((Self { handle, _stop: stop }, made))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// A future that can be polled anywhere: its timers are those of the hub.
    pub(crate) fn at_home<F: Future>(&self, future: F) -> AtHome<F> {
        AtHome { handle: self.handle.clone(), future }
    }
}

enum Place {
    Own(tokio::runtime::Runtime),
    Given(Handle),
}

impl Place {
    fn handle(&self) -> Handle {
        match self {
            Self::Own(runtime) => runtime.handle().clone(),
            Self::Given(handle) => handle.clone(),
        }
    }

    fn block_on(&self, future: impl Future<Output = ()>) {
        match self {
            Self::Own(runtime) => runtime.block_on(future),
            Self::Given(handle) => handle.block_on(future),
        }
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Home")
    }
}

pin_project! {
    /// See [`Home::at_home`].
    pub(crate) struct AtHome<F> {
        handle: Handle,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for AtHome<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _inside = this.handle.enter();
        this.future.poll(cx)
    }
}
