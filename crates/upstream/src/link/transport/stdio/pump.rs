//! Task of a link to a child process: reads the child's output, writes the messages that the pipe did not take
//! at once, and ends the child.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use stayput_process::{Child, ExitStatus, Grace, StderrTail};
use stayput_sync::Mutex;
use stayput_wire::LineSplitter;
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::unix::pipe::Receiver,
    sync::Notify,
    time::{Instant, Sleep},
};

use super::{Outbox, Stdio};
use crate::{
    CallError, Loss, LossReason,
    link::{CLOSED_OUTPUT, Core, LinkTransport, MessageSource},
};

/// Number of reads of a pipe before other tasks get their turn.
const READS_PER_TURN: usize = 16;

/// Time to wait for the exit status of a child that closed its output.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(500);

thread_local! {
    /// Buffer for reads. One for all links of a thread: an idle link has none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// Receiving half of a child's pipes.
pub(crate) struct Pump {
    core: Arc<Core>,
    child: Arc<Child>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    /// Waits until the pipe is writable, while messages wait for the child.
    writable: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>>,
    lines: LineSplitter,
    limit: usize,
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// Error: the pipes of a child cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("the pipes of the child process cannot be watched: {0}")]
pub(crate) struct PumpError(#[from] io::Error);

impl Pump {
    /// Creates the two halves of a link over the pipes of a child. `core` builds the rest of the link around
    /// the sending half.
    pub(crate) fn new(
        mut child: Child,
        limit: usize,
        core: impl FnOnce(Box<Stdio>) -> Arc<Core>,
    ) -> Result<Self, PumpError> {
        let pipes = child.take_pipes().ok_or_else(|| io::Error::other("they are in use"))?;
        let pipes = pipes.move_here()?;
        let child = Arc::new(child);
        let outbox = Outbox::new(pipes.stdin);
        let stdio = Stdio {
            load: outbox.load(),
            outbox: Mutex::new(outbox),
            task: Mutex::default(),
            room: Notify::new(),
            begin_close: OnceLock::new(),
            tail: StderrTail::default(),
            open_stderr_line: Mutex::default(),
            child: child.clone(),
        };
        Ok(Self {
            core: core(Box::new(stdio)),
            child,
            stdout: Some(pipes.stdout),
            stderr: Some(pipes.stderr),
            lines: LineSplitter::new(limit),
            limit,
            timer: None,
            writable: None,
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Runs until the link is over and no process of the child is left.
    pub(crate) async fn run(mut self, grace: Grace) {
        let child = self.child.clone();
        // The end of the output comes sooner, except for a child that left its pipes to another process.
        let mut exited = Box::pin(async move { child.exit_recorded().await });
        let end = poll_fn(|cx| self.poll(exited.as_mut(), cx)).await;
        drop(exited);
        // Boxed, so that the memory exists only at the end and the task of an idle child stays small.
        Box::pin(self.part(end, grace)).await;
    }

    /// Fails the waiting calls with the reason, and ends the child.
    async fn part(mut self, end: StopReason, grace: Grace) {
        let (closed_output, begin_close) =
            (matches!(end, StopReason::Output), matches!(end, StopReason::Shut));
        let status = match end {
            StopReason::Exited(exited) => Some(exited),
            StopReason::Output => {
                tokio::time::timeout(EXIT_STATUS_TIMEOUT, self.child.wait()).await.ok()
            }
            StopReason::Shut => None,
        };
        // After a shutdown the rest of the output is not needed.
        if !begin_close {
            self.read_rest();
        }
        if let Some(stdio) = self.stdio() {
            let exited = status.unwrap_or(ExitStatus::Unknown);
            let why = if closed_output { CLOSED_OUTPUT } else { "" };
            let detail = format!("{why}{}", self.core.stderr_tail());
            // A shutdown may have set its reason and not closed the link yet; the child exited because of it.
            let loss = match stdio.begin_close.get() {
                Some(reason) => Loss::new(*reason, ""),
                None => Loss::new(LossReason::Exited(exited), detail),
            };
            stdio.close(&self.core, loss);
        }
        // Drops all pipes: the child's input is closed, and the child does not wait for us to read.
        (self.writable, self.stdout, self.stderr) = (None, None, None);
        self.child.end(grace).await;
    }

    fn stdio(&self) -> Option<&Stdio> {
        match &self.core.transport {
            LinkTransport::Stdio(stdio) => Some(stdio),
            _ => None,
        }
    }

    fn poll(
        &mut self,
        exited: Pin<&mut (dyn Future<Output = ExitStatus> + Send)>,
        cx: &mut Context<'_>,
    ) -> Poll<StopReason> {
        let core = self.core.clone();
        let LinkTransport::Stdio(stdio) = &core.transport else {
            return Poll::Ready(StopReason::Shut);
        };
        // Registered before any check, so that no wake-up between the check and this is missed.
        *stdio.task.lock() = Some(cx.waker().clone());
        if stdio.is_shut() {
            return Poll::Ready(StopReason::Shut);
        }
        match stdio.outbox.lock().uncork() {
            Ok(some) if some => stdio.room.notify_waiters(),
            Ok(_) => {}
            // The child may have written the reason before it stopped reading; that is read after this.
            Err(_) => return Poll::Ready(StopReason::Output),
        }
        let mut answers = 0;
        if self.poll_stdout(&mut answers, cx).is_ready() {
            return Poll::Ready(StopReason::Output);
        }
        if answers > 1 {
            stdio.outbox.lock().cork();
            // Runs again after the callers that were woken by their answers.
            cx.waker().wake_by_ref();
        }
        self.poll_stderr(cx);
        if self.poll_stdin(stdio, cx).is_err() {
            // The child may have written the reason before it stopped reading; that is read after this.
            return Poll::Ready(StopReason::Output);
        }
        self.poll_timer(cx);
        exited.poll(cx).map(StopReason::Exited)
    }

    /// Reads the child's output. Adds the number of delivered answers to `answers`.
    fn poll_stdout(&mut self, answers: &mut usize, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = &mut self.stdout else { return Poll::Ready(()) };
            match poll_read(pipe, cx, |bytes| {
                *answers += receive_bytes(&self.core, &mut self.lines, self.limit, bytes);
            }) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    self.stdout = None;
                    return Poll::Ready(());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_stderr(&mut self, cx: &mut Context<'_>) {
        let LinkTransport::Stdio(stdio) = &self.core.transport else { return };
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = &mut self.stderr else { return };
            match poll_read(pipe, cx, |bytes| keep_stderr(&self.core, stdio, bytes)) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => self.stderr = None,
                Poll::Pending => return,
            }
        }
        cx.waker().wake_by_ref();
    }

    fn poll_stdin(&mut self, stdio: &Stdio, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let Some(pipe) = stdio.outbox.lock().waits_for() else {
                self.writable = None;
                return Ok(());
            };
            let writable =
                self.writable.get_or_insert_with(|| Box::pin(async move { pipe.writable().await }));
            let Poll::Ready(ready) = writable.as_mut().poll(cx) else { return Ok(()) };
            self.writable = None;
            ready?;
            stdio.outbox.lock().flush()?;
            stdio.room.notify_waiters();
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) {
        loop {
            let armed = self.core.pending.lock().armed();
            let Some(armed) = armed else { return self.timer = None };
            let set = self.timer.as_ref().is_some_and(|(at, _)| *at == armed);
            if !set {
                self.timer = Some((armed, Box::pin(tokio::time::sleep_until(armed))));
            }
            let Some((_, sleep)) = &mut self.timer else { return };
            if sleep.as_mut().poll(cx).is_pending() {
                return;
            }
            self.core.expire();
        }
    }

    /// Reads what the child wrote before it ended: at most what a pipe can hold. A process that inherited the
    /// pipes may go on writing for ever.
    fn read_rest(&mut self) {
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = &self.stdout else { break };
            let more = read(pipe, |bytes| {
                receive_bytes(&self.core, &mut self.lines, self.limit, bytes);
            });
            if !more {
                break;
            }
        }
        if let Some(line) = self.lines.finish() {
            self.core.receive(line, MessageSource::Link);
        }
        let LinkTransport::Stdio(stdio) = &self.core.transport else { return };
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = &self.stderr else { break };
            if !read(pipe, |bytes| keep_stderr(&self.core, stdio, bytes)) {
                break;
            }
        }
        pass_stderr_lines(&self.core, stdio, b"\n");
    }
}

/// Keeps the end of the child's stderr, and passes the bytes on if the server has a receiver for them.
fn keep_stderr(core: &Core, stdio: &Stdio, bytes: &[u8]) {
    stdio.tail.push(bytes);
    if let Some(sink) = core.server.stderr_sink() {
        sink(bytes);
    }
    pass_stderr_lines(core, stdio, bytes);
}

/// Passes the complete lines on, if the server has a receiver for them. Empty lines are left out.
fn pass_stderr_lines(core: &Core, stdio: &Stdio, bytes: &[u8]) {
    let Some(sink) = core.server.stderr_line_sink() else { return };
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let mut open = stdio.open_stderr_line.lock();
        let room = StderrTail::LINE_LIMIT.saturating_sub(open.len());
        open.extend_from_slice(&piece[..piece.len().min(room)]);
        if !piece.ends_with(b"\n") {
            continue;
        }
        let line = StderrTail::new();
        line.push(&std::mem::take(&mut *open));
        drop(open);
        let text = line.text();
        if !text.trim_end().is_empty() {
            sink(&core.server.log_redactor().redact(text.trim_end()));
        }
    }
}

impl Drop for Pump {
    /// Closes the link. After `run` nothing of it is left. If the task is dropped before, because its runtime
    /// goes away, tasks that wait for an answer, or for the end, still get the reason.
    fn drop(&mut self) {
        if let Some(stdio) = self.stdio() {
            stdio.close(&self.core, Loss::new(LossReason::Released, ""));
        }
        self.core.release_permit();
    }
}

/// Reason why the task stopped.
enum StopReason {
    Exited(ExitStatus),
    /// The child closed its output or its input: no messages can be exchanged any more.
    Output,
    /// The link was shut down.
    Shut,
}

/// Handles bytes that were read. Returns the number of calls that got their answer.
fn receive_bytes(
    core: &Arc<Core>,
    lines: &mut LineSplitter,
    limit: usize,
    mut bytes: &[u8],
) -> usize {
    let mut answers = 0;
    while let Some(line) = lines.next_line(&mut bytes) {
        match line {
            Ok(line) => answers += core.receive(line, MessageSource::Link).answers,
            // The call that the answer belongs to is unknown: all calls fail, so that none hangs, and the state
            // is kept.
            Err(_) => core.fail_all(&CallError::TooLarge { limit }),
        }
    }
    answers
}

/// Reads once. Returns whether there may be more.
fn poll_read(pipe: &mut Receiver, cx: &mut Context<'_>, take: impl FnOnce(&[u8])) -> Poll<bool> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        match Pin::new(pipe).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                take(buffer.filled());
                Poll::Ready(!buffer.filled().is_empty())
            }
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
}

/// Reads once without waiting. Returns whether there may be more. Asks the system and not the runtime, which may not have
/// seen yet that there are bytes.
fn read(pipe: &Receiver, take: impl FnOnce(&[u8])) -> bool {
    SCRATCH.with_borrow_mut(|scratch| {
        let read = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut scratch[..]));
        let n = read.unwrap_or(0);
        take(&scratch[..n]);
        n > 0
    })
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// The last words of a child count, also if the runtime had no turn between them and the child's exit.
    #[tokio::test]
    async fn rest_is_read_before_the_runtime_has_seen_it() {
        let (ours, childs) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let pipe = Receiver::from_owned_fd(ours).unwrap();
        rustix::io::write(&childs, b"no key").unwrap();
        let mut seen = Vec::new();
        assert!(read(&pipe, |bytes| seen.extend_from_slice(bytes)));
        assert_eq!(seen, b"no key");
        assert!(!read(&pipe, |_| {}));
    }
}
