//! A run that gives its output piece by piece, whoever takes the pieces; progress of a call meanwhile.
//!
//! ```text
//! cargo run -p stayput --example streaming                   on `stayput demo-server`
//! cargo run -p stayput --example streaming -- COMMAND ARGS…  on a server with the tool `count`
//! ```
#![allow(
    clippy::print_stdout,
    dead_code,
    reason = "a program for the terminal, which a test runs, too"
)]

mod terminal;

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use stayput::{Error, Hub, Stdio};

/// What happens, as lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("counter", server).build()?;
    let pieces = stream::iter(1..=3).then(|step| {
        let hub = hub.clone();
        async move {
            let call = hub.call("counter", "count", json!({}));
            let counted = call.on_notification(|said| println!("meanwhile: {said}")).await?;
            Ok::<_, Error>(format!("step {step} counts {}", counted.text()))
        }
    });
    // One session from the first piece to the last; it ends with the stream, or when that is dropped.
    let mut run = Box::pin(hub.run_stream(pieces));
    let mut lines = Vec::new();
    while let Some(piece) = run.next().await {
        lines.push(piece?);
    }
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
