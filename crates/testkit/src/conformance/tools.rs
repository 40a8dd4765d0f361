//! Tools of the suite.

use std::{sync::atomic::Ordering, time::Duration};

use rmcp::{
    ErrorData,
    model::{CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities},
};
use serde_json::{Value, json};

use super::{
    Change, Context, Shared, asking, capabilities, complete, invalid, is_modern, read, tasks,
};

/// PNG of one red pixel.
pub(super) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// WAV without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// Tools without arguments that need only a name.
const PLAIN: [&str; 29] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_reconnection",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "failing_job",
    "protocol_error_job",
    "multi_input",
    "test_tool_with_task",
    "json_schema_2020_12_tool",
];

pub(super) fn list() -> Vec<Value> {
    let string = || json!({ "type": "string" });
    let mut all: Vec<Value> = PLAIN.iter().map(|name| tool(name, &json!({}), &[])).collect();
    if let Some(last) = all.last_mut() {
        last["inputSchema"] = rich_schema();
    }
    all.extend([
        tool("test_sampling", &json!({ "prompt": string() }), &["prompt"]),
        tool("test_elicitation", &json!({ "message": string() }), &["message"]),
        tool("greet", &json!({ "name": string() }), &["name"]),
        tool("slow_compute", &json!({ "seconds": { "type": "number" }, "label": string() }), &[]),
        tool("confirm_delete", &json!({ "filename": string() }), &["filename"]),
        tool(
            "test_headers",
            &json!({ "region": { "type": "string", "x-mcp-header": "Region" } }),
            &["region"],
        ),
    ]);
    all
}

fn tool(name: &str, properties: &Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "name": name, "description": "A tool of the suite.", "inputSchema": schema })
}

/// Returns a schema with many keywords of JSON Schema 2020-12, all of which have to arrive.
fn rich_schema() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": text(), "city": text() },
            },
        },
        "properties": {
            "name": text(),
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": text(),
            "email": text(),
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

pub(super) async fn call(
    shared: &Shared,
    call: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let arguments = serde_json::to_value(&call.arguments).unwrap();
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    Ok(match call.name.as_ref() {
        "test_tool_with_logging" | "test_logging_tool" => log(context).await?,
        "test_tool_with_progress" => progress(context).await?,
        // Long enough that a gateway in front of this server has to stream, too.
        "test_reconnection" => {
            tokio::time::sleep(Duration::from_secs(2)).await;
            text("done")
        }
        "test_sampling" => sample(context, &argument("prompt")).await,
        "test_elicitation" => {
            let text = |what: &str| json!({ "type": "string", "description": what });
            let fields = json!({ "username": text("User's response"), "email": text("User's email address") });
            elicit(context, &argument("message"), &fields, &["username", "email"]).await
        }
        "test_elicitation_sep1034_defaults" => elicit(context, "Is it so?", &defaults(), &[]).await,
        "test_elicitation_sep1330_enums" => elicit(context, "Which one?", &choices(), &[]).await,
        "test_missing_capability" if capabilities(context)["sampling"].is_null() => {
            let needed: ClientCapabilities = read(json!({ "sampling": {} }));
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        "test_streaming_elicitation" => {
            let question = asking::form("What is your name?", "name");
            asking::ask(&[("user_name", question)], None, context).into()
        }
        "test_trigger_tool_change" => change(shared, context, Change::Tools).await,
        "test_trigger_prompt_change" => change(shared, context, Change::Prompts).await,
        "greet" => text(&format!("Hello, {}!", argument("name"))),
        // Two tools that the suite does not know, and that are not in the list.
        "wait" => wait(shared, context).await?,
        "cancelled" => text(&shared.cancelled.load(Ordering::SeqCst).to_string()),
        name if name.starts_with("test_input_required_result_") => {
            return asking::call(shared, call, context);
        }
        "slow_compute"
        | "failing_job"
        | "protocol_error_job"
        | "confirm_delete"
        | "multi_input"
        | "test_tool_with_task" => return tasks::call(shared, call, context),
        name => return plain(name).ok_or_else(|| invalid(format!("there is no tool `{name}`"))),
    })
}

/// Calls a tool with a constant result.
fn plain(name: &str) -> Option<CallToolResponse> {
    let said = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| {
        let resource = json!({ "uri": uri, "mimeType": kind, "text": text });
        json!({ "type": "resource", "resource": resource })
    };
    let data = r#"{"test":"data","value":123}"#;
    let content = match name {
        "test_simple_text" => json!([said("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => {
            json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }])
        }
        "test_embedded_resource" => {
            let words = "This is an embedded resource content.";
            json!([resource("test://embedded-resource", "text/plain", words)])
        }
        "test_multiple_content_types" => {
            let resource = resource("test://mixed-content-resource", "application/json", data);
            json!([said("Multiple content types test:"), image, resource])
        }
        "test_error_handling" => {
            let content = json!([said("This tool intentionally returns an error for testing")]);
            let failure = json!({ "content": content, "isError": true });
            return Some(complete::<CallToolResult>(failure).into());
        }
        "test_missing_capability" | "test_headers" | "json_schema_2020_12_tool" => {
            json!([said("done")])
        }
        _ => return None,
    };
    Some(complete::<CallToolResult>(json!({ "content": content })).into())
}

/// Returns a result of one text.
pub(super) fn text(text: &str) -> CallToolResponse {
    complete::<CallToolResult>(json!({ "content": [{ "type": "text", "text": text }] })).into()
}

fn failure(why: &str) -> CallToolResponse {
    let content = json!([{ "type": "text", "text": why }]);
    complete::<CallToolResult>(json!({ "content": content, "isError": true })).into()
}

fn broken(error: &dyn std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[allow(deprecated, reason = "the suite asks for log messages")]
async fn log(context: &Context) -> Result<CallToolResponse, ErrorData> {
    let wanted = !is_modern(context) || context.meta.log_level().is_some();
    for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        if wanted {
            let said = read(json!({ "level": "info", "data": line }));
            context.peer.notify_logging_message(said).await.map_err(|error| broken(&error))?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(text("logged"))
}

async fn progress(context: &Context) -> Result<CallToolResponse, ErrorData> {
    let token = context.meta.get_progress_token();
    for step in [0, 50, 100] {
        if let Some(token) = &token {
            let said = json!({ "progressToken": token, "progress": step, "total": 100 });
            context.peer.notify_progress(read(said)).await.map_err(|error| broken(&error))?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(text("done"))
}

/// Reports progress, and waits until the call is cancelled.
async fn wait(shared: &Shared, context: &Context) -> Result<CallToolResponse, ErrorData> {
    if let Some(token) = context.meta.get_progress_token() {
        let said = json!({ "progressToken": token, "progress": 1 });
        context.peer.notify_progress(read(said)).await.map_err(|error| broken(&error))?;
    }
    context.ct.cancelled().await;
    shared.cancelled.fetch_add(1, Ordering::SeqCst);
    Ok(text("cancelled"))
}

#[allow(deprecated, reason = "the suite asks for sampling")]
async fn sample(context: &Context, prompt: &str) -> CallToolResponse {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let params = json!({ "messages": [message], "maxTokens": 100 });
    match context.peer.create_message(read(params)).await {
        Ok(answer) => {
            let answer = serde_json::to_value(answer).unwrap();
            text(&format!("LLM response: {}", answer["content"]))
        }
        Err(error) => failure(&error.to_string()),
    }
}

async fn elicit(
    context: &Context,
    message: &str,
    fields: &Value,
    required: &[&str],
) -> CallToolResponse {
    let schema = json!({ "type": "object", "properties": fields, "required": required });
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    match context.peer.create_elicitation(read(params)).await {
        Ok(answer) => {
            let answer = serde_json::to_value(answer).unwrap();
            let (action, content) = (&answer["action"], &answer["content"]);
            text(&format!("Elicitation completed: action={action}, content={content}"))
        }
        Err(error) => failure(&error.to_string()),
    }
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": { "type": "boolean", "default": true },
    })
}

fn choices() -> Value {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |what: &str| {
        json!([
            { "const": "value1", "title": format!("First {what}") },
            { "const": "value2", "title": format!("Second {what}") },
            { "const": "value3", "title": format!("Third {what}") },
        ])
    };
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}

/// Notifies all clients of a list change, without changing the list.
async fn change(shared: &Shared, context: &Context, change: Change) -> CallToolResponse {
    let _ = shared.changes.send(change);
    if !is_modern(context) {
        let _ = match change {
            Change::Tools => context.peer.notify_tool_list_changed().await,
            Change::Prompts => context.peer.notify_prompt_list_changed().await,
        };
    }
    text("changed")
}
