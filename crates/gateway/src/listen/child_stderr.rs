//! Stderr of child processes on its way to the window whose servers they are.
//!
//! The holder sends it to `stayput stdio` between the messages, as lines of an own form. `stayput stdio` writes it to
//! its own stderr on a thread: a host that never reads that stderr must not block the messages.

use std::{
    io::Write as _,
    sync::{Arc, mpsc as blocking},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use stayput_upstream::StderrSink;
use tokio::sync::mpsc;

/// Number of pieces that wait for the reader. More of them are dropped.
const QUEUE: usize = 256;

/// Time that the last pieces get to be written before the process exits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Beginning of a line that carries stderr. No JSON-RPC message has such a member first and alone.
const PREFIX: &[u8] = br#"{"stayput/stderr":"#;

/// Line that carries a piece of stderr. Bytes that are not UTF-8 are replaced.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StderrLine {
    #[serde(rename = "stayput/stderr")]
    text: String,
}

/// Pieces of stderr that wait to be sent to a window.
pub(crate) type StderrPieces = mpsc::Receiver<Vec<u8>>;

/// Returns a sink for servers, and the pieces that arrive there.
pub(crate) fn channel() -> (StderrSink, StderrPieces) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let sink = move |bytes: &[u8]| {
        // A window that does not read, or is gone, loses them.
        let _ = sender.try_send(bytes.to_vec());
    };
    (Arc::new(sink), receiver)
}

/// Encodes a piece as a line.
pub(crate) fn encode(piece: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(piece).into_owned();
    let mut line = serde_json::to_vec(&StderrLine { text }).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Decodes a line, if it carries stderr.
pub(crate) fn decode(line: &[u8]) -> Option<Vec<u8>> {
    if !line.starts_with(PREFIX) {
        return None;
    }
    let line: StderrLine = serde_json::from_slice(line).ok()?;
    Some(line.text.into_bytes())
}

/// Thread that writes to the stderr of this process.
pub(crate) struct StderrWriter {
    pieces: Option<blocking::SyncSender<Vec<u8>>>,
    done: blocking::Receiver<()>,
}

impl StderrWriter {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let (pieces, waiting) = blocking::sync_channel::<Vec<u8>>(QUEUE);
        let (finished, done) = blocking::channel();
        std::thread::spawn(move || {
            for piece in waiting {
                // A host that closed the stderr does not want it.
                let _ = std::io::stderr().lock().write_all(&piece);
            }
            let _ = finished.send(());
        });
        Self { pieces: Some(pieces), done }
    }

    /// Writes a piece. It is dropped if too many wait.
    pub(crate) fn write(&self, piece: Vec<u8>) {
        if let Some(pieces) = &self.pieces {
            let _ = pieces.try_send(piece);
        }
    }

    /// Returns a sink for servers of this process.
    pub(crate) fn sink(&self) -> Option<StderrSink> {
        let pieces = self.pieces.clone()?;
        Some(Arc::new(move |bytes: &[u8]| {
            let _ = pieces.try_send(bytes.to_vec());
        }))
    }
}

/// Waits until all pieces are written.
impl Drop for StderrWriter {
    fn drop(&mut self) {
        self.pieces = None;
        let _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_is_the_same_after_its_way() {
        for piece in ["one\ntwo", "\u{1b}[31mred\"\\", ""] {
            let line = encode(piece.as_bytes());
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(decode(line.trim_ascii_end()).unwrap(), piece.as_bytes());
        }
        assert_eq!(decode(br#"{"jsonrpc":"2.0","method":"x"}"#), None);
        assert_eq!(decode(br#"{"stayput/stderr":"x","jsonrpc":"2.0","id":1,"result":{}}"#), None);
    }
}
