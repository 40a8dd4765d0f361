//! Audit log: one line for each call.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
};

use stayput_core::{Clock as _, SystemClock};

use super::ObserveError;

/// Maximum number of queued lines. More are dropped, so that a full disk stops no call.
const WAITING: usize = 8_192;

/// Maximum number of queued bytes. Lines with arguments can be as long as the requests of clients.
const WAITING_BYTES: usize = 64 << 20;

/// Number of bytes that are written at once.
const BATCH: usize = 64 << 10;

/// Destination and content of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditRules {
    pub(crate) to: AuditTo,
    /// Whether the arguments of calls are written.
    pub(crate) arguments: bool,
}

/// Destination of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditTo {
    Stderr,
    File(PathBuf),
}

/// Queues lines for the thread that writes them. Never blocks.
#[derive(Debug)]
pub(crate) struct Audit {
    orders: SyncSender<WriterCommand>,
    counts: Arc<Counts>,
    pub(super) arguments: bool,
}

#[derive(Debug, Default)]
struct Counts {
    /// Number of lines that were dropped since the start.
    dropped: AtomicU64,
    /// Dropped lines that the audit log does not mention yet.
    unmentioned: AtomicU64,
    /// Bytes in the queue.
    waiting: AtomicUsize,
}

impl Counts {
    fn lose(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        self.unmentioned.fetch_add(lines, Ordering::Relaxed);
    }
}

enum WriterCommand {
    Line(String),
    Reopen,
    Flush(tokio::sync::oneshot::Sender<()>),
}

impl Audit {
    /// Opens the file and starts the thread that writes it.
    pub(super) fn start(rules: AuditRules) -> Result<Self, ObserveError> {
        let AuditRules { to, arguments } = rules;
        let file = match &to {
            AuditTo::Stderr => None,
            AuditTo::File(path) => Some(
                open(path).map_err(|error| ObserveError::Audit { path: path.clone(), error })?,
            ),
        };
        let (orders, received) = sync_channel(WAITING);
        let counts = Arc::<Counts>::default();
        let writer = Writer { to, file, counts: counts.clone(), failing: false };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writer.run(&received)).map_err(ObserveError::Thread)?;
        Ok(Self { orders, counts, arguments })
    }

    /// Queues a line, or drops it if the queue is full.
    pub(super) fn line(&self, line: String) {
        let length = line.len();
        let before = self.counts.waiting.fetch_add(length, Ordering::Relaxed);
        let room = before < WAITING_BYTES;
        if !room || self.orders.try_send(WriterCommand::Line(line)).is_err() {
            self.counts.waiting.fetch_sub(length, Ordering::Relaxed);
            self.counts.lose(1);
        }
    }

    /// Opens the file again, after log rotation has moved it away.
    pub(super) fn reopen(&self) {
        let _ = self.orders.try_send(WriterCommand::Reopen);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all queued lines are written.
    pub(super) async fn flush(&self) {
        let (tell, written) = tokio::sync::oneshot::channel();
        let mut order = WriterCommand::Flush(tell);
        // The queue is full for a moment, until the thread has written some lines.
        while let Err(std::sync::mpsc::TrySendError::Full(again)) = self.orders.try_send(order) {
            order = again;
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let _ = written.await;
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Only the owner of the process may read which calls were made.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Thread that writes the lines.
struct Writer {
    to: AuditTo,
    file: Option<File>,
    counts: Arc<Counts>,
    failing: bool,
}

impl Writer {
    fn run(mut self, orders: &Receiver<WriterCommand>) {
        while let Ok(first) = orders.recv() {
            let (mut text, mut lines, mut next) = (String::new(), 0, Some(first));
            let mut written = Vec::new();
            while let Some(order) = next.take() {
                match order {
                    WriterCommand::Line(line) => {
                        self.counts.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                        text.push_str(&line);
                        text.push('\n');
                        lines += 1;
                    }
                    WriterCommand::Reopen => {
                        self.write(&mut text, &mut lines);
                        self.reopen();
                    }
                    WriterCommand::Flush(tell) => written.push(tell),
                }
                next = match orders.try_recv() {
                    Ok(order) if text.len() < BATCH => Some(order),
                    Ok(WriterCommand::Line(line)) => {
                        self.write(&mut text, &mut lines);
                        Some(WriterCommand::Line(line))
                    }
                    Ok(order) => Some(order),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
                };
            }
            self.write(&mut text, &mut lines);
            for tell in written {
                let _ = tell.send(());
            }
        }
    }

    /// Writes the lines of a batch. Lines that cannot be written are counted, and the failure is logged once.
    fn write(&mut self, text: &mut String, lines: &mut u64) {
        let unmentioned = self.counts.unmentioned.swap(0, Ordering::Relaxed);
        if unmentioned > 0 {
            let at = SystemClock.now().to_rfc3339_millis();
            text.push_str(&format!(r#"{{"at":"{at}","event":"dropped","lines":{unmentioned}}}"#));
            text.push('\n');
            tracing::warn!(
                "{unmentioned} lines of the audit were dropped: it is not written fast enough"
            );
        }
        if text.is_empty() {
            return;
        }
        let wrote = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None => io::stderr().lock().write_all(text.as_bytes()),
        };
        match wrote {
            Ok(()) if self.failing => {
                tracing::info!("the audit is written again");
                self.failing = false;
            }
            Ok(()) => {}
            Err(error) => {
                self.counts.lose(*lines + unmentioned);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!("the audit cannot be written: {error}");
                }
            }
        }
        text.clear();
        *lines = 0;
    }

    fn reopen(&mut self) {
        let AuditTo::File(path) = &self.to else { return };
        match open(path) {
            Ok(file) => self.file = Some(file),
            // The old file stays open: it is better than none.
            Err(error) => {
                tracing::warn!("the audit cannot be written to {}: {error}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &Path) -> AuditRules {
        AuditRules { to: AuditTo::File(path.to_owned()), arguments: false }
    }

    #[tokio::test]
    async fn reopen_creates_a_new_file_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("new/audit.jsonl"), folder.path().join("old"));
        let audit = Audit::start(rules(&path)).unwrap();
        audit.line("1".to_owned());
        audit.flush().await;
        std::fs::rename(&path, &moved).unwrap();
        audit.line("2".to_owned());
        audit.reopen();
        audit.line("3".to_owned());
        audit.flush().await;
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "1\n2\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n");
    }

    /// A slow writer blocks no call: lines that do not fit are counted, and the audit log says how many.
    #[tokio::test]
    async fn full_queue_drops_lines_and_reports_the_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        // The pipe has no reader yet, so nothing can be written to it.
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let audit = Audit::start(rules(&path)).unwrap();
        let line = "x".repeat(1 << 10);
        for _ in 0..3 * WAITING {
            audit.line(line.clone());
        }
        assert!(audit.dropped() > 0);
        let mut reader = io::BufReader::new(reader);
        let reading = std::thread::spawn(move || {
            use std::io::BufRead as _;
            let (mut lines, mut line) = (0_u64, String::new());
            loop {
                line.clear();
                reader.read_line(&mut line).unwrap();
                match line.strip_prefix('{') {
                    None => lines += 1,
                    Some(told) => return (lines, told.to_owned()),
                }
            }
        });
        // The next line that is written is preceded by the count.
        while !reading.is_finished() {
            audit.line(line.clone());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let (lines, told) = reading.join().unwrap();
        assert!(lines > 0 && told.contains(r#""event":"dropped","lines":"#), "{lines} {told}");
    }
}
