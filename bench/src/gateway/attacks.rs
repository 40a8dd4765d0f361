//! Attacks of one owner on workers, memory and sockets, and the effect on another owner.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::json;

use super::{
    client::Client,
    limits::{gateway, of, paced, tell},
    running::Running,
    session::{Session, Target},
};
use crate::{
    report::{head, line, middle},
    server::HttpServer,
};

/// Size of the large bodies and of the long list, in bytes.
const BODY: usize = 31 << 20;
const LIST: usize = 3 << 20;
/// Connections of an attack, and sockets of the gateway.
const CONNECTIONS: usize = 16;
const SOCKETS: usize = 200;
const TURNS: usize = 3;
const TARGET: f64 = 5.0;

/// Attack on one connection, which returns when that is done. It is repeated until the measurement is over.
type Attack = fn(&Target, &Payload) -> io::Result<()>;

/// Bytes that are sent again and again.
struct Payload {
    body: Vec<u8>,
    session: String,
}

/// Runs the measurement.
pub(super) async fn run() {
    head(&format!(
        "An owner that attacks on {CONNECTIONS} connections, and another; p99 of the other one, {TURNS} turns"
    ));
    let server = HttpServer::with_list(LIST);
    let limits = json!({
        "sockets": SOCKETS, "per_owner": { "requests_per_second": "unlimited" },
    });
    let measured = async {
        // The tools get a session argument, so their list has to be edited.
        let server = json!({ "url": server.url, "stayput": { "handles": "always" } });
        let running = gateway(server, limits).await?;
        let attacks: [(&str, Attack); 4] = [
            ("bodies of 31 MiB with millions of `_meta` members", large_body),
            ("`tools/list` on a list of 3 MiB", long_list),
            ("bodies that are dripped", dripped_body),
            ("idle sockets up to the limit", idle_sockets),
        ];
        for (name, attack) in attacks {
            beside(&running, name, attack).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    tell(measured.await);
}

async fn beside(running: &Running, name: &str, attack: Attack) -> io::Result<()> {
    let (ann, bob) = (of(running, "ann"), of(running, "bob"));
    let mut own = Client::connect(ann.address).await?;
    let session = Session::open(&mut own, &ann).await?.name().unwrap_or_default().to_owned();
    let meta = "\"\":0,".repeat(BODY / 5);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{{{meta}"x":0}}}}}}"#
    );
    let payload = Arc::new(Payload { body: body.into_bytes(), session });
    let mut client = Client::connect(bob.address).await?;
    let mut session = Session::open(&mut client, &bob).await?;
    paced(&mut client, &mut session).await?;
    let (mut quiet, mut loud) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        quiet.push(paced(&mut client, &mut session).await?);
        let flood = Flood::begin(&ann, &payload, attack);
        // The socket of an idle client may be closed to make room, so this one connects again.
        let mut client = Client::connect(bob.address).await?;
        loud.push(paced(&mut client, &mut session).await?);
        flood.end();
    }
    let (quiet, loud) = (middle(quiet), middle(loud));
    let ratio = loud / quiet;
    let value = format!("{quiet:.0} µs, {loud:.0} µs, {ratio:.2}");
    line(&format!("{name}: quiet, beside, ratio"), &value, Some(("< 5", ratio < TARGET)));
    Ok(())
}

/// Attacking owner, with one thread for each connection.
struct Flood {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn begin(target: &Target, payload: &Arc<Payload>, attack: Attack) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..CONNECTIONS).map(|_| {
            let (target, payload, over) = (target.clone(), payload.clone(), over.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    // A refused connection is a part of the attack.
                    if attack(&target, &payload).is_err() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })
        });
        Self { threads: threads.collect(), over }
    }

    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    Ok(socket)
}

/// Head of a POST that closes its connection.
fn post(target: &Target, session: &str, length: usize) -> String {
    format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\n{}mcp-session-id: {session}\r\nconnection: close\r\ncontent-type: \
         application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {length}\r\n\r\n",
        target.path, target.more
    )
}

fn large_body(target: &Target, payload: &Payload) -> io::Result<()> {
    let mut socket = connect(target.address)?;
    socket.write_all(post(target, &payload.session, payload.body.len()).as_bytes())?;
    socket.write_all(&payload.body)?;
    socket.read_to_end(&mut Vec::new()).map(drop)
}

fn long_list(target: &Target, payload: &Payload) -> io::Result<()> {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let mut socket = connect(target.address)?;
    socket.write_all(post(target, &payload.session, body.len()).as_bytes())?;
    socket.write_all(body.as_bytes())?;
    socket.read_to_end(&mut Vec::new()).map(drop)
}

fn dripped_body(target: &Target, payload: &Payload) -> io::Result<()> {
    let mut socket = connect(target.address)?;
    socket.write_all(post(target, &payload.session, BODY).as_bytes())?;
    for _ in 0..100 {
        socket.write_all(b" ")?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn idle_sockets(target: &Target, _: &Payload) -> io::Result<()> {
    let sockets: io::Result<Vec<_>> =
        (0..2 * SOCKETS / CONNECTIONS).map(|_| connect(target.address)).collect();
    std::thread::sleep(Duration::from_millis(100));
    sockets.map(drop)
}
