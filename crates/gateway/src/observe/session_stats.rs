//! What a session was used for, for whoever runs the gateway.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use smallvec::SmallVec;
use stayput_core::{Clock as _, Session, SystemClock, Timestamp};
use stayput_upstream::{Held, Server, Spot};

/// The most bytes of a tool's name that are kept. The protocol wants none to be longer.
const NAME: usize = 128;

/// The most bytes that are kept of what a server's process wrote.
const STDERR: usize = 4 << 10;

/// What a session was used for since this process holds it. It stands beside the session, so that a call
/// looks nothing up, waits for others for a moment at most, and allocates nothing but for a name that is long. It is
/// small, so that a call of one session among very many has little to fetch.
#[derive(Debug, Default)]
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub(crate) struct SessionStats {
    calls: AtomicU64,
    last: Mutex<Last>,
    failures: AtomicU64,
    /// Boxed, because most sessions have none.
    failure: Mutex<Option<Box<Failure>>>,
}

/// The call that was made last.
#[derive(Debug, Default)]
#[repr(C)] // As above.
struct Last {
    /// Where the link is that was used last.
    spot: Spot,
    server: Option<Arc<str>>,
    /// The name of the tool. Few are longer than there is room for here.
    tool: SmallVec<[u8; 24]>,
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) at: Timestamp,
    pub(crate) server: Arc<str>,
    /// In words, for the operator.
    pub(crate) message: String,
    /// What the server's process wrote last. It is never for a client.
    pub(crate) stderr: String,
}

impl SessionStats {
    /// What a session was used for.
    pub(crate) fn of(session: &Session) -> Option<&Self> {
        session.extension()
    }

    /// A call is made. `shared` gives the name of the server to keep. Of two at the very same time either one is the last.
    pub(crate) fn called(
        &self,
        server: &str,
        shared: impl FnOnce() -> Arc<str>,
        tool: Option<&str>,
    ) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut last) = self.last.try_lock() {
            // Nearly always it is the same one: then what all sessions share is left alone.
            if last.server.as_deref() != Some(server) {
                last.server = Some(shared());
            }
            if let Some(tool) = tool.map(|tool| head(tool).as_bytes())
                && *last.tool != *tool
            {
                last.tool.clear();
                last.tool.extend_from_slice(tool);
            }
        }
    }

    /// The link to a server, if it is the one that was used last and still lives.
    pub(crate) fn link(&self, server: &Server) -> Option<Held> {
        let spot = lock(&self.last).spot.clone();
        spot.find(server)
    }

    /// A link is used.
    pub(crate) fn linked(&self, link: &Held) {
        lock(&self.last).spot = link.spot();
    }

    /// A call failed, or could not be made.
    pub(crate) fn failed(&self, server: Arc<str>, message: String, stderr: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let stderr = tail(stderr).to_owned();
        let failure = Failure { at: SystemClock.now(), server, message, stderr };
        *lock(&self.failure) = Some(Box::new(failure));
    }

    /// How many calls were sent, or tried to be.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many of them failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The server that was called last.
    pub(crate) fn last_server(&self) -> Option<Arc<str>> {
        lock(&self.last).server.clone()
    }

    /// The tool that was called last.
    pub(crate) fn last_tool(&self) -> Option<String> {
        let last = lock(&self.last);
        (!last.tool.is_empty()).then(|| String::from_utf8_lossy(&last.tool).into_owned())
    }

    /// How the last call that failed did.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        lock(&self.failure).as_deref().cloned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last lines of a text, as far as there is room for them.
pub(crate) fn tail(text: &str) -> &str {
    let Some(mut from) = text.len().checked_sub(STDERR) else { return text };
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = text.get(from..).unwrap_or_default();
    // A line that is cut in two says little.
    rest.split_once('\n').map_or(rest, |(_, rest)| rest)
}

/// As much of a name as is kept.
fn head(name: &str) -> &str {
    let mut length = name.len().min(NAME);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    name.get(..length).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_is_remembered() {
        let usage = SessionStats::default();
        assert_eq!((usage.calls(), usage.last_tool(), usage.last_server()), (0, None, None));
        let called = |server: &str, tool| usage.called(server, || server.into(), tool);
        called("notes", Some("add"));
        called("files", None);
        assert_eq!(usage.calls(), 2);
        assert_eq!(usage.last_tool().as_deref(), Some("add"), "a list is no tool");
        assert_eq!(usage.last_server().as_deref(), Some("files"));
        let long = "ä".repeat(100);
        called("notes", Some(&long));
        assert_eq!(usage.last_tool().as_deref(), Some(&*"ä".repeat(64)));
        called("notes", Some("b"));
        assert_eq!(usage.last_tool().as_deref(), Some("b"));
    }

    #[test]
    fn a_failure_comes_with_the_last_lines() {
        let usage = SessionStats::default();
        let lines: String = (0..2_000).map(|line| format!("zeile {line} ü\n")).collect();
        usage.failed("notes".into(), "it died".to_owned(), &lines);
        let failure = usage.last_failure().unwrap();
        assert_eq!((usage.failures(), &*failure.message), (1, "it died"));
        assert!(failure.stderr.len() <= STDERR && failure.stderr.len() > STDERR - 100);
        assert!(failure.stderr.starts_with("zeile ") && failure.stderr.ends_with("1999 ü\n"));
        assert_eq!(tail("short"), "short");
    }
}
