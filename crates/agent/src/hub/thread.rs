//! Thread of a hub, with a runtime that outlives the runtimes of its callers.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use pin_project_lite::pin_project;
use stayput_sync::Mutex;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use super::close::HubResources;
use crate::Error;

/// Time that links have to close when the hub is dropped without [`Hub::close`](crate::Hub::close).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for which dropping a hub inside a runtime waits until its sessions in a persistent store are released.
/// Without this a program that returns from `main` would hold them until its lease runs out.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Handle of the thread on which a hub's links and timers run, so that they outlive the caller's runtime.
pub(crate) struct HubThread {
    handle: Handle,
    /// Dropping it ends the thread, which closes everything first.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    /// Disconnects when everything is closed. `None` if no caller has to wait for that inside a runtime.
    closed: Option<Mutex<mpsc::Receiver<()>>>,
    /// Process that started the thread. A forked child has a copy of this value, but not the thread.
    process: u32,
}

/// Value that a thread has opened, the runtime of the thread, and whether its store outlives the process.
type OpenedOn<T> = (T, Handle, bool);

/// Hub's thread that is opening its resources. Dropping it ends the thread, and closes what was opened.
pub(crate) struct StartingThread<T> {
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
    closed: mpsc::Receiver<()>,
    opened: oneshot::Receiver<Result<OpenedOn<T>, Error>>,
    is_external: bool,
}

impl<T> StartingThread<T> {
    /// Waits until the resources are open.
    pub(crate) async fn opened(mut self) -> Result<(HubThread, T), Error> {
        let opened = (&mut self.opened).await;
        self.finish(opened)
    }

    /// Waits like [`opened`](Self::opened), but blocks the thread. Works inside a runtime, too.
    pub(crate) fn wait(mut self) -> Result<(HubThread, T), Error> {
        let waker = Waker::from(Arc::new(UnparkThread(thread::current())));
        let mut cx = Context::from_waker(&waker);
        let opened = loop {
            match Pin::new(&mut self.opened).poll(&mut cx) {
                Poll::Ready(opened) => break opened,
                Poll::Pending => thread::park(),
            }
        };
        self.finish(opened)
    }

    fn finish(
        self,
        opened: Result<Result<OpenedOn<T>, Error>, oneshot::error::RecvError>,
    ) -> Result<(HubThread, T), Error> {
        let ended = || std::io::Error::other("the thread of the hub ended while it was starting");
        let (value, handle, persistent) = opened.map_err(|_| Error::invalid(ended()))??;
        // The work on an external runtime may need the very thread that drops the hub.
        let closed = (persistent && !self.is_external).then(|| Mutex::new(self.closed));
        let (stop, thread, process) = (Some(self.stop), Some(self.thread), std::process::id());
        Ok((HubThread { handle, stop, thread, closed, process }, value))
    }
}

/// Waker of a blocked thread.
struct UnparkThread(thread::Thread);

impl Wake for UnparkThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl HubThread {
    /// Starts the thread and runs `open` on it, on the given runtime or on its own one. The resources that `open`
    /// returns are closed when the hub is dropped.
    pub(crate) fn start<F, T>(runtime: Option<Handle>, open: F) -> Result<StartingThread<T>, Error>
    where
        F: AsyncFnOnce(Handle) -> Result<(T, HubResources), Error> + Send + 'static,
        T: Send + 'static,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, opened) = oneshot::channel();
        let (closing, closed) = mpsc::channel::<()>();
        let is_external = runtime.is_some();
        let main = move || {
            let runtime = match runtime {
                Some(handle) => Ok(ThreadRuntime::External(handle)),
                None => Builder::new_current_thread().enable_all().build().map(ThreadRuntime::Own),
            };
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = sender.send(Err(Error::invalid(error)));
                    return;
                }
            };
            let handle = runtime.handle();
            runtime.block_on(async {
                match open(handle.clone()).await {
                    Ok((value, resources)) => {
                        let _ = sender.send(Ok((value, handle, resources.persistent)));
                        let _ = stopped.await;
                        resources.close(SHUTDOWN_TIMEOUT).await;
                        drop(closing);
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                    }
                }
            });
        };
        let name = if is_external { "stayput-close" } else { "stayput" };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(main);
        let thread = thread.map_err(Error::invalid)?;
        Ok(StartingThread { stop, thread, closed, opened, is_external })
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
    /// Waits until everything is closed. If this would block a runtime, the thread closes in the background; only the
    /// sessions in a persistent store are waited for, up to [`RELEASE_TIMEOUT`].
    fn drop(&mut self) {
        drop(self.stop.take());
        if !self.is_own_process() {
            return;
        }
        if Handle::try_current().is_err() {
            let _ = self.thread.take().map(thread::JoinHandle::join);
        } else if let Some(closed) = &self.closed {
            let _ = closed.lock().recv_timeout(RELEASE_TIMEOUT);
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
