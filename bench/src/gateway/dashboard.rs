//! Cost of a call while the dashboard is open, compared with the same gateway without an open page.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Builder,
    sync::oneshot,
};

use super::{
    client::Client,
    contenders,
    load::{self, Took},
    running::Running,
    session::Target,
};
use crate::{
    report::{head, line, middle},
    server::HttpServer,
};

const SESSIONS: usize = 50;
const TURNS: usize = 7;
/// Time of a turn: the interval of the samples, and longer than the intervals of the page's requests.
const TURN: Duration = Duration::from_secs(5);
const TARGET: f64 = 1.05;

/// Requests that the page repeats: the overview and the table of sessions, with their intervals.
const POLLS: [(&str, Duration); 3] = [
    ("/admin/status", Duration::from_secs(4)),
    ("/admin/servers", Duration::from_secs(4)),
    ("/admin/sessions?limit=100&sort=-created", Duration::from_secs(3)),
];

/// Runs the measurement.
pub(super) async fn run() {
    let server = HttpServer::start();
    head(&format!(
        "The dashboard: {SESSIONS} sessions at once, without and with an open page; {TURNS} pairs of turns"
    ));
    if let Err(why) = measure(&server.url).await {
        line("not measured", &why, Some(("measured", false)));
    }
}

async fn measure(url: &str) -> Result<(), String> {
    let running = gateway(url).await?;
    let (ratios, seen) = in_turns(&running).await.map_err(|error| error.to_string())?;
    let ratio = middle(ratios);
    line("samples and answers that the page got", &seen.to_string(), Some(("some", seen > 0)));
    line(
        "CPU per call with an open page, of that without, median",
        &format!("{ratio:.3}"),
        Some(("≤ 1.05", ratio <= TARGET)),
    );
    Ok(())
}

/// Starts a gateway whose only client is an administrator, because the page needs one.
async fn gateway(url: &str) -> Result<Running, String> {
    let gateway = std::env::var("STAYPUT_BENCH_GATEWAY").map_err(
        |_| "STAYPUT_BENCH_GATEWAY does not name it; run `make bench ARGS=gateway-dashboard`",
    )?;
    let mut command = std::process::Command::new(&gateway);
    command.args(["token", "ops", "--admin", "--json"]);
    let made = command.output().map_err(|error| error.to_string())?;
    let made: Value = serde_json::from_slice(&made.stdout).map_err(|error| error.to_string())?;
    let token = made["token"].as_str().ok_or("`stayput token` printed no token")?;
    let config = json!({
        "mcpServers": { "counter": { "url": url } },
        "stayput": {
            "auth": { "tokens": { "ops": made["entry"] } },
            "limits": { "per_owner": { "requests_per_second": "unlimited" } },
        },
    });
    let more = format!("authorization: Bearer {token}\r\n");
    Running::start_as(&more, "stayput", "/mcp/counter", contenders::serving(gateway, config)).await
}

/// Measures pairs of turns. Who is first in one pair is last in the next. Returns the ratio of each pair, and how much
/// the page got.
async fn in_turns(running: &Running) -> io::Result<(Vec<f64>, u64)> {
    let mut callers = load::callers(running, SESSIONS).await?;
    let (mut ratios, seen) = (Vec::with_capacity(TURNS), Arc::<AtomicU64>::default());
    for pair in 0..TURNS {
        let mut cpu = [0.0; 2];
        for is_open in [pair % 2 == 0, pair % 2 != 0] {
            let page = if is_open { Some(Page::open(&running.target, &seen)?) } else { None };
            let took: Took;
            (callers, took) = load::run(running, callers, TURN).await?;
            cpu[usize::from(is_open)] = took.cpu;
            drop(page);
        }
        ratios.push(cpu[1] / cpu[0]);
    }
    Ok((ratios, seen.load(Ordering::SeqCst)))
}

/// Requests of an open page, on a thread of their own. Dropping it closes the page.
struct Page {
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    /// Opens the page, and waits until its event stream is open.
    fn open(target: &Target, seen: &Arc<AtomicU64>) -> io::Result<Self> {
        let (close, closed) = oneshot::channel();
        let (opened, is_open) = std::sync::mpsc::channel();
        let (target, seen) = (target.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let work = async {
                let mut stream = match follow(&target).await {
                    Ok(stream) => stream,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let _ = opened.send(Ok(()));
                let [status, servers, sessions] =
                    POLLS.map(|(path, pause)| poll(&target, path, pause, &seen));
                // A page that fails would measure nothing.
                tokio::try_join!(read(&mut stream, &seen), status, servers, sessions).unwrap();
            };
            runtime.block_on(async {
                tokio::select! {
                    () = work => {}
                    _ = closed => {}
                }
            });
        });
        let gone = |_| io::Error::other("the page ended");
        is_open.recv().map_err(gone)??;
        Ok(Self { close: Some(close), thread: Some(thread) })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.close.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn get(target: &Target, path: &str) -> String {
    let Target { address, more, .. } = target;
    format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{more}\r\n")
}

/// Opens the event stream. Returns when the head of its answer has come.
async fn follow(target: &Target) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(target.address).await?;
    stream.write_all(get(target, "/admin/events").as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    match &head {
        b"HTTP/1.1 200" => Ok(stream),
        _ => Err(io::Error::other(String::from_utf8_lossy(&head).into_owned())),
    }
}

/// Reads the event stream, and counts its parts.
async fn read(stream: &mut TcpStream, seen: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    while stream.read(&mut buffer).await? > 0 {
        seen.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// Repeats a request, and counts the answers.
async fn poll(target: &Target, path: &str, pause: Duration, seen: &AtomicU64) -> io::Result<()> {
    let mut client = Client::connect(target.address).await?;
    let request = get(target, path);
    loop {
        let status = client.send(request.as_bytes()).await?.status;
        if status != 200 {
            return Err(io::Error::other(format!("{path}: HTTP {status}")));
        }
        seen.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(pause).await;
    }
}
