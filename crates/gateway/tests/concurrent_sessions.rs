//! Two hundred concurrent sessions, while clients disconnect during calls and servers lose state: no session sees the
//! state of another, losses are reported once, and no call runs twice.
//!
//! Each session counts, one call after the other. An *incarnation* of its state begins with the session or with a
//! reported loss, and ends with the next loss. In one incarnation:
//!
//! - An answer is a number. If no earlier call of this incarnation was given up, it is exactly the next number.
//! - A call is *given up* when its client disconnects before the answer, or when the answer was lost on the way from
//!   the server. It may have run or not, now or a little later, but at most once. So with `g` calls given up in this
//!   incarnation, the `n`th answer lies between `n` and `n + g`, above the previous one.
//! - In the end the next number is the number of all calls of this incarnation that reached the server, plus one.
//! - Each loss of state is reported once, only to the session that lost it, and the call that reports it has no other
//!   answer.
//! - A report that was being sent when its client disconnected may be unread. So a number that restarts right after a
//!   disconnect is an unread loss, and is counted with the others.
//!
//! The log of the server shows which calls reached it. Each call carries a unique tag, which must not be in the log
//! twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use stayput_testkit::{
    Random,
    mcp::{TestServer, send},
};
use support::{Gateway, LONG, gone, mark, stdio};
use tokio::{net::TcpStream, sync::Semaphore, task::AbortHandle};

const SESSIONS: usize = 200;
const CALLS: usize = 50;
const AT_ONCE: usize = 64;

/// HTTP connection that is reused between calls. Dropping it closes it at once.
struct Wire {
    sender: http1::SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    async fn new(authority: &str) -> Self {
        let socket = TcpStream::connect(authority).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        let task = tokio::runtime::Handle::current().spawn(connection).abort_handle();
        Self { sender, task }
    }

    /// Posts a message and returns its answer, from a JSON body or from a stream.
    async fn post(&mut self, authority: &str, id: &str, body: String) -> Value {
        let request = Request::post("/mcp/test")
            .header("host", authority)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-session-id", id)
            .body(Full::new(body.into()))
            .unwrap();
        self.sender.ready().await.unwrap();
        let answer = self.sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let text = str::from_utf8(&bytes).unwrap();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: {"));
        let message = last.map_or(text.to_owned(), |last| format!("{{{last}"));
        serde_json::from_str(&message).unwrap_or_else(|_| panic!("{text}"))
    }
}

/// Events in one session.
struct Plan {
    /// Percentage of calls during which the client disconnects.
    hangs_up: usize,
    /// Number of the call before which the process is killed, and whether that call is then in flight.
    killed: Option<(usize, bool)>,
}

/// One session and the answers that are valid for it.
struct Session {
    number: usize,
    gateway: Arc<Gateway>,
    id: String,
    wire: Option<Wire>,
    random: Random,
    plan: Plan,
    /// Number of calls so far, for their tags.
    calls: usize,
    /// State of this incarnation: number of answers, last number, and tags of the calls that were given up.
    answered: u64,
    last: u64,
    given_up: Vec<String>,
    losses: usize,
    /// Losses whose report was unread because the client disconnected.
    unheard: usize,
    /// Number of given-up calls after the last answer, if the last action was to disconnect.
    hung_up: Option<usize>,
}

/// Outcome of a call.
enum Seen {
    Number(u64),
    Loss,
    /// The call failed without a loss.
    Failure,
}

impl Session {
    async fn new(number: usize, gateway: Arc<Gateway>, random: Random, plan: Plan) -> Self {
        let id = gateway.client("test").await.id;
        let (given_up, wire) = (Vec::new(), None);
        let (calls, answered, last, losses) = (0, 0, 0, 0);
        let (unheard, hung_up) = (0, None);
        Self {
            number,
            gateway,
            id,
            wire,
            random,
            plan,
            calls,
            answered,
            last,
            given_up,
            losses,
            unheard,
            hung_up,
        }
    }

    fn authority(&self) -> String {
        self.gateway.url.trim_start_matches("http://").to_owned()
    }

    /// Returns the body of the next call and its tag.
    fn next(&mut self, tool: &str) -> (String, String) {
        self.calls += 1;
        let tag = format!("<{}-{}>", self.number, self.calls);
        let body = json!({ "jsonrpc": "2.0", "id": self.calls, "method": "tools/call",
            "params": { "name": tool, "arguments": { "tag": tag } } });
        (body.to_string(), tag)
    }

    async fn ask(&mut self, body: String) -> Value {
        let (authority, id) = (self.authority(), self.id.clone());
        if self.wire.is_none() {
            self.wire = Some(Wire::new(&authority).await);
        }
        let asked = self.wire.as_mut().unwrap().post(&authority, &id, body);
        tokio::time::timeout(2 * LONG, asked).await.unwrap()
    }

    /// Sends a call and disconnects after a random time. An answer before that time counts.
    async fn hang_up(&mut self) {
        let (body, tag) = self.next("count");
        let moment = Duration::from_micros(self.random.number() % 8_000);
        let answer = tokio::time::timeout(moment, self.ask(body)).await;
        self.wire = None;
        match answer {
            Ok(answer) => self.hear(&answer, tag),
            Err(_) => {
                self.given_up.push(tag);
                *self.hung_up.get_or_insert(0) += 1;
            }
        }
    }

    async fn count(&mut self) {
        let (body, tag) = self.next("count");
        let answer = self.ask(body).await;
        self.hear(&answer, tag);
    }

    fn hear(&mut self, answer: &Value, tag: String) {
        assert_eq!(answer["id"], self.calls, "{answer}");
        let hung_up = self.hung_up.take();
        match seen(answer) {
            Seen::Number(number) => {
                if let Some(since) = hung_up
                    && number <= self.last
                {
                    // The given-up calls after the last answer may have run before the loss or after it.
                    self.given_up.drain(..self.given_up.len() - since);
                    (self.answered, self.last) = (0, 0);
                    self.unheard += 1;
                }
                self.answered += 1;
                let highest = self.answered + self.given_up.len() as u64;
                let name = self.number;
                assert!(
                    self.last < number && self.answered <= number && number <= highest,
                    "session {name}: {number} after {}, {} answered, {:?} given up",
                    self.last,
                    self.answered,
                    self.given_up
                );
                self.last = number;
            }
            Seen::Loss => {
                self.losses += 1;
                (self.answered, self.last) = (0, 0);
                self.given_up.clear();
            }
            Seen::Failure => self.given_up.push(tag),
        }
    }

    /// Kills the process of the session, now or during the next call.
    async fn kill(&mut self, meanwhile: bool) {
        let (body, _) = self.next("pid");
        let answer = self.ask(body).await;
        let pid = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        let kill = || {
            let status = std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
            assert!(status.success());
        };
        let before = self.losses;
        if meanwhile {
            let pause = Duration::from_micros(self.random.number() % 3_000);
            let killing = async {
                tokio::time::sleep(pause).await;
                kill();
            };
            futures_util::future::join(self.count(), killing).await;
        } else {
            kill();
        }
        // The call in flight reports the loss, or the next one does.
        for _ in 0..200 {
            if self.losses > before {
                return;
            }
            self.count().await;
        }
        panic!("session {}: the loss was not told", self.number);
    }

    async fn run(mut self, turns: Arc<Semaphore>) -> Self {
        for call in 1..=CALLS {
            let _turn = turns.acquire().await.unwrap();
            if let Some((when, meanwhile)) = self.plan.killed
                && when == call
            {
                self.kill(meanwhile).await;
                self.plan.hangs_up = 0;
            } else if self.random.percent(self.plan.hangs_up) {
                self.hang_up().await;
            } else {
                self.count().await;
            }
        }
        self
    }

    /// Returns whether the given-up calls are accounted for: each that reached the server ran exactly once.
    fn is_settled(&self, reached: &HashMap<String, usize>) -> bool {
        if self.unheard > 0 {
            // It is unknown which of them ran after the loss.
            return true;
        }
        let ran = self.given_up.iter().filter(|tag| reached.contains_key(*tag)).count() as u64;
        self.last == self.answered + ran
    }
}

/// Counts on until every session is accounted for, because given-up calls may run late.
async fn settle(sessions: &mut [Session], log: &Path) {
    for _ in 0..600 {
        let reached = reached(log);
        let mut left =
            sessions.iter_mut().filter(|session| !session.is_settled(&reached)).peekable();
        if left.peek().is_none() {
            return;
        }
        for session in left {
            session.count().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let reached = reached(log);
    let left = sessions.iter().filter(|session| !session.is_settled(&reached));
    let left: Vec<_> = left.map(|it| (it.number, it.last, it.answered, &it.given_up)).collect();
    panic!("calls ran and did not reach a server, or the other way round: {left:?}");
}

fn seen(answer: &Value) -> Seen {
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    match (result["isError"] == true, result["_meta"]["dev.stayput/state"]["state"] == "lost") {
        (false, false) => Seen::Number(text.parse().unwrap()),
        (true, true) => Seen::Loss,
        (true, false) => Seen::Failure,
        (false, true) => panic!("{answer}"),
    }
}

/// Counts each tag in the log of a server.
fn reached(log: &Path) -> HashMap<String, usize> {
    let text = std::fs::read_to_string(log).unwrap();
    let mut seen = HashMap::new();
    for line in text.lines().filter(|line| line.contains("tools/call")) {
        let from = line.find('<').unwrap();
        let to = line.find('>').unwrap();
        *seen.entry(line[from..=to].to_owned()).or_default() += 1;
    }
    seen
}

/// Runs all sessions to their ends, settles the given-up calls, and checks that no call arrived twice.
async fn fire(
    gateway: Gateway,
    log: PathBuf,
    plans: Vec<Plan>,
    mut random: Random,
) -> Vec<Session> {
    let gateway = Arc::new(gateway);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = Vec::new();
    for (number, plan) in plans.into_iter().enumerate() {
        let (gateway, turns) = (gateway.clone(), turns.clone());
        let random = Random::new(random.number());
        running.push(tokio::runtime::Handle::current().spawn(async move {
            let turn = turns.clone().acquire_owned().await.unwrap();
            let session = Session::new(number, gateway, random, plan).await;
            drop(turn);
            session.run(turns).await
        }));
    }
    let mut sessions = Vec::new();
    for task in running {
        sessions.push(task.await.unwrap());
    }
    settle(&mut sessions, &log).await;
    let twice: Vec<_> = reached(&log).into_iter().filter(|(_, times)| *times > 1).collect();
    assert!(twice.is_empty(), "these came twice: {twice:?}");
    sessions
}

fn limits() -> Value {
    json!({ "limits": { "processes": 2 * SESSIONS, "links": 4 * SESSIONS, "sessions_per_owner": 4 * SESSIONS,
        "per_owner": { "processes": 2 * SESSIONS, "links": 4 * SESSIONS } } })
}

/// R005, R099, E34, invariants 1 to 4: each of 200 sessions has a process. Some of the processes are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sessions_over_stdio_are_isolated() {
    let mut random = Random::for_test();
    let (mark, folder) = (mark("fire"), tempfile::TempDir::new().unwrap());
    let log = folder.path().join("log");
    let server = stdio(&mark, &["--log", log.to_str().unwrap()]);
    let gateway = Gateway::with(json!({ "test": server }), limits()).await;
    let plans: Vec<_> = (0..SESSIONS)
        .map(|_| Plan {
            hangs_up: if random.percent(25) { 20 } else { 0 },
            killed: random.percent(10).then(|| (1 + random.below(CALLS), random.percent(50))),
        })
        .collect();
    let killed: Vec<usize> = plans.iter().map(|plan| usize::from(plan.killed.is_some())).collect();
    let sessions = fire(gateway, log, plans, random).await;
    let told: Vec<usize> = sessions.iter().map(|session| session.losses).collect();
    assert!(sessions.iter().all(|session| session.unheard == 0), "nobody hung up on a loss");
    assert_eq!(told, killed, "each loss is told once, to whom it hit");
    drop(sessions);
    gone(&mark).await;
}

/// The server forgets some sessions, and some of its answers are lost on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sessions_over_http_are_isolated() {
    let mut random = Random::for_test();
    let folder = tempfile::TempDir::new().unwrap();
    let log = folder.path().join("log");
    let server = TestServer::http(&["--era", "legacy", "--log", log.to_str().unwrap()]).await;
    let mut rules = Vec::new();
    for at in 0..40 {
        let nth = 1 + at * SESSIONS * CALLS / 50 + random.below(SESSIONS * CALLS / 50);
        let forgets = json!({ "status": { "code": 404 } });
        let (deed, run) = if at % 2 == 0 { (forgets, false) } else { (json!("cut"), true) };
        rules.push(
            json!({ "on": "tools/call", "tool": "count", "nth": nth, "run": run, "do": deed }),
        );
    }
    server.script(&json!(rules)).await;
    let gateway = Gateway::with(json!({ "test": { "url": server.url() } }), limits()).await;
    let plans = (0..SESSIONS).map(|_| {
        let hangs_up = if random.percent(25) { 20 } else { 0 };
        Plan { hangs_up, killed: None }
    });
    let plans = plans.collect();
    let sessions = fire(gateway, log, plans, random).await;
    // A session whose client disconnected may have been forgotten meanwhile. Its next call reports that, unless the
    // client disconnects again.
    let heard: usize = sessions.iter().map(|session| session.losses + session.unheard).sum();
    let silent: usize = sessions.iter().map(|session| session.given_up.len()).sum();
    assert!(heard <= 20 && heard + silent >= 20, "{heard} losses were heard of");
    let url = format!("{}/metrics", sessions[0].gateway.url);
    let page = send(Method::GET, &url, &[], "").await.unwrap().bytes().await.unwrap();
    let page = str::from_utf8(&page).unwrap();
    let told = page.lines().filter(|line| line.starts_with("stayput_losses_total{"));
    let told: u32 = told.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum();
    assert_eq!(told, 20, "each loss is told once");
}
