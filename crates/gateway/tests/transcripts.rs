//! Golden wire transcripts: what clients and servers see of the gateway, byte for byte.
//!
//! Each test plays one scenario against the real program, as a client on one transport and as the server
//! behind it, and compares what both sides received with `transcripts/golden/ERA/TRANSPORT/SCENARIO.txt`.
//! Values that differ from run to run (ids, handles, ports, times) have numbered names there, so that
//! equal values are still seen to be equal. Header order, `date` and the framing of bodies are not recorded.
//!
//! `STAYPUT_UPDATE_TRANSCRIPTS=1 cargo nextest run -p stayput-gateway --test transcripts` writes the files
//! anew. Read the difference before you commit it: it is what clients or servers will notice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "transcripts/cells.rs"]
mod cells;
#[path = "transcripts/client.rs"]
mod client;
#[path = "transcripts/exchange.rs"]
mod exchange;
#[path = "transcripts/message.rs"]
mod message;
#[path = "transcripts/redact.rs"]
mod redact;
#[path = "transcripts/scenarios.rs"]
mod scenarios;
#[path = "transcripts/server.rs"]
mod server;
#[path = "transcripts/stage.rs"]
mod stage;
#[path = "transcripts/stdio.rs"]
mod stdio;
mod support;
#[path = "transcripts/transcript.rs"]
mod transcript;

use cells::{Cell, Era, Transport};

/// One test per recorded cell.
macro_rules! recorded {
    ($($module:ident: $era:ident $transport:ident on $server:ident [$($scenario:ident)*])*) => {
        $(mod $module {
            $(#[tokio::test]
            async fn $scenario() {
                let (era, transport) = (crate::Era::$era, crate::Transport::$transport);
                let (server, scenario) = (crate::Era::$server, stringify!($scenario));
                let cell = crate::Cell { era, transport, scenario, server };
                crate::scenarios::$scenario(cell).await.finish().await;
            })*
        })*

        const RECORDED: &[Cell] = &[$($(Cell {
            era: Era::$era,
            transport: Transport::$transport,
            scenario: stringify!($scenario),
            server: Era::$server,
        }),*),*];
    };
}

recorded! {
    legacy_http_json: Legacy HttpJson on Legacy
        [call progress cancel disconnect question loss batch aggregate refused_owner]
    legacy_http_sse: Legacy HttpSse on Legacy
        [call progress cancel disconnect resume question loss aggregate refused_owner]
    legacy_stdio: Legacy Stdio on Legacy
        [call progress cancel disconnect question loss batch aggregate]
    legacy_sse: Legacy Sse on Legacy
        [call progress cancel disconnect question loss batch refused_owner]
    modern_http_json: Modern HttpJson on Legacy
        [call cancel disconnect question loss aggregate refused_owner]
    modern_http_sse: Modern HttpSse on Legacy
        [call progress cancel disconnect question loss aggregate refused_owner]
    modern_stdio: Modern Stdio on Legacy
        [call progress cancel disconnect question loss aggregate]
    legacy_http_sse_on_modern: Legacy HttpSse on Modern [call progress cancel disconnect resume]
    legacy_stdio_on_modern: Legacy Stdio on Modern [call cancel disconnect]
    modern_http_json_on_modern: Modern HttpJson on Modern [call cancel disconnect aggregate]
    modern_http_sse_on_modern: Modern HttpSse on Modern [progress disconnect]
    modern_stdio_on_modern: Modern Stdio on Modern [call cancel disconnect]
}

#[test]
fn every_cell_is_recorded_or_listed_as_absent() {
    for cell in cells::all() {
        let ways = usize::from(RECORDED.contains(&cell)) + usize::from(cells::is_absent(cell));
        assert_eq!(ways, 1, "{cell} has to be recorded or listed as absent, and not both");
    }
    let mut golden = Vec::new();
    files(&transcript::golden_folder(), &mut golden);
    for file in golden {
        let known = RECORDED.iter().any(|cell| file.ends_with(cell.to_string()));
        assert!(known, "no test records {}", file.display());
    }
}

fn files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { files(&entry, found) } else { found.push(entry) }
    }
}
