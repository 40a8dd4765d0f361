//! Client end of the socket to a warden.

use std::{
    collections::HashMap,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream as StdStream,
    },
    sync::Arc,
};

use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown,
};
use stayput_sync::Mutex;
use tokio::{
    io::Interest,
    net::UnixStream,
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
};

use super::{
    ExitStatus,
    error::SpawnError,
    frame::{Answer, Frames, Request},
    lifecycle::Lifecycle,
    pipes::ChildPipes,
    procfs::ProcessRef,
    warden_process::WardenProcess,
};

/// Connection to one warden. The warden ends when the last reference is dropped.
#[derive(Debug)]
pub(super) struct WardenClient {
    socket: Arc<UnixStream>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    /// Number of frames in the queue of the writer task.
    unsent: Arc<Mutex<usize>>,
    pending: Arc<PendingRequests>,
    pid: i32,
}

/// Frame, or rest of a frame, for the writer task. A caller that is cancelled must not cut a frame short, so
/// what the socket does not take at once goes through one task.
#[derive(Debug)]
enum Outgoing {
    Frame(Vec<u8>, Option<ChildPipes>),
    Close,
}

/// Requests that wait for an answer of the warden.
#[derive(Debug, Default)]
struct PendingRequests {
    table: Mutex<PendingTable>,
    /// Description of the warden's end, set once it is reaped.
    gone: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct PendingTable {
    closed: bool,
    waiting: HashMap<u64, PendingChild>,
}

#[derive(Debug)]
struct PendingChild {
    lifecycle: Arc<Lifecycle>,
    started: Option<oneshot::Sender<Result<(), SpawnError>>>,
    reaped: Option<oneshot::Sender<usize>>,
}

impl WardenClient {
    /// Opens the connection. Its reader and writer tasks run on `runtime`, whichever task needs the first
    /// child.
    pub(super) fn new(
        socket: StdStream,
        warden: WardenProcess,
        runtime: &Handle,
    ) -> io::Result<Arc<Self>> {
        let _entered = runtime.enter();
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UnixStream::from_std(socket)?);
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (pending, unsent) = (Arc::new(PendingRequests::default()), Arc::default());
        let pid = warden.pid();
        let reader =
            AnswerReader { socket: socket.clone(), pending: pending.clone(), warden: Some(warden) };
        runtime.spawn(async move { reader.run().await });
        runtime.spawn(write_frames(socket.clone(), queue, Arc::clone(&unsent)));
        Ok(Arc::new(Self { socket, outgoing, unsent, pending, pid }))
    }

    /// Pid of the warden.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn is_open(&self) -> bool {
        !self.outgoing.is_closed() && !self.pending.table.lock().closed
    }

    /// Pids of the children of this warden.
    pub(super) fn leaders(&self) -> Vec<i32> {
        self.pending.table.lock().waiting.values().map(|child| child.lifecycle.pid()).collect()
    }

    /// Requests a child. The receiver gets the result of the start, and fails if the warden is gone.
    pub(super) fn start(
        &self,
        lifecycle: Arc<Lifecycle>,
        frame: Vec<u8>,
        child_pipes: ChildPipes,
    ) -> oneshot::Receiver<Result<(), SpawnError>> {
        let (started, answer) = oneshot::channel();
        let number = lifecycle.number;
        let child = PendingChild { lifecycle, started: Some(started), reaped: None };
        let mut table = self.pending.table.lock();
        if !table.closed {
            table.waiting.insert(number, child);
            drop(table);
            self.post(frame, Some(child_pipes));
        }
        answer
    }

    pub(super) fn signal(&self, number: u64, signal: i32) {
        self.post(Request::Signal { number, signal }.encode(), None);
    }

    /// Requests the end of a child. The receiver gets the number of leftovers, and fails if the warden is gone.
    pub(super) fn reap(&self, number: u64) -> oneshot::Receiver<usize> {
        let (reaped, answer) = oneshot::channel();
        if let Some(child) = self.pending.table.lock().waiting.get_mut(&number) {
            child.reaped = Some(reaped);
            self.post(Request::Reap { number }.encode(), None);
        }
        answer
    }

    /// Sends a frame directly if the queue is empty and the socket takes it; otherwise queues it. Errors of the
    /// socket are left to the writer task.
    fn post(&self, frame: Vec<u8>, child_pipes: Option<ChildPipes>) {
        let mut unsent = self.unsent.lock();
        let sent =
            if *unsent == 0 { send(&self.socket, &frame, child_pipes.as_ref()) } else { Ok(0) };
        let rest = match sent {
            Ok(sent) if sent == frame.len() => return,
            // The descriptors went with the first byte.
            Ok(sent @ 1..) => Outgoing::Frame(frame.get(sent..).unwrap_or_default().to_vec(), None),
            _ => Outgoing::Frame(frame, child_pipes),
        };
        *unsent += 1;
        let _ = self.outgoing.send(rest);
    }

    /// Ends the warden and its remaining children.
    pub(super) fn close_socket(&self) {
        let _ = self.outgoing.send(Outgoing::Close);
    }

    /// Waits until the warden is gone, and returns how it ended.
    pub(super) async fn gone(&self) -> String {
        let mut gone = self.pending.gone.subscribe();
        let gone = gone.wait_for(Option::is_some).await;
        gone.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }
}

impl PendingRequests {
    fn take(&self, answer: &Answer) {
        match *answer {
            Answer::Started { number, pid } => {
                let mut table = self.table.lock();
                let Some(child) = table.waiting.get_mut(&number) else { return };
                let (lifecycle, started) = (child.lifecycle.clone(), child.started.take());
                drop(table);
                // The warden reaps a child only on request, so the process still exists.
                lifecycle
                    .set_running(ProcessRef::at(pid).unwrap_or(ProcessRef { pid, started: 0 }));
                let _ = started.map(|started| started.send(Ok(())));
            }
            Answer::Failed { number, refused } => {
                let child = self.table.lock().waiting.remove(&number);
                let started = child.and_then(|child| child.started);
                let _ = started.map(|started| started.send(Err(refused)));
            }
            Answer::Exited { number, exited } => {
                let lifecycle =
                    self.table.lock().waiting.get(&number).map(|child| child.lifecycle.clone());
                let _ = lifecycle.map(|lifecycle| lifecycle.record_exit(exited));
            }
            Answer::ReapResult { number, leftovers } => {
                let child = self.table.lock().waiting.remove(&number);
                let leftovers = usize::try_from(leftovers).unwrap_or(usize::MAX);
                let reaped = child.and_then(|child| child.reaped);
                let _ = reaped.map(|reaped| reaped.send(leftovers));
            }
        }
    }

    /// Closes the table. Children that still lived with this warden are ended without it.
    fn close(&self, reason: String) {
        let table = {
            let mut table = self.table.lock();
            table.closed = true;
            std::mem::take(&mut table.waiting)
        };
        tracing::debug!(children = table.len(), reason, "the warden is gone");
        self.gone.send_replace(Some(reason));
        for child in table.into_values() {
            child.lifecycle.record_exit(ExitStatus::Unknown);
        }
    }
}

/// Reads the answers of the warden.
struct AnswerReader {
    socket: Arc<UnixStream>,
    pending: Arc<PendingRequests>,
    warden: Option<WardenProcess>,
}

impl AnswerReader {
    async fn run(mut self) {
        self.listen().await;
        self.close_socket();
        let Some(mut warden) = self.warden.take() else { return };
        let reaped = tokio::task::spawn_blocking(move || warden.reap()).await;
        self.pending.close(reaped.unwrap_or_default());
    }

    async fn listen(&self) {
        let mut frames = Frames::default();
        let mut bytes = [0; 4096];
        while self.socket.readable().await.is_ok() {
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return,
                Ok(length) => frames.push(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => return,
            }
            loop {
                match frames.next() {
                    Ok(Some(frame)) => match Answer::decode(&frame) {
                        Some(answer) => self.pending.take(&answer),
                        None => return,
                    },
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
    }

    /// Shuts the socket down. The warden takes the end of its socket as the order to end everything.
    fn close_socket(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// Cleans up only if the runtime is gone before `run` was done.
impl Drop for AnswerReader {
    fn drop(&mut self) {
        if self.pending.gone.borrow().is_some() {
            return;
        }
        self.close_socket();
        self.pending.close("its runtime is gone".to_owned());
        if let Some(mut warden) = self.warden.take() {
            warden.reap();
        }
    }
}

/// Sends the queued frames until the queue is closed.
async fn write_frames(
    socket: Arc<UnixStream>,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    unsent: Arc<Mutex<usize>>,
) {
    while let Some(Outgoing::Frame(frame, child_pipes)) = queue.recv().await {
        if send_frame(&socket, &frame, child_pipes.as_ref()).await.is_err() {
            break;
        }
        *unsent.lock() -= 1;
    }
    let _ = shutdown(&*socket, Shutdown::Both);
}

async fn send_frame(
    socket: &UnixStream,
    frame: &[u8],
    mut child_pipes: Option<&ChildPipes>,
) -> io::Result<()> {
    let mut rest = frame;
    while !rest.is_empty() {
        let sent = socket.async_io(Interest::WRITABLE, || send(socket, rest, child_pipes)).await?;
        rest = rest.get(sent..).unwrap_or_default();
        // The descriptors went with the first byte.
        child_pipes = None;
    }
    Ok(())
}

fn send(socket: &UnixStream, bytes: &[u8], child_pipes: Option<&ChildPipes>) -> io::Result<usize> {
    let fds: Vec<BorrowedFd<'_>> = child_pipes
        .iter()
        .flat_map(|ChildPipes(child_pipes)| child_pipes.iter().map(AsFd::as_fd))
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}
