//! What is shown, in the words of `openapi.json`.

use serde::Serialize;
use stayput_core::{Clock as _, EndReason, Record, Session, SystemClock, Timestamp};
use stayput_upstream::{LinkReport, Loss, OpenError, Scope, Standing};

use crate::observe::{
    session_stats::{self, SessionStats},
    time_format,
};

/// A session.
#[derive(Debug, Serialize)]
pub(super) struct SessionView {
    id: String,
    owner: String,
    agent: Option<String>,
    /// With where it comes from: `name:chat-42`.
    key: Option<String>,
    /// What named it: the source of its key, a handle, or the connection it was made with.
    source: String,
    pub(super) state: State,
    pub(super) servers: Vec<String>,
    generation: u64,
    created: String,
    last_used: String,
    expires: Option<String>,
    age_seconds: u64,
    idle_seconds: u64,
    calls: u64,
    failures: u64,
    last_tool: Option<String>,
    last_error: Option<ErrorView>,
    pub(super) links: Vec<LinkView>,
    ended: Option<EndedView>,
}

/// Whether a session is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A call or a stream is using it.
    Busy,
    Idle,
    /// It lives, and this process does not hold it.
    Away,
    Ended,
}

impl State {
    pub(super) fn read(text: &str) -> Option<Self> {
        let all = [("busy", Self::Busy), ("idle", Self::Idle), ("away", Self::Away)];
        all.into_iter().find(|(name, _)| *name == text).map(|(_, state)| state)
    }
}

/// Why a call failed.
#[derive(Debug, Serialize)]
pub(super) struct ErrorView {
    at: Option<String>,
    server: String,
    message: String,
    /// What the server's process wrote last.
    stderr: String,
}

/// Why a session is over.
#[derive(Debug, Serialize)]
struct EndedView {
    at: String,
    reason: &'static str,
}

/// A link.
#[derive(Debug, Serialize)]
pub(super) struct LinkView {
    pub(super) server: String,
    /// Who else uses it.
    shared_by: &'static str,
    pub(super) state: &'static str,
    generation: Option<u64>,
    pub(super) in_flight: usize,
    pub(super) pid: Option<u32>,
    /// Of the process and all that it started.
    pub(super) memory_bytes: Option<u64>,
    age_seconds: Option<u64>,
    /// Why it has no link, or the state of the generation before is gone.
    pub(super) trouble: Option<ErrorView>,
    /// What the process wrote last; of one session alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
}

impl SessionView {
    /// A session by its record, and as this process holds it, if it does.
    pub(super) fn new(record: &Record, held: Option<&Session>, links: Vec<LinkView>) -> Self {
        let now = SystemClock.now();
        let used = held.map_or(record.last_used, Session::last_used).max(record.last_used);
        let state = match held {
            _ if !record.is_live() => State::Ended,
            Some(held) if held.is_in_use() => State::Busy,
            Some(_) => State::Idle,
            None => State::Away,
        };
        let usage = held.and_then(SessionStats::of);
        let idle = if state == State::Busy { 0 } else { now.since(used).as_secs() };
        let deadline = record.expiry.deadline(record.created, used);
        Self {
            id: record.id.to_string(),
            owner: record.owner.to_string(),
            agent: Some(record.agent.as_str().to_owned()).filter(|agent| !agent.is_empty()),
            key: record.key.as_ref().map(|key| key.as_str().to_owned()),
            source: source(record),
            state,
            servers: servers(record, usage, &links),
            generation: record.generation.0,
            created: time_format::text(record.created),
            last_used: time_format::text(if state == State::Busy { now } else { used }),
            expires: deadline.filter(|_| record.is_live()).map(time_format::text),
            age_seconds: now.since(record.created).as_secs(),
            idle_seconds: idle,
            calls: usage.map_or(0, SessionStats::calls),
            failures: usage.map_or(0, SessionStats::failures),
            last_tool: usage.and_then(SessionStats::last_tool),
            last_error: usage.and_then(SessionStats::last_failure).map(ErrorView::of_call),
            links,
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

/// The servers that a session has to do with.
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
        Self { at: time_format::text(at), reason: reason.as_str() }
    }
}

impl ErrorView {
    fn of_call(failure: session_stats::Failure) -> Self {
        let session_stats::Failure { at, server, message, stderr } = failure;
        Self { at: Some(time_format::text(at)), server: server.to_string(), message, stderr }
    }

    fn of_open(server: &str, error: &OpenError) -> Self {
        let whole = error.to_string();
        let message = OpenError::without_output(&whole).to_owned();
        let stderr = session_stats::tail(&whole[message.len()..]).to_owned();
        Self { at: None, server: server.to_owned(), message, stderr }
    }

    fn of_loss(server: &str, loss: &Loss) -> Self {
        let stderr = session_stats::tail(loss.detail()).to_owned();
        Self { at: None, server: server.to_owned(), message: loss.to_string(), stderr }
    }
}

impl LinkView {
    /// A link, with what its process uses if `measured`: that may block.
    pub(super) fn new(report: &LinkReport, measured: bool) -> Self {
        let (state, generation, in_flight) = match &report.standing {
            Standing::Live { generation, in_flight } => ("live", Some(generation.0), *in_flight),
            Standing::Opening => ("opening", None, 0),
            Standing::Resting(_) => ("resting", None, 0),
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
        }
    }

    /// The same with what its process wrote last.
    pub(super) fn with_words(report: &LinkReport) -> Self {
        let words = report.last_words();
        let stderr = report.pid().map(|_| session_stats::tail(&words).to_owned());
        Self { stderr, ..Self::new(report, true) }
    }
}
