//! Test server over stdio.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::HeaderMap;
use stayput_wire::{Code, Era};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::mpsc,
};

use super::{
    engine::{Call, Engine, unserved},
    message::{Incoming, Refusal, notification_text},
    options::{Eras, Faults},
    scope::{Outlet, Scope},
};

/// Bytes of a flood at the start, and with every message: more than a pipe holds.
const FLOOD: usize = 4 << 20;
const FLOOD_MORE: usize = 256 << 10;

/// Standard output: one line per message, in order.
struct Output(mpsc::UnboundedSender<String>);

impl Outlet for Output {
    fn send(&self, text: String) {
        let _ = self.0.send(text);
    }
}

struct Front {
    engine: Arc<Engine>,
    out: Arc<dyn Outlet>,
    legacy: Arc<Scope>,
    /// Era of the first request, with `--lock-era`.
    locked: std::sync::OnceLock<Era>,
    spoke: AtomicBool,
}

/// Serves until the client closes standard input.
pub(super) async fn serve(engine: Arc<Engine>) {
    let (send, mut lines) = mpsc::unbounded_channel::<String>();
    let invalid_lines = engine.options.faults.invalid_lines;
    let writer = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(mut line) = lines.recv().await {
            if invalid_lines {
                line.insert_str(0, "this is not JSON\n\n");
            }
            line.push('\n');
            if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    });
    let out: Arc<dyn Outlet> = Arc::new(Output(send));
    if invalid_lines {
        out.send("Starting up... {\"level\":".to_owned());
    }
    let faults = engine.options.faults.clone();
    let legacy = Scope::new(out.clone());
    let locked = std::sync::OnceLock::new();
    let front = Arc::new(Front { engine, out, legacy, locked, spoke: AtomicBool::new(false) });
    flood(&faults, FLOOD).await;
    read(&front, &faults).await;
    if faults.ignore_eof {
        std::future::pending::<()>().await;
    }
    drop(front);
    // Finished answers are still written; running calls are not awaited.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(100), writer).await;
}

async fn read(front: &Arc<Front>, faults: &Faults) {
    let mut input = BufReader::new(tokio::io::stdin());
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(input.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        let text = line.trim_ascii();
        front.engine.note(text);
        flood(faults, FLOOD_MORE).await;
        if !text.is_empty() && !faults.silent {
            front.take(text);
        }
    }
}

async fn flood(faults: &Faults, bytes: usize) {
    if faults.stderr_flood {
        let lines = "the same line again and again, for nobody\n".repeat(bytes / 42);
        let write = move || std::io::stderr().write_all(lines.as_bytes());
        let _ = tokio::task::spawn_blocking(write).await;
    }
}

impl Front {
    fn take(self: &Arc<Self>, text: &[u8]) {
        let message = match Incoming::parse(text) {
            Ok(message) => message,
            Err(refusal) => return self.out.send(refusal.to_text(None)),
        };
        if let Some(answer) = message.answer() {
            self.engine.stats.count("answers");
            self.legacy.answered(message.id().unwrap_or_default(), answer);
            return;
        }
        self.engine.stats.method(message.method());
        if !message.is_request() {
            return self.notified(&message);
        }
        let refusal = self.engine.refuse_era(&message).or_else(|| self.refuse_locked(&message));
        match refusal {
            Some(refusal) => self.out.send(refusal.to_text(message.id())),
            None => self.run(message),
        }
    }

    fn run(self: &Arc<Self>, message: Incoming) {
        let is_legacy = self.engine.options.eras == Eras::Legacy;
        let era = if is_legacy { Era::Legacy } else { message.era() };
        let scope = if era == Era::Legacy { &self.legacy } else { &self.engine.modern };
        let call = Call {
            engine: self.engine.clone(),
            scope: scope.clone(),
            era,
            name: message.id().unwrap_or_default().to_owned(),
            message,
            headers: HeaderMap::new(),
            out: self.out.clone(),
        };
        let front = self.clone();
        let run = call.run();
        tokio::spawn(async move {
            if let Some(answer) = run.await {
                front.speak_long();
                front.out.send(answer.text);
            }
        });
    }

    /// Writes one line of the length of `--long-line` before the first answer.
    fn speak_long(&self) {
        let bytes = self.engine.options.faults.long_line;
        if bytes > 0 && !self.spoke.swap(true, Ordering::Relaxed) {
            let said = |data: &str| {
                let params = serde_json::json!({ "level": "info", "data": data });
                notification_text("notifications/message", &params)
            };
            let fill = bytes.saturating_sub(said("").len());
            self.out.send(said(&"x".repeat(fill)));
        }
    }

    fn notified(&self, message: &Incoming) {
        self.legacy.notified(message);
        self.engine.modern.notified(message);
    }

    fn refuse_locked(&self, message: &Incoming) -> Option<Refusal> {
        if !self.engine.options.lock_era {
            return None;
        }
        match (*self.locked.get_or_init(|| message.era()), message.era()) {
            (Era::Modern, Era::Legacy) => Some(unserved(&message.params()["protocolVersion"])),
            (Era::Legacy, Era::Modern) => {
                Some(Refusal::new(Code::INVALID_REQUEST, "this connection speaks the legacy era"))
            }
            _ => None,
        }
    }
}
