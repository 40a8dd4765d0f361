//! A stdio server whose part the test plays: the gateway starts a relay, and its messages come here.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use stayput_testkit::program;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    runtime::Handle,
    sync::{Notify, mpsc},
    task::AbortHandle,
    time::timeout,
};

use crate::{
    cells::Era,
    support::LONG,
    transcript::{Kind, Line},
};

/// A server of one name; each process that the gateway starts for it has its own recording.
pub(crate) struct Scripted {
    pub(crate) name: &'static str,
    port: u16,
    mark: String,
    shared: Arc<Shared>,
    calls: mpsc::UnboundedReceiver<Call>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Shared {
    processes: Mutex<Vec<Process>>,
    changed: Notify,
}

#[derive(Default)]
struct Process {
    received: Vec<String>,
    ended: bool,
    /// The scenario waited for the end, so it belongs to the recording.
    shows_end: bool,
}

/// A `tools/call` that the scenario answers.
pub(crate) struct Call {
    pub(crate) process: usize,
    era: Era,
    id: String,
    token: String,
    out: mpsc::UnboundedSender<String>,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
}

impl Scripted {
    pub(crate) async fn start(name: &'static str, era: Era, mark: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let (report, calls) = mpsc::unbounded_channel();
        let accepting = Handle::current().spawn({
            let shared = shared.clone();
            async move {
                while let Ok((socket, _)) = listener.accept().await {
                    serve(socket, era, shared.clone(), report.clone());
                }
            }
        });
        let accepting = accepting.abort_handle();
        Self { name, port, mark: mark.to_owned(), shared, calls, accepting }
    }

    /// Its entry in `mcpServers`.
    pub(crate) fn entry(&self) -> Value {
        let port = self.port.to_string();
        let args = ["relay", "--port", &port, "--mark", &self.mark];
        json!({ "command": program("stayput-testserver"), "args": args })
    }

    /// Messages that each process received, in order.
    pub(crate) fn processes(&self) -> Vec<Vec<Line>> {
        let processes = self.shared.processes.lock().unwrap();
        let line = |kind, text: &str| Line { mark: "<", kind, text: text.to_owned() };
        let lines = |process: &Process| {
            let messages = process.received.iter().map(|text| line(Kind::ToServer, text));
            let end = process.shows_end.then(|| line(Kind::Plain, "(end of input)"));
            messages.chain(end).collect()
        };
        processes.iter().map(lines).collect()
    }

    /// Waits for the next `tools/call`.
    pub(crate) async fn call(&mut self) -> Call {
        timeout(LONG, self.calls.recv()).await.expect("a call in time").unwrap()
    }

    /// Waits until a process has received a message with this text.
    pub(crate) async fn receives(&self, process: usize, text: &str) {
        self.until(|all| all[process].received.iter().any(|line| line.contains(text)), text).await;
    }

    /// Waits until the input of a process has ended.
    pub(crate) async fn ends(&self, process: usize) {
        self.until(|all| all[process].ended, "end of input").await;
        self.shared.processes.lock().unwrap()[process].shows_end = true;
    }

    async fn until(&self, holds: impl Fn(&[Process]) -> bool, what: &str) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if holds(&self.shared.processes.lock().unwrap()) {
                    return;
                }
                changed.await;
            }
        };
        let came = timeout(LONG, waiting).await;
        assert!(came.is_ok(), "{} did not receive: {what}", self.name);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn serve(socket: TcpStream, era: Era, shared: Arc<Shared>, report: mpsc::UnboundedSender<Call>) {
    let process = {
        let mut processes = shared.processes.lock().unwrap();
        processes.push(Process::default());
        processes.len() - 1
    };
    let (from, mut to) = socket.into_split();
    let (out, mut lines) = mpsc::unbounded_channel::<String>();
    Handle::current().spawn(async move {
        // An empty line ends the process.
        while let Some(line) = lines.recv().await.filter(|line| !line.is_empty()) {
            if to.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let blank = Call { process, era, id: String::new(), token: String::new(), out };
    Handle::current().spawn(read(from, blank, shared, report));
}

async fn read(
    from: OwnedReadHalf,
    blank: Call,
    shared: Arc<Shared>,
    report: mpsc::UnboundedSender<Call>,
) {
    let mut input = BufReader::new(from).lines();
    while let Ok(Some(line)) = input.next_line().await {
        shared.processes.lock().unwrap()[blank.process].received.push(line.clone());
        shared.changed.notify_waiters();
        let request: Request<'_> = serde_json::from_str(&line).unwrap();
        let (Some(id), Some(method)) = (request.id, request.method) else { continue };
        if method == "tools/call" {
            let message: Value = serde_json::from_str(&line).unwrap();
            let token = message["params"]["_meta"]["progressToken"].to_string();
            let (id, out) = (id.get().to_owned(), blank.out.clone());
            let _ = report.send(Call { id, token, out, ..blank });
        } else {
            blank.say(answer(blank.era, id.get(), &method));
        }
    }
    shared.processes.lock().unwrap()[blank.process].ended = true;
    shared.changed.notify_waiters();
    blank.crash();
}

/// The answer to everything but calls.
fn answer(era: Era, id: &str, method: &str) -> String {
    let result = match (era, method) {
        (Era::Legacy, "initialize") => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"scripted","version":"7"},"instructions":"Plays a script."}"#
        }
        (Era::Modern, "server/discover") => {
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"Plays a script.","ttlMs":60000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"7"}}}"#
        }
        (Era::Legacy, "tools/list") => {
            r#"{"tools":[{"name":"work","description":"Works.","inputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"x-unknown":1.10}]}"#
        }
        (Era::Modern, "tools/list") => {
            r#"{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"work","description":"Works.","inputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"x-unknown":1.10}]}"#
        }
        (Era::Legacy, "ping" | "logging/setLevel") => "{}",
        _ => {
            let error = r#"{"code":-32601,"message":"not in the script"}"#;
            return format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        }
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

impl Call {
    fn say(&self, line: String) {
        let _ = self.out.send(line);
    }

    /// Answers with one text. Spaces, numbers and unknown members have to arrive as they are.
    pub(crate) fn answer(&self, text: &str) {
        let id = &self.id;
        let kind = if self.era == Era::Modern { r#""resultType":"complete","# } else { "" };
        self.say(format!(
            r#"{{"jsonrpc":"2.0", "id":{id},"result":{{{kind}"content":[{{"type":"text","text":"{text}"}}],"x-unknown":1.10}}}}"#
        ));
    }

    /// Tells progress under the token that came with the call.
    pub(crate) fn progress(&self, progress: u32) {
        let token = &self.token;
        self.say(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}.0}}}}"#
        ));
    }

    /// Logs a line.
    pub(crate) fn log(&self, data: &str) {
        self.say(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{data}"}}}}"#
        ));
    }

    /// Asks the client something.
    pub(crate) fn ask(&self, id: &str, method: &str, params: &str) {
        self.say(format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#
        ));
    }

    /// Ends the process of the server.
    pub(crate) fn crash(&self) {
        self.say(String::new());
    }
}
