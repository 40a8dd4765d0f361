//! Hub from an existing configuration file.
//!
//! ```text
//! cargo run -p stayput --example config -- examples/quickstart.json
//! ```
#![allow(clippy::print_stdout, dead_code, reason = "a terminal program that a test also runs")]

mod terminal;

use std::path::Path;

use stayput::{Error, Hub};

/// Lists the tools of all servers in the file. No session is needed: each server is asked once, on a temporary link.
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
    let file =
        file.ok_or(Error::InvalidInput("give the path of a configuration file".to_owned()))?;
    terminal::show(demonstrate(Path::new(&file)).await?);
    Ok(())
}
