//! Log of the Rust library, for Python's `logging`.

use std::{
    fmt::{self, Write as _},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
};

use pyo3::{prelude::*, pyfunction};
use stayput_sync::Mutex;
use tracing::{Event, Level, Metadata, Subscriber, field, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

/// Number of records that wait for Python. More are dropped, so that logging never blocks the hub.
const MAX_WAITING: usize = 10_000;

/// Most verbose level that Python wants, as its number in `logging`. Nothing is recorded above it.
static LEVEL: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Record: level of `logging`, target and message.
type Record = (usize, String, String);

/// Sender of the records, for the end of the interpreter.
static SENDER: Mutex<Option<SyncSender<Record>>> = Mutex::new(None);

/// Layer that passes events to Python.
struct PythonLayer(SyncSender<Record>);

/// Number of a level in Python's `logging`. Python has none below `DEBUG`.
fn number(level: Level) -> usize {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PythonLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Other crates have their own loggers, if any.
        metadata.target().starts_with("stayput")
            && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Message::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let record = (number(*metadata.level()), metadata.target().to_owned(), text.finish());
        // Full, or at the end of the interpreter.
        let _ = self.0.try_send(record);
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let wanted = |level: &Level| number(*level) >= LEVEL.load(Ordering::Relaxed);
        let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
        let level = levels.into_iter().find(wanted);
        Some(level.map_or(LevelFilter::OFF, LevelFilter::from_level))
    }
}

/// Text of an event: its message, then its fields as `name=value`.
#[derive(Default)]
struct Message {
    message: String,
    fields: String,
}

impl Message {
    fn finish(self) -> String {
        self.message + &self.fields
    }
}

impl field::Visit for Message {
    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Log records, for Python.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct LogRecords(Mutex<Receiver<Record>>);

#[pymethods]
impl LogRecords {
    /// Waits for the next record. The last one has the level 0.
    fn next(&self, py: Python<'_>) -> Record {
        py.detach(|| self.0.lock().recv().unwrap_or_default())
    }
}

/// Sets the level, and returns the records at the first call in a process whose log has no other receiver.
#[pyfunction]
pub(crate) fn start_log(level: usize) -> Option<LogRecords> {
    LEVEL.store(level, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
    let (sender, receiver) = mpsc::sync_channel(MAX_WAITING);
    let subscriber = tracing_subscriber::registry().with(PythonLayer(sender.clone()));
    tracing::subscriber::set_global_default(subscriber).ok()?;
    *SENDER.lock() = Some(sender);
    Some(LogRecords(Mutex::new(receiver)))
}

/// Ends the log: the reader gets its last record.
#[pyfunction]
pub(crate) fn stop_log(py: Python<'_>) {
    LEVEL.store(usize::MAX, Ordering::Relaxed);
    let sender = SENDER.lock().take();
    if let Some(sender) = sender {
        // Waits while the queue is full: the reader empties it.
        let _ = py.detach(|| sender.send(Record::default()));
    }
}

impl fmt::Debug for LogRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogRecords")
    }
}
