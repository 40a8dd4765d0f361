//! Requests of a server during a call: two sessions answer for their users, a third has no handler.
//!
//! ```text
//! cargo run -p stayput --example handlers -- target/debug/stayput-testserver stdio
//! cargo run -p stayput --example handlers -- COMMAND ARGS…   on a server whose tool `elicit` asks for a name
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use serde_json::{Value, json};
use stayput::{Error, Handlers, Hub, Session, Stdio};

/// Handlers of one user. A real program shows the question and waits for the answer.
fn user(name: &'static str) -> Handlers {
    Handlers::default().elicitation(move |question: Value| async move {
        match question["message"].as_str() {
            Some(_) => Ok(json!({ "action": "accept", "content": { "name": name } })),
            None => Err("the question has no message".to_owned()),
        }
    })
}

async fn greet(session: &Session) -> Result<String, Error> {
    let question = json!({ "message": "What is your name?" });
    Ok(session.call("asking", "elicit", question).await?.text())
}

/// Runs the example and returns its output lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("asking", server).build()?;
    // Capabilities are declared at the handshake, so handlers are set before the first call.
    let ann = hub.session("ann").await?.with_handlers(user("Ann"));
    let ben = hub.session("ben").await?.with_handlers(user("Ben"));
    let batch = hub.session("batch").await?;
    let (ann, ben) = tokio::try_join!(greet(&ann), greet(&ben))?;
    Ok(vec![
        format!("ann's server gets: {ann}"),
        format!("ben's server gets: {ben}"),
        format!("a server without handlers answers: {}", greet(&batch).await?),
    ])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
