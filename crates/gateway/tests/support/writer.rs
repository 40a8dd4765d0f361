//! Client that writes notes while faults happen, and knows which of them must be there.

use std::{collections::HashMap, io::ErrorKind, time::Duration};

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::send;
use tokio::time::{Instant, sleep, timeout};

use crate::support::LONG;

/// Revision of the modern era.
const MODERN: &str = "2026-07-28";

/// Pause before a request that was refused is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Counts of what clients were answered.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) acknowledged: usize,
    /// No gateway was there.
    pub(crate) unreached: usize,
    pub(crate) refused: usize,
    pub(crate) uncertain: usize,
    pub(crate) losses: usize,
}

impl Answers {
    pub(crate) fn add(&mut self, more: &Self) {
        self.acknowledged += more.acknowledged;
        self.unreached += more.unreached;
        self.refused += more.refused;
        self.uncertain += more.uncertain;
        self.losses += more.losses;
    }
}

/// Name of a client's session.
enum SessionName {
    /// `Mcp-Session-Id` of a legacy client.
    Connection(String),
    /// Key of a modern client.
    Key(String),
}

/// Outcome of one request, as its client knows it.
enum Outcome {
    /// The result of a call that ran.
    Ran(Value),
    /// The state was lost before, or with, this call.
    Lost,
    /// The call was not sent.
    Unreached,
    /// The call did not run.
    Refused(String),
    /// The client cannot know.
    Uncertain(String),
}

/// Client with what it knows of its notes. It sends each request once, over a new connection.
pub(crate) struct Writer {
    name: String,
    session: SessionName,
    /// Notes that were acknowledged since the last loss.
    notes: Vec<String>,
    /// Notes that may have been written since.
    uncertain: Vec<String>,
    next: usize,
    /// Whether no call has run since the last loss.
    is_lost: bool,
    /// Generation of the state, as a modern client is told.
    pub(crate) generation: Option<u64>,
    pub(crate) answers: Answers,
    /// Reasons of calls that were refused or are uncertain.
    pub(crate) failures: Vec<String>,
    /// Time of the last call that ran, and the longest time between two of them since [`Writer::begin_trial`].
    last_run: Instant,
    pub(crate) longest_gap: (Instant, Instant),
    /// Longest time of a request.
    pub(crate) slowest: Duration,
}

/// Sends a request and returns status, connection and message of the answer.
async fn post(
    url: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(u16, String, Value), ErrorKind> {
    let mut all = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    all.extend_from_slice(headers);
    let answer = async {
        let answer = send(Method::POST, url, &all, body.to_string()).await?;
        let (status, id) = (answer.status.as_u16(), answer.header("mcp-session-id").to_owned());
        let bytes = answer.bytes().await?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        Ok((status, id, serde_json::from_str(last.unwrap_or(&text)).unwrap_or(Value::Null)))
    };
    let answer: std::io::Result<_> =
        timeout(LONG, answer).await.unwrap_or(Err(ErrorKind::TimedOut.into()));
    answer.map_err(|error| error.kind())
}

impl Writer {
    fn new(name: String, session: SessionName) -> Self {
        Self {
            name,
            session,
            notes: Vec::new(),
            uncertain: Vec::new(),
            next: 0,
            is_lost: false,
            generation: None,
            answers: Answers::default(),
            failures: Vec::new(),
            last_run: Instant::now(),
            longest_gap: (Instant::now(), Instant::now()),
            slowest: Duration::ZERO,
        }
    }

    /// Opens a legacy client at one of `urls`. Tries until it succeeds, because nothing is known of a failed attempt that
    /// could matter later.
    pub(crate) async fn open(urls: &[String], name: String) -> Self {
        let client = json!({ "name": "chaos", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let start = Instant::now();
        for url in urls.iter().cycle() {
            if let Ok((200, id, _)) = post(url, &[], &body).await {
                return Self::new(name, SessionName::Connection(id));
            }
            assert!(start.elapsed() < LONG, "{name} cannot open");
            sleep(RETRY_INTERVAL).await;
        }
        panic!("{name} has no gateway");
    }

    /// Returns a modern client, whose session opens with its first call.
    pub(crate) fn modern(name: String) -> Self {
        let key = format!("key:{name}");
        Self::new(name, SessionName::Key(key))
    }

    /// Starts to measure anew.
    pub(crate) fn begin_trial(&mut self) {
        self.failures.clear();
        self.last_run = Instant::now();
        (self.longest_gap, self.slowest) = ((self.last_run, self.last_run), Duration::ZERO);
    }

    async fn call(&mut self, url: &str, tool: &str, arguments: Value) -> Outcome {
        let start = Instant::now();
        let outcome = self.send_call(url, tool, arguments).await;
        self.slowest = self.slowest.max(start.elapsed());
        if let Outcome::Ran(result) = &outcome {
            self.is_lost = false;
            self.generation = result["_meta"]["dev.stayput/state"]["generation"].as_u64();
            let (before, now) = (self.last_run, Instant::now());
            if now - before > self.longest_gap.1 - self.longest_gap.0 {
                self.longest_gap = (before, now);
            }
            self.last_run = now;
        }
        outcome
    }

    async fn send_call(&self, url: &str, tool: &str, arguments: Value) -> Outcome {
        let mut params = json!({ "name": tool, "arguments": arguments });
        let headers = match &self.session {
            SessionName::Connection(id) => vec![("mcp-session-id", &**id)],
            SessionName::Key(key) => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": { "name": "chaos", "version": "1" },
                });
                let method = [("mcp-protocol-version", MODERN), ("mcp-method", "tools/call")];
                [&method[..], &[("mcp-name", tool), ("stayput-session", key)]].concat()
            }
        };
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let (status, answer) = match post(url, &headers, &body).await {
            Ok((status, _, answer)) => (status, answer),
            Err(ErrorKind::ConnectionRefused) => return Outcome::Unreached,
            Err(ErrorKind::TimedOut) => panic!("{}: a request got no answer", self.name),
            Err(kind) => return Outcome::Uncertain(format!("{url}: {kind}")),
        };
        assert_ne!(status, 404, "{}: a known connection was forgotten: {answer}", self.name);
        let result = &answer["result"];
        if result["_meta"]["dev.stayput/state"]["state"] == "lost" {
            return Outcome::Lost;
        }
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        match result["isError"] == true || result.is_null() {
            _ if text.contains("may or may not") => Outcome::Uncertain(text.to_owned()),
            true if status == 200 || status == 503 => Outcome::Refused(answer.to_string()),
            true => Outcome::Uncertain(format!("{status} {answer}")),
            false => Outcome::Ran(result.clone()),
        }
    }

    fn lose(&mut self) {
        assert!(!self.is_lost, "{}: a loss was reported twice", self.name);
        self.is_lost = true;
        self.answers.losses += 1;
        self.notes.clear();
        self.uncertain.clear();
    }

    /// Writes one note.
    pub(crate) async fn write(&mut self, url: &str) {
        let note = format!("{}-{}", self.name, self.next);
        // Many faults come when a call was executed, and has not been answered.
        let pause = self.next % 3 * 15;
        self.next += 1;
        match self.call(url, "note_add", json!({ "text": note, "ms": pause })).await {
            Outcome::Ran(_) => {
                self.answers.acknowledged += 1;
                self.notes.push(note);
            }
            Outcome::Lost => self.lose(),
            Outcome::Unreached => self.answers.unreached += 1,
            Outcome::Refused(reason) => {
                self.answers.refused += 1;
                self.failures.push(reason);
            }
            Outcome::Uncertain(reason) => {
                self.failures.push(reason);
                self.answers.uncertain += 1;
                self.uncertain.push(note);
            }
        }
    }

    /// Compares the notes of the server with what the client knows. Asks one of `urls` after the other until one answers.
    pub(crate) async fn verify(&mut self, urls: &[String], trial: &str) {
        let start = Instant::now();
        for url in urls.iter().cycle() {
            let refusal = match self.call(url, "note_list", json!({})).await {
                Outcome::Ran(result) => return self.compare(&result, trial),
                Outcome::Lost => {
                    self.lose();
                    String::new()
                }
                Outcome::Refused(reason) | Outcome::Uncertain(reason) => reason,
                Outcome::Unreached => String::new(),
            };
            assert!(start.elapsed() < LONG, "{trial}: {} gets no answer: {refusal}", self.name);
            sleep(RETRY_INTERVAL).await;
        }
    }

    fn compare(&mut self, result: &Value, trial: &str) {
        let all: Vec<String> = notes_of(result);
        let mut counts = HashMap::<&str, usize>::new();
        for note in &all {
            *counts.entry(note).or_default() += 1;
        }
        for (note, count) in &counts {
            let is_own = note.starts_with(&format!("{}-", self.name));
            assert!(is_own, "{trial}: {} sees foreign notes: {all:?}", self.name);
            assert_eq!(*count, 1, "{trial}: {note} ran twice: {all:?}");
        }
        for note in &self.notes {
            let found = counts.remove(&**note);
            assert!(found.is_some(), "{trial}: {note} was lost silently: {all:?}");
        }
        // A note that was seen must stay.
        let (seen, uncertain): (Vec<_>, Vec<_>) = std::mem::take(&mut self.uncertain)
            .into_iter()
            .partition(|note| counts.remove(&**note).is_some());
        self.notes.extend(seen);
        self.uncertain = uncertain;
        assert!(
            counts.is_empty(),
            "{trial}: {:?} were refused or lost, and are there: {all:?}",
            counts.keys()
        );
    }

    /// Deletes the session of a legacy client at one of `urls`. A broken connection is tried again.
    pub(crate) async fn delete(&self, urls: &[String]) {
        let SessionName::Connection(id) = &self.session else { return };
        let start = Instant::now();
        for url in urls.iter().cycle() {
            let headers = [("mcp-session-id", &**id)];
            let sent = timeout(LONG, send(Method::DELETE, url, &headers, "")).await.unwrap();
            if sent.is_ok_and(|answer| matches!(answer.status.as_u16(), 200 | 202 | 204 | 404)) {
                return;
            }
            assert!(start.elapsed() < LONG, "{} cannot be deleted", self.name);
            sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Returns the notes in an answer of `note_list`.
fn notes_of(result: &Value) -> Vec<String> {
    let notes = result["structuredContent"]["notes"].as_array();
    let notes = notes.unwrap_or_else(|| panic!("{result}"));
    notes.iter().map(|note| note.as_str().unwrap().to_owned()).collect()
}
