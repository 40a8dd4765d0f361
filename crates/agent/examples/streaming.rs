//! Run whose output is a stream, with notifications during each call.
//!
//! ```text
//! cargo run -p stayput --example streaming                   on `stayput demo-server`
//! cargo run -p stayput --example streaming -- COMMAND ARGS…  on a server with the tool `count`
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use stayput::{Error, Hub, Stdio};

/// Runs the example and returns its output lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("counter", server).build()?;
    let items = stream::iter(1..=3).then(|step| {
        let hub = hub.clone();
        async move {
            let call = hub.call("counter", "count", json!({}));
            let counted = call.on_notification(|text| println!("notification: {text}")).await?;
            Ok::<_, Error>(format!("step {step} counts {}", counted.text()))
        }
    });
    // One session from the first item to the last. It ends when the stream ends or is dropped.
    let mut run = Box::pin(hub.run_stream(items));
    let mut lines = Vec::new();
    while let Some(item) = run.next().await {
        lines.push(item?);
    }
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
