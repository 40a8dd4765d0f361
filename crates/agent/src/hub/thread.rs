//! Thread of a hub, with a runtime that outlives the runtimes of its callers.

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

use super::close::HubResources;

/// Time that links have to close when the hub is dropped without [`Hub::close`](crate::Hub::close).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Handle of the thread on which a hub's links and timers run, so that they outlive the caller's runtime.
pub(crate) struct HubThread {
    handle: Handle,
    /// Dropping it ends the thread, which closes everything first.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    /// Process that started the thread. A forked child has a copy of this value, but not the thread.
    process: u32,
}

impl HubThread {
    /// Starts the thread and runs `open` on it, on the given runtime or on its own one. The resources that `open`
    /// returns are closed when the hub is dropped.
    pub(crate) fn start<F, T, E>(runtime: Option<Handle>, open: F) -> Result<(Self, T), E>
    where
        F: AsyncFnOnce(Handle) -> Result<(T, HubResources), E> + Send + 'static,
        T: Send + 'static,
        E: From<std::io::Error> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let is_external = runtime.is_some();
        let main = move || {
            let runtime = match runtime {
                Some(handle) => Ok(ThreadRuntime::External(handle)),
                None => Builder::new_current_thread().enable_all().build().map(ThreadRuntime::Own),
            };
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = sender.send(Err(error.into()));
                    return;
                }
            };
            let handle = runtime.handle();
            runtime.block_on(async {
                match open(handle.clone()).await {
                    Ok((value, resources)) => {
                        let _ = sender.send(Ok((handle, value)));
                        let _ = stopped.await;
                        resources.close(SHUTDOWN_TIMEOUT).await;
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                    }
                }
            });
        };
        let name = if is_external { "stayput-close" } else { "stayput" };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(main)?;
        let ended = || std::io::Error::other("the thread of the hub ended while it was starting");
        let (handle, value) = receiver.recv().map_err(|_| ended())??;
        let (stop, thread, process) = (Some(stop), Some(thread), std::process::id());
        Ok((Self { handle, stop, thread, process }, value))
    }

    /// Whether the current process is the one that started the thread.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Makes the thread look as it does in a forked child.
    #[cfg(test)]
    pub(crate) fn pretend_forked(&mut self) {
        self.process = 0;
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Wraps a future so that any executor can poll it: its timers and sockets are those of the hub's runtime.
    pub(crate) fn in_runtime<F: Future>(&self, future: F) -> InRuntime<F> {
        InRuntime { handle: self.handle.clone(), future }
    }
}

impl Drop for HubThread {
    /// Waits until everything is closed, unless this would block a runtime: then the thread closes in the background.
    fn drop(&mut self) {
        drop(self.stop.take());
        let may_block = self.is_own_process() && Handle::try_current().is_err();
        if let Some(thread) = self.thread.take().filter(|_| may_block) {
            let _ = thread.join();
        }
    }
}

enum ThreadRuntime {
    Own(tokio::runtime::Runtime),
    External(Handle),
}

impl ThreadRuntime {
    fn handle(&self) -> Handle {
        match self {
            Self::Own(runtime) => runtime.handle().clone(),
            Self::External(handle) => handle.clone(),
        }
    }

    fn block_on(&self, future: impl Future<Output = ()>) {
        match self {
            Self::Own(runtime) => runtime.block_on(future),
            Self::External(handle) => handle.block_on(future),
        }
    }
}

impl fmt::Debug for HubThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HubThread")
    }
}

pin_project! {
    /// See [`HubThread::in_runtime`].
    pub(crate) struct InRuntime<F> {
        handle: Handle,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for InRuntime<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.handle.enter();
        this.future.poll(cx)
    }
}
