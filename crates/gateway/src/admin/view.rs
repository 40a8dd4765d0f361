//! JSON views of the admin API, as described in `openapi.json`.

use serde::Serialize;
use stayput_core::{Clock as _, EndReason, Record, Session, SystemClock, Timestamp};
use stayput_upstream::{
    LinkOpenError, LinkReport, LinkState, Loss, ProcessInfo, Scope, SpareReport,
};

use crate::observe::session_stats::{self, SessionStats};

/// View of a session.
#[derive(Debug, Serialize)]
pub(super) struct SessionView {
    pub(super) id: String,
    pub(super) owner: String,
    pub(super) agent: Option<String>,
    /// Key with its source, such as `name:chat-42`.
    pub(super) key: Option<String>,
    /// Origin of the session: the source of its key, a handle, or a connection.
    pub(super) source: String,
    pub(super) state: State,
    pub(super) servers: Vec<String>,
    generation: u64,
    created: String,
    last_used: String,
    expires: Option<String>,
    #[serde(skip)]
    pub(super) deadline: Option<Timestamp>,
    age_seconds: u64,
    pub(super) idle_seconds: u64,
    pub(super) calls: u64,
    failures: u64,
    pub(super) last_tool: Option<String>,
    last_error: Option<ErrorView>,
    pub(super) links: Vec<LinkView>,
    /// Id of the process that holds the session.
    holder: Option<String>,
    ended: Option<EndedView>,
}

/// Use of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A call uses it.
    Busy,
    /// A client is connected to it, and no call uses it.
    Connected,
    Idle,
    /// Live, but held by another process or by none.
    Away,
    Ended,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Connected => "connected",
            Self::Idle => "idle",
            Self::Away => "away",
            Self::Ended => "ended",
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "busy" => Some(Self::Busy),
            "connected" => Some(Self::Connected),
            "idle" => Some(Self::Idle),
            "away" => Some(Self::Away),
            _ => None,
        }
    }
}

/// Failure of a call.
#[derive(Debug, Serialize)]
pub(super) struct ErrorView {
    at: Option<String>,
    server: String,
    message: String,
    /// End of the stderr of the server's process.
    stderr: String,
}

/// End of a session.
#[derive(Debug, Serialize)]
struct EndedView {
    at: String,
    reason: &'static str,
}

/// View of a link.
#[derive(Debug, Serialize)]
pub(super) struct LinkView {
    pub(super) server: String,
    /// Scope in which the link is shared.
    shared_by: &'static str,
    pub(super) state: &'static str,
    generation: Option<u64>,
    pub(super) in_flight: usize,
    pub(super) pid: Option<u32>,
    /// Memory of the process and its descendants.
    pub(super) memory_bytes: Option<u64>,
    age_seconds: Option<u64>,
    /// Reason why the link failed to open, or why the state of the generation before was lost.
    pub(super) trouble: Option<ErrorView>,
    /// End of the process's stderr. Only in the view of one session.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    /// Process and its descendants. Only in the view of one session.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Vec<ProcessView>>,
}

/// View of one process of a link.
#[derive(Debug, Serialize)]
struct ProcessView {
    pid: u32,
    parent: u32,
    name: String,
    memory_bytes: u64,
}

/// View of a process that was started before a session needed it.
#[derive(Debug, Serialize)]
pub(super) struct SpareView {
    server: String,
    pid: Option<u32>,
    /// Memory of the process and its descendants.
    memory_bytes: Option<u64>,
    age_seconds: u64,
}

impl SpareView {
    /// Creates the view. With `measured` it blocks for a moment.
    pub(super) fn new(report: &SpareReport, measured: bool) -> Self {
        let SpareReport { server, pid, age, .. } = report;
        Self {
            server: server.to_string(),
            pid: *pid,
            memory_bytes: if measured { report.memory() } else { None },
            age_seconds: age.as_secs(),
        }
    }
}

impl SessionView {
    /// Creates the view of a session from its record, and from its state in memory if this process holds it.
    pub(super) fn new(record: &Record, held: Option<&Session>, links: Vec<LinkView>) -> Self {
        let now = SystemClock.now();
        let used = held.map_or(record.last_used, Session::last_used).max(record.last_used);
        let usage = held.and_then(SessionStats::get);
        let state = match held {
            _ if !record.is_live() => State::Ended,
            Some(held) if usage.is_some_and(|usage| usage.is_busy(held)) => State::Busy,
            Some(held) if held.is_in_use() => State::Connected,
            Some(_) => State::Idle,
            None => State::Away,
        };
        let idle = if state == State::Busy { 0 } else { now.since(used).as_secs() };
        // A session in use does not idle out: its time begins when the last client leaves.
        let in_use = matches!(state, State::Busy | State::Connected);
        let deadline = record.expiry.deadline(record.created, if in_use { now } else { used });
        let deadline = deadline.filter(|_| record.is_live());
        Self {
            id: record.id.to_string(),
            owner: record.owner.to_string(),
            agent: Some(record.agent.as_str().to_owned()).filter(|agent| !agent.is_empty()),
            key: record.key.as_ref().map(|key| key.as_str().to_owned()),
            source: source(record),
            state,
            servers: servers(record, usage, &links),
            generation: record.generation.0,
            created: record.created.to_rfc3339(),
            last_used: if state == State::Busy { now } else { used }.to_rfc3339(),
            expires: deadline.map(Timestamp::to_rfc3339),
            deadline,
            age_seconds: now.since(record.created).as_secs(),
            idle_seconds: idle,
            calls: usage.map_or(0, SessionStats::calls),
            failures: usage.map_or(0, SessionStats::failures),
            last_tool: usage.and_then(SessionStats::last_tool),
            last_error: usage.and_then(SessionStats::last_failure).map(ErrorView::of_call),
            links,
            holder: record.holder.map(|lease| lease.holder.to_string()),
            ended: record.ended.map(|ended| EndedView::new(ended.at, ended.reason)),
        }
    }
}

fn source(record: &Record) -> String {
    match &record.key {
        Some(key) => key.source().to_owned(),
        None if record.handle_used || record.provisional => "handle".to_owned(),
        None => "connection".to_owned(),
    }
}

/// Returns the servers that a session uses.
fn servers(record: &Record, usage: Option<&SessionStats>, links: &[LinkView]) -> Vec<String> {
    let attached = record.attachments.keys().map(|name| name.as_str().to_owned());
    let last = usage.and_then(SessionStats::last_server).map(|name| name.to_string());
    let mut all: Vec<String> =
        attached.chain(last).chain(links.iter().map(|link| link.server.clone())).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl EndedView {
    fn new(at: Timestamp, reason: EndReason) -> Self {
        Self { at: at.to_rfc3339(), reason: reason.as_str() }
    }
}

impl ErrorView {
    fn of_call(failure: session_stats::Failure) -> Self {
        let session_stats::Failure { at, server, message, stderr } = failure;
        Self { at: Some(at.to_rfc3339()), server: server.to_string(), message, stderr }
    }

    fn of_open(server: &str, error: &LinkOpenError) -> Self {
        Self::of_start(server, &error.to_string())
    }

    /// Creates the view of the message of a [`LinkOpenError`].
    pub(super) fn of_start(server: &str, whole: &str) -> Self {
        let message = LinkOpenError::without_output(whole).to_owned();
        let stderr = session_stats::tail(&whole[message.len()..]).to_owned();
        Self { at: None, server: server.to_owned(), message, stderr }
    }

    fn of_loss(server: &str, loss: &Loss) -> Self {
        let stderr = session_stats::tail(loss.detail()).to_owned();
        Self { at: None, server: server.to_owned(), message: loss.to_string(), stderr }
    }
}

impl From<ProcessInfo> for ProcessView {
    fn from(process: ProcessInfo) -> Self {
        let ProcessInfo { pid, parent, name, memory, .. } = process;
        Self { pid, parent, name, memory_bytes: memory }
    }
}

impl LinkView {
    /// Creates the view of a link. With `measured` it includes the memory of its process, which may block.
    pub(super) fn new(report: &LinkReport, measured: bool) -> Self {
        let (state, generation, in_flight) = match &report.state {
            LinkState::Live { generation, in_flight } => ("live", Some(generation.0), *in_flight),
            LinkState::Opening => ("opening", None, 0),
            LinkState::BackingOff(_) => ("resting", None, 0),
            _ => ("over", None, 0),
        };
        let server = report.key.server();
        let failed = report.failed.as_deref().map(|error| ErrorView::of_open(server, error));
        let lost = || report.loss.as_deref().map(|loss| ErrorView::of_loss(server, loss));
        Self {
            server: server.to_owned(),
            shared_by: match report.key.scope() {
                Scope::Session { .. } => "session",
                Scope::Owner(_) => "owner",
                Scope::Shared => "all",
            },
            state,
            generation,
            in_flight,
            pid: report.pid(),
            memory_bytes: if measured { report.memory() } else { None },
            age_seconds: report.opened.map(|age| age.as_secs()),
            trouble: failed.or_else(lost),
            stderr: None,
            processes: None,
        }
    }

    /// Creates the view of a link with its memory and the end of its process's stderr.
    pub(super) fn with_words(report: &LinkReport) -> Self {
        let stderr_tail = report.stderr_tail();
        let stderr = report.pid().map(|_| session_stats::tail(&stderr_tail).to_owned());
        let processes: Vec<_> = report.processes().into_iter().map(ProcessView::from).collect();
        let memory_bytes = processes.iter().map(|process| process.memory_bytes).sum();
        let memory_bytes = (!processes.is_empty()).then_some(memory_bytes);
        let processes = report.pid().map(|_| processes);
        Self { stderr, processes, memory_bytes, ..Self::new(report, false) }
    }
}
