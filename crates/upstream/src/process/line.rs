//! Client end of the socket to a warden.

use std::{
    collections::HashMap,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream as StdStream,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown,
};
use tokio::{
    io::Interest,
    net::UnixStream,
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
};

use super::{
    Exited,
    error::Refused,
    frame::{Answer, Frames, Request},
    life::Life,
    pipes::Ends,
    proc::Seen,
    wardens::WardenProcess,
};
use crate::lock::lock;

/// Connection to one warden. The warden ends when the last reference is dropped.
#[derive(Debug)]
pub(super) struct Line {
    socket: Arc<UnixStream>,
    outgoing: mpsc::UnboundedSender<Parcel>,
    /// Number of frames in the queue of the writer task.
    unsent: Arc<Mutex<usize>>,
    desk: Arc<Desk>,
    pid: i32,
}

/// Frame, or rest of a frame, for the writer task. A caller that is cancelled must not cut a frame short, so
/// what the socket does not take at once goes through one task.
#[derive(Debug)]
enum Parcel {
    Frame(Vec<u8>, Option<Ends>),
    Close,
}

/// Requests that wait for an answer of the warden.
#[derive(Debug, Default)]
struct Desk {
    rows: Mutex<Rows>,
    /// Description of the warden's end, set once it is reaped.
    gone: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct Rows {
    closed: bool,
    waiting: HashMap<u64, Row>,
}

#[derive(Debug)]
struct Row {
    life: Arc<Life>,
    started: Option<oneshot::Sender<Result<(), Refused>>>,
    reaped: Option<oneshot::Sender<usize>>,
}

impl Line {
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
        let (outgoing, parcels) = mpsc::unbounded_channel();
        let (desk, unsent) = (Arc::new(Desk::default()), Arc::default());
        let pid = warden.pid();
        let ear = Ear { socket: socket.clone(), desk: desk.clone(), warden: Some(warden) };
        runtime.spawn(async move { ear.run().await });
        runtime.spawn(mouth(socket.clone(), parcels, Arc::clone(&unsent)));
        Ok(Arc::new(Self { socket, outgoing, unsent, desk, pid }))
    }

    /// Pid of the warden.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn is_open(&self) -> bool {
        !self.outgoing.is_closed() && !self.desk.rows().closed
    }

    /// Pids of the children of this warden.
    pub(super) fn leaders(&self) -> Vec<i32> {
        self.desk.rows().waiting.values().map(|row| row.life.pid()).collect()
    }

    /// Requests a child. The receiver gets the result of the start, and fails if the warden is gone.
    pub(super) fn start(
        &self,
        life: Arc<Life>,
        frame: Vec<u8>,
        ends: Ends,
    ) -> oneshot::Receiver<Result<(), Refused>> {
        let (started, answer) = oneshot::channel();
        let number = life.number;
        let row = Row { life, started: Some(started), reaped: None };
        let mut rows = self.desk.rows();
        if !rows.closed {
            rows.waiting.insert(number, row);
            drop(rows);
            self.post(frame, Some(ends));
        }
        answer
    }

    pub(super) fn signal(&self, number: u64, signal: i32) {
        self.post(Request::Signal { number, signal }.encode(), None);
    }

    /// Requests the end of a child. The receiver gets the number of leftovers, and fails if the warden is gone.
    pub(super) fn reap(&self, number: u64) -> oneshot::Receiver<usize> {
        let (reaped, answer) = oneshot::channel();
        if let Some(row) = self.desk.rows().waiting.get_mut(&number) {
            row.reaped = Some(reaped);
            self.post(Request::Reap { number }.encode(), None);
        }
        answer
    }

    /// Sends a frame directly if the queue is empty and the socket takes it; otherwise queues it. Errors of the
    /// socket are left to the writer task.
    fn post(&self, frame: Vec<u8>, ends: Option<Ends>) {
        let mut unsent = lock(&self.unsent);
        let sent = if *unsent == 0 { send(&self.socket, &frame, ends.as_ref()) } else { Ok(0) };
        let parcel = match sent {
            Ok(sent) if sent == frame.len() => return,
            // The descriptors went with the first byte.
            Ok(sent @ 1..) => Parcel::Frame(frame.get(sent..).unwrap_or_default().to_vec(), None),
            _ => Parcel::Frame(frame, ends),
        };
        *unsent += 1;
        let _ = self.outgoing.send(parcel);
    }

    /// Ends the warden and its remaining children.
    pub(super) fn hang_up(&self) {
        let _ = self.outgoing.send(Parcel::Close);
    }

    /// Waits until the warden is gone, and returns how it ended.
    pub(super) async fn gone(&self) -> String {
        let mut gone = self.desk.gone.subscribe();
        let gone = gone.wait_for(Option::is_some).await;
        gone.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }
}

impl Desk {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, answer: &Answer) {
        match *answer {
            Answer::Started { number, pid } => {
                let mut rows = self.rows();
                let Some(row) = rows.waiting.get_mut(&number) else { return };
                let (life, started) = (row.life.clone(), row.started.take());
                drop(rows);
                // The warden reaps a child only on request, so the process still exists.
                life.runs(Seen::at(pid).unwrap_or(Seen { pid, started: 0 }));
                let _ = started.map(|started| started.send(Ok(())));
            }
            Answer::Failed { number, refused } => {
                let row = self.rows().waiting.remove(&number);
                let started = row.and_then(|row| row.started);
                let _ = started.map(|started| started.send(Err(refused)));
            }
            Answer::Exited { number, exited } => {
                let life = self.rows().waiting.get(&number).map(|row| row.life.clone());
                let _ = life.map(|life| life.noticed(exited));
            }
            Answer::Reaped { number, leftovers } => {
                let row = self.rows().waiting.remove(&number);
                let leftovers = usize::try_from(leftovers).unwrap_or(usize::MAX);
                let reaped = row.and_then(|row| row.reaped);
                let _ = reaped.map(|reaped| reaped.send(leftovers));
            }
        }
    }

    /// Closes the table. Children that still lived with this warden are ended without it.
    fn close(&self, reason: String) {
        let rows = {
            let mut rows = self.rows();
            rows.closed = true;
            std::mem::take(&mut rows.waiting)
        };
        self.gone.send_replace(Some(reason));
        for row in rows.into_values() {
            row.life.noticed(Exited::Unknown);
        }
    }
}

/// Reads the answers of the warden.
struct Ear {
    socket: Arc<UnixStream>,
    desk: Arc<Desk>,
    warden: Option<WardenProcess>,
}

impl Ear {
    async fn run(mut self) {
        self.listen().await;
        self.hang_up();
        let Some(mut warden) = self.warden.take() else { return };
        let reaped = tokio::task::spawn_blocking(move || warden.reap()).await;
        self.desk.close(reaped.unwrap_or_default());
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
                        Some(answer) => self.desk.take(&answer),
                        None => return,
                    },
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
    }

    /// Shuts the socket down. The warden takes the end of its socket as the order to end everything.
    fn hang_up(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// Cleans up only if the runtime is gone before `run` was done.
impl Drop for Ear {
    fn drop(&mut self) {
        if self.desk.gone.borrow().is_some() {
            return;
        }
        self.hang_up();
        self.desk.close("its runtime is gone".to_owned());
        if let Some(mut warden) = self.warden.take() {
            warden.reap();
        }
    }
}

/// Sends the queued frames until the queue is closed.
async fn mouth(
    socket: Arc<UnixStream>,
    mut parcels: mpsc::UnboundedReceiver<Parcel>,
    unsent: Arc<Mutex<usize>>,
) {
    while let Some(Parcel::Frame(frame, ends)) = parcels.recv().await {
        if say(&socket, &frame, ends.as_ref()).await.is_err() {
            break;
        }
        *lock(&unsent) -= 1;
    }
    let _ = shutdown(&*socket, Shutdown::Both);
}

async fn say(socket: &UnixStream, frame: &[u8], mut ends: Option<&Ends>) -> io::Result<()> {
    let mut rest = frame;
    while !rest.is_empty() {
        let sent = socket.async_io(Interest::WRITABLE, || send(socket, rest, ends)).await?;
        rest = rest.get(sent..).unwrap_or_default();
        // The descriptors went with the first byte.
        ends = None;
    }
    Ok(())
}

fn send(socket: &UnixStream, bytes: &[u8], ends: Option<&Ends>) -> io::Result<usize> {
    let fds: Vec<BorrowedFd<'_>> =
        ends.iter().flat_map(|Ends(ends)| ends.iter().map(AsFd::as_fd)).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}
