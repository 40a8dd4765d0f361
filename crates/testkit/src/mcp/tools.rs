//! Tools of the test server.

mod asking;
mod process;
mod streaming;

use serde_json::{Value, json};
use stayput_wire::Code;

use super::{engine::Call, message::Refusal, options::Options};

/// Returns every tool for `tools/list`, including the configured ones.
pub(super) fn listed(options: &Options, grown: &[String]) -> Vec<Value> {
    let mut all = list();
    all.extend(
        options.tools.iter().chain(grown).map(|name| reading(name, "Says its name.", &json!({}))),
    );
    if options.wordy > 0 {
        for tool in &mut all {
            tool["description"] = "x".repeat(options.wordy).into();
        }
    }
    all
}

/// Returns the built-in tools, always in this order.
pub(super) fn list() -> Vec<Value> {
    let mut all = vec![
        tool("count", "Adds one and says the number.", &json!({})),
        tool("note_add", "Keeps a note.", &json!({ "text": { "type": "string" } })),
        reading("note_list", "Lists the notes.", &json!({})),
        reading("echo", "Says its arguments, byte for byte.", &json!({})),
        tool(
            "slow",
            "Takes `ms` in `steps` steps.",
            &json!({ "ms": integer(), "steps": integer() }),
        ),
        reading("big", "Says `bytes` bytes.", &json!({ "bytes": integer() })),
        tool("log", "Logs `n` lines.", &json!({ "n": integer() })),
        tool(
            "notify",
            "Tells that something changed; with `tool`, there is one more of that name.",
            &json!({ "tool": { "type": "string" } }),
        ),
        tool("elicit", "Asks the user.", &json!({ "message": { "type": "string" } })),
        tool("sample", "Asks the model.", &json!({ "prompt": { "type": "string" } })),
        tool("roots", "Asks for the roots.", &json!({})),
        reading("pid", "Says the process id.", &json!({})),
        reading("env", "Says an environment variable.", &json!({ "name": { "type": "string" } })),
        reading("cwd", "Says the working directory.", &json!({})),
        tool("crash", "Ends the process at once, with code 3.", &json!({})),
        tool("exit", "Ends the process at once.", &json!({ "code": integer() })),
        tool("stderr", "Writes to standard error.", &json!({ "text": { "type": "string" } })),
        reading("stats", "Says what the process saw.", &json!({})),
        reading(
            "header",
            "Says a header of the request.",
            &json!({ "name": { "type": "string" } }),
        ),
        tool("fail", "Fails, as a tool does.", &json!({})),
    ];
    let marked = json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
        "priority": { "type": "integer", "x-mcp-header": "Priority" },
    });
    all.push(reading("region", "Says its arguments, which travel as headers.", &marked));
    all
}

fn tool(name: &str, description: &str, properties: &Value) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": properties },
    })
}

/// Returns a read-only tool.
fn reading(name: &str, description: &str, properties: &Value) -> Value {
    let mut tool = tool(name, description, properties);
    tool["annotations"] = json!({ "readOnlyHint": true });
    tool
}

fn integer() -> Value {
    json!({ "type": "integer" })
}

/// Calls a tool.
pub(super) async fn call(call: &Call) -> Result<Value, Refusal> {
    let name = call.message.tool().unwrap_or_default();
    call.engine.stats.tool(name);
    let arguments = &call.message.params()["arguments"];
    Ok(match name {
        "count" => count(call),
        "note_add" => note_add(call, arguments).await,
        "note_list" => {
            let notes = call.scope.state().notes.clone();
            structured(&notes.join("\n"), &json!({ "notes": notes }))
        }
        // Not in the list.
        "meta" => text(&call.message.params()["_meta"].to_string()),
        "echo" | "region" => text(call.message.raw_arguments()),
        "fail" => failure("it failed, as it was asked to"),
        "stats" => {
            let stats = call.engine.stats.to_json();
            structured(&stats.to_string(), &stats)
        }
        "header" => header(call, arguments),
        "slow" | "big" | "log" | "notify" => streaming::call(call, name, arguments).await,
        "elicit" | "sample" | "roots" => return asking::call(call, name, arguments).await,
        "pid" | "env" | "cwd" | "crash" | "exit" | "stderr" => process::call(name, arguments),
        _ if call.engine.options.tools.iter().any(|own| own == name) => text(name),
        _ if call.scope.state().tools.iter().any(|own| own == name) => text(name),
        _ => return Err(Refusal::new(Code::INVALID_PARAMS, format!("there is no tool `{name}`"))),
    })
}

fn count(call: &Call) -> Value {
    let count = {
        let mut state = call.scope.state();
        state.count += 1;
        state.count
    };
    structured(&count.to_string(), &json!({ "count": count }))
}

/// Adds a note, and answers `ms` later if the call says so: until then it has been executed, and the client does not know.
async fn note_add(call: &Call, arguments: &Value) -> Value {
    let note = arguments["text"].as_str().unwrap_or_default().to_owned();
    let kept = {
        let mut state = call.scope.state();
        state.notes.push(note);
        state.notes.len()
    };
    if let Some(pause) = arguments["ms"].as_u64() {
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
    }
    structured(&kept.to_string(), &json!({ "notes": kept }))
}

fn header(call: &Call, arguments: &Value) -> Value {
    let value = arguments["name"]
        .as_str()
        .and_then(|name| call.headers.get(name))
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    structured(value.as_deref().unwrap_or_default(), &json!({ "value": value }))
}

/// Returns a result of one text.
fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Returns a result of one text, and the same as JSON.
fn structured(said: &str, structure: &Value) -> Value {
    let mut result = text(said);
    result["structuredContent"] = structure.clone();
    result
}

/// Returns a result of a failed tool.
fn failure(why: &str) -> Value {
    let mut result = text(why);
    result["isError"] = true.into();
    result
}
