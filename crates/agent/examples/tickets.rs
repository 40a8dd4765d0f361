//! Ticket: a session leaves one hub and continues in another, possibly in another process. An HTTP server does not
//! notice.
//!
//! ```text
//! cargo run -p stayput --example tickets -- URL              of `stayput demo-server --http 127.0.0.1:0`, or of a
//!                                                            server with sessions and the tool `count`
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use serde_json::json;
use stayput::{Error, Http, Hub, Session, Ticket};

fn hub(url: &str) -> Result<Hub, Error> {
    Hub::builder().server("counter", Http::new(url)).build()
}

async fn count(session: &Session) -> Result<String, Error> {
    Ok(session.call("counter", "count", json!({})).await?.text())
}

/// Runs the example and returns its output lines.
pub(crate) async fn demonstrate(url: &str) -> Result<Vec<String>, Error> {
    let here = hub(url)?;
    let session = here.session("chat").await?;
    let first = count(&session).await?;
    // The ticket is a secret that gives access to the session. In this hub the session is ended now.
    let secret = session.into_ticket().await?.expose().to_owned();
    drop(here);

    let there = hub(url)?;
    let session = there.resume(&Ticket::from_secret(secret)).await?;
    Ok(vec![
        format!("here it counts {first}"),
        format!("there it counts {}", count(&session).await?),
    ])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1);
    let url = url.ok_or(Error::InvalidInput("give the URL of a server".to_owned()))?;
    terminal::show(demonstrate(&url).await?);
    Ok(())
}
