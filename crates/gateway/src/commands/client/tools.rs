//! `stayput tools`.

use serde_json::{Value, json};

use super::{GatewayAddress, RemoteError, mcp::Connection, say};
use crate::commands::{cli::ToolsArgs, terminal::plain};

/// Most pages of a list that are read.
const MAX_PAGES: usize = 100;

/// Prints the tools of a server, or of all servers.
///
/// # Errors
/// [`RemoteError`] is a sentence for the user.
pub(crate) async fn run(way: &GatewayAddress, args: &ToolsArgs) -> Result<(), RemoteError> {
    let connection = Connection::open(way, args.server.as_deref(), None).await?;
    let listed = list(&connection).await;
    connection.close().await;
    let tools = listed?;
    if args.at.json {
        say(&Value::from(tools).to_string());
        return Ok(());
    }
    for tool in &tools {
        say(&plain(&line(tool)));
    }
    Ok(())
}

/// Requests all pages of the list.
pub(super) async fn list(connection: &Connection<'_>) -> Result<Vec<Value>, RemoteError> {
    let (mut tools, mut params) = (Vec::new(), json!({}));
    for _ in 0..MAX_PAGES {
        let mut page = connection.request("tools/list", params).await?;
        if let Value::Array(more) = page["tools"].take() {
            tools.extend(more);
        }
        match page["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    Ok(tools)
}

/// Formats a tool: its name with its arguments, as `stayput call` takes them, and its first sentence. Optional
/// arguments are in brackets.
fn line(tool: &Value) -> String {
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut words = vec![tool["name"].as_str().unwrap_or("?").to_owned()];
    for name in schema["properties"].as_object().into_iter().flat_map(serde_json::Map::keys) {
        let is_required = required.iter().any(|it| it == name);
        words.push(if is_required { format!("{name}=…") } else { format!("[{name}=…]") });
    }
    let description = tool["description"].as_str().unwrap_or_default();
    let first = description.split_inclusive(['.', '\n']).next().unwrap_or_default().trim();
    match first.is_empty() {
        true => words.join(" "),
        false => format!("{}\n    {first}", words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_shown_with_its_arguments_and_first_sentence() {
        let schema = json!({ "properties": { "a": {}, "b": {} }, "required": ["b"] });
        let tool = json!({ "name": "t", "description": "Does it. More.", "inputSchema": schema });
        assert_eq!(line(&tool), "t [a=…] b=…\n    Does it.");
        assert_eq!(line(&json!({ "name": "bare" })), "bare");
    }
}
