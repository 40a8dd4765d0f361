//! A hub from the file of servers that people already have.
//!
//! ```text
//! cargo run -p stayput --example config -- examples/quickstart.json
//! ```
#![allow(
    clippy::print_stdout,
    dead_code,
    reason = "a program for the terminal, which a test runs, too"
)]

mod terminal;

use std::path::Path;

use stayput::{Error, Hub};

/// The tools of all servers in the file, as lines. What is known of a server is asked once, on a link that is
/// thrown away: no session is needed to list.
pub(crate) async fn demonstrate(file: &Path) -> Result<Vec<String>, Error> {
    let hub = Hub::from_config(file)?;
    let mut lines: Vec<String> = hub.warnings().to_vec();
    for server in hub.server_names() {
        for tool in hub.tools(&server).await? {
            lines.push(format!("{server}: {}", tool.name));
        }
    }
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let file = std::env::args().nth(1);
    let file = file.ok_or(Error::InvalidInput("which file? give its path".to_owned()))?;
    terminal::show(demonstrate(Path::new(&file)).await?);
    Ok(())
}
