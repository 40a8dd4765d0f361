//! What a server asks on the way to its answer: one session answers for its user, the others for nobody.
//!
//! ```text
//! cargo run -p stayput --example handlers -- target/debug/stayput-testserver stdio
//! cargo run -p stayput --example handlers -- COMMAND ARGS…   on a server whose tool `elicit` asks for a name
//! ```
#![allow(
    clippy::print_stdout,
    dead_code,
    reason = "a program for the terminal, which a test runs, too"
)]

mod terminal;

use serde_json::{Value, json};
use stayput::{Error, Handlers, Hub, Session, Stdio};

/// Whoever sits in front of this chat. A real one shows the question and waits.
fn user(name: &'static str) -> Handlers {
    Handlers::default().elicitation(move |question: Value| async move {
        match question["message"].as_str() {
            Some(_) => Ok(json!({ "action": "accept", "content": { "name": name } })),
            None => Err("there is nothing to ask".to_owned()),
        }
    })
}

async fn greet(session: &Session) -> Result<String, Error> {
    let question = json!({ "message": "What is your name?" });
    Ok(session.call("asking", "elicit", question).await?.text())
}

/// What happens, as lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("asking", server).build()?;
    // A server is told what it can ask when it is linked: handlers are there before the first call.
    let ann = hub.session("ann").await?.with_handlers(user("Ann"));
    let ben = hub.session("ben").await?.with_handlers(user("Ben"));
    let nobody = hub.session("batch").await?;
    let (ann, ben) = tokio::try_join!(greet(&ann), greet(&ben))?;
    Ok(vec![
        format!("ann's server hears: {ann}"),
        format!("ben's server hears: {ben}"),
        format!("one that can ask nobody says: {}", greet(&nobody).await?),
    ])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
