//! `stayput call`.

use std::io::Read as _;

use serde_json::{Map, Value, json};

use super::{GatewayAddress, RemoteError, mcp::Connection, say, tools};
use crate::commands::cli::CallArgs;
use crate::commands::terminal::plain;

/// Makes one call and prints its result.
///
/// # Errors
/// [`RemoteError`] is a sentence for the user. It also carries the text of a tool that failed.
pub(crate) async fn run(way: &GatewayAddress, args: &CallArgs) -> Result<(), RemoteError> {
    let session = args.session.as_ref().map(|key| key.value());
    let connection = Connection::open(way, Some(&args.server), session).await?;
    // On Ctrl-C the connection is still closed, so that nothing is left on the gateway.
    let called = tokio::select! {
        called = call_or_list(&connection, args) => called,
        _ = tokio::signal::ctrl_c() => Err(RemoteError::Wrong("interrupted".to_owned())),
    };
    connection.close().await;
    let result = called?;
    let (failed, format_result) = (result["isError"] == true, format_result(&result));
    if args.at.json {
        say(&result.to_string());
    } else if !failed {
        say(&format_result);
    }
    if failed { Err(RemoteError::Refused(format_result)) } else { Ok(()) }
}

/// Makes the call. If it failed because there is no such tool, the error lists the tools.
async fn call_or_list(connection: &Connection<'_>, args: &CallArgs) -> Result<Value, RemoteError> {
    let called = call(connection, args).await;
    let failed = match &called {
        Ok(result) => result["isError"] == true,
        Err(error) => matches!(error, RemoteError::Refused(_)),
    };
    if !failed {
        return called;
    }
    let Ok(tools) = tools::list(connection).await else { return called };
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    if names.is_empty() || names.contains(&&*args.tool) {
        return called;
    }
    let (tool, server, names) = (&args.tool, &args.server, names.join(", "));
    let sentence = format!("the server `{server}` has no tool `{tool}`; its tools are {names}");
    Err(RemoteError::Wrong(plain(&sentence)))
}

async fn call(connection: &Connection<'_>, args: &CallArgs) -> Result<Value, RemoteError> {
    let arguments = match &*args.arguments {
        [one] if one == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| RemoteError::Wrong(format!("the arguments: {error}")))?;
            object(&text)?
        }
        [one] if one.trim_start().starts_with('{') => object(one)?,
        [] => Map::new(),
        pairs => {
            let schema = schema(connection, &args.tool).await;
            pairs.iter().map(|pair| argument(pair, &schema)).collect::<Result<_, _>>()?
        }
    };
    let params = json!({ "name": args.tool, "arguments": arguments });
    connection.request("tools/call", params).await
}

fn object(text: &str) -> Result<Map<String, Value>, RemoteError> {
    serde_json::from_str(text).map_err(|error| {
        RemoteError::Wrong(format!("the arguments are not an object of JSON: {error}"))
    })
}

/// Returns the properties of the tool's input schema, or null if it is not available.
async fn schema(connection: &Connection<'_>, tool: &str) -> Value {
    let tools = tools::list(connection).await.unwrap_or_default();
    let found = tools.iter().find(|it| it["name"] == tool);
    found.map_or(Value::Null, |it| it["inputSchema"]["properties"].clone())
}

/// Parses an argument of the command line: a string where the tool wants one, else JSON if it is valid JSON.
fn argument(pair: &str, schema: &Value) -> Result<(String, Value), RemoteError> {
    let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err(RemoteError::Wrong(format!(
            "{pair:?} is no argument: write NAME=VALUE for each, or one object of JSON for all"
        )));
    };
    let text = schema[name]["type"] == "string";
    let parsed = serde_json::from_str(value).ok().filter(|_| !text);
    Ok((name.to_owned(), parsed.unwrap_or_else(|| Value::from(value))))
}

/// Formats a result as text. Content that is no text is shown by its type.
fn format_result(result: &Value) -> String {
    let block = |it: &Value| match it["text"].as_str().or(it["resource"]["text"].as_str()) {
        Some(text) => plain(text),
        None => {
            let (kind, of) = (it["type"].as_str().unwrap_or("?"), it["mimeType"].as_str());
            format!("[{kind}{}]", of.map(|of| format!(" {of}")).unwrap_or_default())
        }
    };
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    match (blocks, result.get("structuredContent")) {
        ([], Some(structure)) => structure.to_string(),
        _ => blocks.iter().map(block).collect::<Vec<_>>().join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_has_the_type_of_the_schema() {
        let schema = json!({ "text": { "type": "string" }, "n": { "type": "integer" } });
        let read = |pair: &str| argument(pair, &schema).unwrap();
        assert_eq!(read("text=42"), ("text".into(), json!("42")));
        assert_eq!(read("n=42"), ("n".into(), json!(42)));
        assert_eq!(read("other=a=b"), ("other".into(), json!("a=b")));
        assert_eq!(read("other=[1]"), ("other".into(), json!([1])));
        assert_eq!(read("text="), ("text".into(), json!("")));
        assert!(argument("text", &schema).is_err() && argument("=x", &schema).is_err());
    }

    #[test]
    fn result_is_formatted_as_text() {
        let content = json!([
            { "type": "text", "text": "a" },
            { "type": "image", "mimeType": "image/png", "data": "…" },
        ]);
        assert_eq!(format_result(&json!({ "content": content })), "a\n[image image/png]");
        assert_eq!(
            format_result(&json!({ "content": [], "structuredContent": { "n": 1 } })),
            r#"{"n":1}"#
        );
    }
}
