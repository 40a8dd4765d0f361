//! All servers behind `/mcp`, tested over HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

#[path = "aggregate/broken.rs"]
mod broken;
#[path = "aggregate/calls.rs"]
mod calls;
#[path = "aggregate/lists.rs"]
mod lists;
#[path = "aggregate/losses.rs"]
mod losses;
#[path = "aggregate/resources.rs"]
mod resources;

use serde_json::{Value, json};
use support::{Client, Gateway};

/// Path of all servers.
const ALL: &str = "";

/// Built-in notebook server.
fn notes() -> Value {
    json!({ "command": "${stayput}", "args": ["demo-server"] })
}

/// Returns the names of the entries of a list.
fn called(answer: &Value, member: &str, key: &str) -> Vec<String> {
    let list = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}"));
    list.iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
}

/// Returns the names of the tools.
async fn tools(client: &Client, gateway: &Gateway) -> Vec<String> {
    called(&client.request(gateway, "tools/list", json!({})).await, "tools", "name")
}
