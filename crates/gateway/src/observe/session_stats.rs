//! Statistics of a session, for the operator.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;
use stayput_core::{ActiveSession, Clock as _, Session, SystemClock, Timestamp};
use stayput_sync::Mutex;

use crate::observe::session_extension::SessionExtension;

/// Maximum number of bytes of a tool's name that are kept. The protocol recommends no longer names.
const MAX_NAME_BYTES: usize = 128;

/// Maximum number of bytes of a process's stderr that are kept.
const MAX_STDERR_BYTES: usize = 4 << 10;

/// Statistics of a session since this process holds it. A call takes short locks only, and allocates only for a long
/// tool name. They are small, so that a call of one session among very many loads few cache lines.
#[derive(Debug, Default)]
pub(crate) struct SessionStats {
    calls: AtomicU64,
    last: Mutex<LastCall>,
    failures: AtomicU64,
    /// Clients that are connected to the session: each keeps it in use, also between its calls.
    connected: AtomicU64,
    /// Last failure. Boxed, because most sessions have none.
    failure: Mutex<Option<Box<Failure>>>,
}

/// Session that is kept in use by a connected client, not by a call.
#[derive(Debug)]
pub(crate) struct ConnectedSession(ActiveSession);

impl From<ActiveSession> for ConnectedSession {
    fn from(session: ActiveSession) -> Self {
        if let Some(stats) = SessionStats::get(&session) {
            stats.connected.fetch_add(1, Ordering::Relaxed);
        }
        Self(session)
    }
}

impl Deref for ConnectedSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for ConnectedSession {
    fn drop(&mut self) {
        if let Some(stats) = SessionStats::get(self) {
            stats.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Last call.
#[derive(Debug, Default)]
struct LastCall {
    server: Option<Arc<str>>,
    /// Name of the tool. Most names fit without an allocation.
    tool: SmallVec<[u8; 24]>,
}

/// Failure of a call.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) at: Timestamp,
    pub(crate) server: Arc<str>,
    /// Message for the operator.
    pub(crate) message: String,
    /// Last output of the server's process. It is never sent to a client.
    pub(crate) stderr: String,
}

impl SessionStats {
    /// Returns the statistics of a session.
    pub(crate) fn get(session: &Session) -> Option<&Self> {
        SessionExtension::get(session).map(|extension| &extension.stats)
    }

    /// Counts a call. `shared` returns the server's name to store. Of two concurrent calls either one counts as the
    /// last.
    pub(crate) fn called(
        &self,
        server: &str,
        shared: impl FnOnce() -> Arc<str>,
        tool: Option<&str>,
    ) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(mut last) = self.last.try_lock() {
            // Nearly always it is the same server: then the reference count that all sessions share is not touched.
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

    /// Counts a call that failed or could not be made.
    pub(crate) fn failed(&self, server: Arc<str>, message: String, stderr: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let stderr = tail(stderr).to_owned();
        let failure = Failure { at: SystemClock.now(), server, message, stderr };
        *self.failure.lock() = Some(Box::new(failure));
    }

    /// Whether a call uses the session. Connected clients do not count.
    pub(crate) fn is_busy(&self, session: &Session) -> bool {
        session.users() > self.connected.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that were sent or attempted.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the number of failed calls.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the server of the last call.
    pub(crate) fn last_server(&self) -> Option<Arc<str>> {
        self.last.lock().server.clone()
    }

    /// Returns the tool of the last call.
    pub(crate) fn last_tool(&self) -> Option<String> {
        let last = self.last.lock();
        (!last.tool.is_empty()).then(|| String::from_utf8_lossy(&last.tool).into_owned())
    }

    /// Returns the last failure.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        self.failure.lock().as_deref().cloned()
    }
}

/// Returns the last lines of a text, at most `MAX_STDERR_BYTES` bytes.
pub(crate) fn tail(text: &str) -> &str {
    let Some(mut from) = text.len().checked_sub(MAX_STDERR_BYTES) else { return text };
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = text.get(from..).unwrap_or_default();
    // Drops the first line if it is cut.
    rest.split_once('\n').map_or(rest, |(_, rest)| rest)
}

/// Truncates a name to `MAX_NAME_BYTES` bytes.
fn head(name: &str) -> &str {
    let mut length = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    name.get(..length).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_call_is_recorded() {
        let stats = SessionStats::default();
        assert_eq!((stats.calls(), stats.last_tool(), stats.last_server()), (0, None, None));
        let called = |server: &str, tool| stats.called(server, || server.into(), tool);
        called("notes", Some("add"));
        called("files", None);
        assert_eq!(stats.calls(), 2);
        assert_eq!(stats.last_tool().as_deref(), Some("add"), "a list is no tool");
        assert_eq!(stats.last_server().as_deref(), Some("files"));
        let long = "ä".repeat(100);
        called("notes", Some(&long));
        assert_eq!(stats.last_tool().as_deref(), Some(&*"ä".repeat(64)));
        called("notes", Some("b"));
        assert_eq!(stats.last_tool().as_deref(), Some("b"));
    }

    #[test]
    fn failure_includes_the_end_of_stderr() {
        let stats = SessionStats::default();
        let lines: String = (0..2_000).map(|line| format!("zeile {line} ü\n")).collect();
        stats.failed("notes".into(), "it died".to_owned(), &lines);
        let failure = stats.last_failure().unwrap();
        assert_eq!((stats.failures(), &*failure.message), (1, "it died"));
        assert!(
            failure.stderr.len() <= MAX_STDERR_BYTES
                && failure.stderr.len() > MAX_STDERR_BYTES - 100
        );
        assert!(failure.stderr.starts_with("zeile ") && failure.stderr.ends_with("1999 ü\n"));
        assert_eq!(tail("short"), "short");
    }
}
