//! Run: all its calls reach one live server, which is started by the first call and ends with the run.
//!
//! ```text
//! cargo run -p stayput --example run                         on `stayput demo-server`
//! cargo run -p stayput --example run -- COMMAND ARGS…        on a server with the tools `note_add` and `note_list`
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use serde_json::json;
use stayput::{Error, Hub, Stdio};

/// A nested call finds the session of its run without a parameter.
async fn write_down(hub: &Hub, note: &str) -> Result<(), Error> {
    hub.call("notes", "note_add", json!({ "text": note })).await.map(drop)
}

async fn notes(hub: &Hub) -> Result<String, Error> {
    Ok(hub.call("notes", "note_list", json!({})).await?.text())
}

/// Runs the example and returns its output lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("notes", server).build()?;
    let first = hub
        .run(async {
            write_down(&hub, "buy milk").await?;
            write_down(&hub, "call Ann").await?;
            notes(&hub).await
        })
        .await?;
    // Another run has another server, without the notes of the first.
    let second = hub.run(notes(&hub)).await?;
    Ok(vec![format!("the first run wrote: {first}"), format!("the second run finds: {second}")])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
