//! Peer that listens on a port.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use stayput_testkit::peers::Peer;

use crate::support::until;

/// Running third-party HTTP server. It is in the process group of the test, so that it is killed with the test after a
/// timeout. Killed on drop.
pub(crate) struct Listening {
    peer: Peer,
    /// Argument before the port.
    word: &'static str,
    url: String,
    child: Child,
    said: Said,
}

type Said = Arc<Mutex<Vec<String>>>;

impl Listening {
    /// Starts a peer that takes `word` and a port, and prints its URL first.
    pub(crate) async fn start(peer: Peer, word: &'static str) -> Self {
        Self::on_port(peer, word, "0").await
    }

    async fn on_port(peer: Peer, word: &'static str, port: &str) -> Self {
        let (child, said) = run(peer.command().args([word, port]));
        let mut server = Self { peer, word, url: String::new(), child, said };
        let said =
            |server: &Self| server.said().iter().find(|line| line.starts_with("http://")).cloned();
        until("a URL", || said(&server).is_some()).await;
        server.url = said(&server).unwrap();
        server
    }

    /// Starts the reference server, which takes its port from the environment and does not print the one that it got.
    pub(crate) async fn everything(peer: Peer, mode: &str, path: &str) -> Self {
        let (child, said) = run(peer.command().arg(mode).env("PORT", "0"));
        let mut server = Self { peer, word: "", url: String::new(), child, said };
        let mut port = None;
        until("a server that listens", || {
            port = listened(server.child.id());
            port.is_some()
        })
        .await;
        server.url = format!("http://127.0.0.1:{}{path}", port.unwrap());
        server
    }

    /// Kills it and starts it again on the same port.
    pub(crate) async fn restart(self) -> Self {
        let (peer, word, url) = (self.peer.clone(), self.word, self.url.clone());
        drop(self);
        let port = url.trim_start_matches("http://127.0.0.1:").split('/').next().unwrap();
        let server = Self::on_port(peer, word, port).await;
        assert_eq!(server.url, url);
        server
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns its output lines.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts its output lines that contain this text.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.said().iter().filter(|line| line.contains(what)).count()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command) -> (Child, Said) {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let said = Said::default();
    keep(child.stdout.take().unwrap(), &said);
    keep(child.stderr.take().unwrap(), &said);
    (child, said)
}

/// Collects output lines. The thread ends with the server.
fn keep(from: impl Read + Send + 'static, said: &Said) {
    let said = said.clone();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            said.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
}

/// Returns the port that a process listens on.
fn listened(pid: u32) -> Option<u16> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.filter_map(Result::ok);
    let sockets: Vec<String> = entries
        .filter_map(|entry| {
            let to = fs::read_link(entry.path()).ok()?;
            let inode = to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines());
    lines
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Address, state and inode; 0A is a listening socket.
            let (address, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
            let ours = *state == "0A" && sockets.iter().any(|socket| socket == inode);
            ours.then(|| u16::from_str_radix(address.rsplit(':').next()?, 16).ok())?
        })
        .next()
}
