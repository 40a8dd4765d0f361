//! Conversation: each request of a web server finds the session of its chat by name, and reports lost state.
//!
//! ```text
//! cargo run -p stayput --example chat                        on `stayput demo-server`
//! cargo run -p stayput --example chat -- COMMAND ARGS…       on a server with the tool `count`
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use std::time::Duration;

use serde_json::json;
use stayput::{Error, Hub, Stdio};

/// One request. Dropping the session at its end releases it without ending it.
async fn request(hub: &Hub, chat: &str) -> Result<String, Error> {
    let session = hub.session(chat).await?;
    match session.call("counter", "count", json!({})).await {
        // The model's memory of the state is wrong now, so report the loss.
        Err(error) if error.is_state_lost() => {
            Ok(format!("{chat}: begin again, {}", error.reason().unwrap_or_default()))
        }
        counted => Ok(format!("{chat}: {}", counted?.text())),
    }
}

/// Runs the example and returns its output lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("counter", server).build()?;
    let mut lines = Vec::new();
    for chat in ["ann", "ben", "ann", "ann"] {
        lines.push(request(&hub, chat).await?);
    }
    // After a loss, the next request reports it, and the one after it continues.
    hub.session("ann").await?.restart("counter").await?;
    for chat in ["ann", "ann", "ben"] {
        lines.push(request(&hub, chat).await?);
    }
    let report = hub.close(Duration::from_secs(10)).await;
    lines.push(format!(
        "{} sessions, {} links, {} killed",
        report.sessions, report.links, report.killed
    ));
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
