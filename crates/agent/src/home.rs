//! The thread on which a hub lives.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll},
    thread,
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::closing::Closing;

/// How long links are waited for when nobody waits for the hub.
const FAREWELL: Duration = Duration::from_secs(10);

/// Where everything of a hub runs: links outlive the runtime of whoever opened them.
pub(crate) struct Home {
    handle: Handle,
    /// Dropped, it ends the thread, which lets go of everything first.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    /// The process in which it is. A fork has a copy of this, and no thread.
    process: u32,
}

impl Home {
    /// Moves in: `open` runs on the thread, or on the runtime that was given, and what it makes is kept
    /// until the hub is gone.
    pub(crate) fn found<F, T, E>(runtime: Option<Handle>, open: F) -> Result<(Self, T), E>
    where
        F: AsyncFnOnce(Handle) -> Result<(T, Closing), E> + Send + 'static,
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
                    Ok((made, closing)) => {
                        let _ = tell.send(Ok((handle, made)));
                        let _ = stopped.await;
                        closing.close(FAREWELL).await;
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            });
        };
        let name = if given { "stayput-keeper" } else { "stayput" };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(live)?;
        let gone = || std::io::Error::other("the thread of the hub ended before it began");
        let (handle, made) = told.recv().map_err(|_| gone())??;
        let (stop, thread, process) = (Some(stop), Some(thread), std::process::id());
        Ok((Self { handle, stop, thread, process }, made))
    }

    /// Whether this is still the process in which it was founded.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// From now on it is in no process, as for a fork of this one.
    #[cfg(test)]
    pub(crate) fn move_out(&mut self) {
        self.process = 0;
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// A future that can be polled anywhere: its timers are those of the hub.
    pub(crate) fn at_home<F: Future>(&self, future: F) -> AtHome<F> {
        AtHome { handle: self.handle.clone(), future }
    }
}

impl Drop for Home {
    /// Where that blocks nobody else, nothing is left when this returns. A runtime goes on meanwhile.
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread =
            self.thread.take().filter(|_| self.is_here() && Handle::try_current().is_err());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
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
