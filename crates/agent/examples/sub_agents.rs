//! Sub-agents that share the server of the agent, have their own, or have no access.
//!
//! ```text
//! cargo run -p stayput --example sub_agents                  on `stayput demo-server`
//! cargo run -p stayput --example sub_agents -- COMMAND ARGS… on a server with the tool `count`
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use serde_json::json;
use stayput::{Error, Hub, Stdio, SubAgent as _};

async fn research(hub: &Hub) -> Result<String, Error> {
    Ok(hub.call("counter", "count", json!({})).await?.text())
}

/// Runs the example and returns its output lines.
pub(crate) async fn demonstrate(server: Stdio) -> Result<Vec<String>, Error> {
    let hub = Hub::builder().server("counter", server).build()?;
    hub.run(async {
        let mut lines = vec![format!("the agent counts {}", research(&hub).await?)];
        let (shared, own, without) = tokio::join!(
            research(&hub).inherited("counter"),
            research(&hub).isolated("counter"),
            research(&hub).denied("counter"),
        );
        lines.push(format!("one that shares counts {}", shared?));
        lines.push(format!("one with its own counts {}", own?));
        lines.push(format!(
            "one without access fails: {}",
            without.err().map_or("", |it| it.kind())
        ));
        // `stayput::spawn` passes the scope to the new task.
        let carried = hub.clone();
        let spawned = stayput::spawn(async move { research(&carried).await });
        lines.push(format!("a task counts {}", spawned.await.map_err(|_| Error::NoSession)??));
        Ok(lines)
    })
    .await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    terminal::show(demonstrate(terminal::server()).await?);
    Ok(())
}
