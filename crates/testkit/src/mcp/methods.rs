//! All methods of the test server except the tools.

use serde_json::{Value, json};
use stayput_wire::{Code, Era, Version, meta};

use super::{
    engine::{Call, unserved},
    message::Refusal,
    tools,
};

/// The only resource. It contains the number of `count` calls.
pub(super) const RESOURCE: &str = "test://count";

/// Answers a request.
pub(super) async fn answer(call: &Call) -> Result<Value, Refusal> {
    match call.era {
        Era::Legacy => legacy(call).await,
        Era::Modern => modern(call).await,
    }
}

async fn legacy(call: &Call) -> Result<Value, Refusal> {
    let params = call.message.params();
    let initialized = call.scope.state().version.is_some() || call.engine.options.stateless;
    match call.message.method() {
        "ping" => Ok(json!({})),
        "initialize" => Ok(initialize(call)),
        _ if !initialized => {
            Err(Refusal::new(Code::INVALID_REQUEST, "`initialize` has to come first"))
        }
        "logging/setLevel" => {
            call.scope.state().log_level = params["level"].as_str().map(str::to_owned);
            Ok(json!({}))
        }
        "resources/subscribe" => {
            let uri = resource(params, Era::Legacy)?;
            call.scope.state().subscriptions.insert(uri);
            Ok(json!({}))
        }
        "resources/unsubscribe" => {
            let uri = resource(params, Era::Legacy)?;
            call.scope.state().subscriptions.remove(&uri);
            Ok(json!({}))
        }
        _ => either(call).await,
    }
}

async fn modern(call: &Call) -> Result<Value, Refusal> {
    check_meta(call)?;
    let mut result = match call.message.method() {
        "server/discover" => discover(call),
        "subscriptions/listen" => call.engine.listen(call).await,
        _ => either(call).await?,
    };
    if result["resultType"].is_null() {
        result["resultType"] = "complete".into();
    }
    result[meta::META][meta::SERVER_INFO] = server_info();
    if let Some((ttl, scope)) = caching(call.message.method()) {
        result["ttlMs"] = ttl.into();
        result["cacheScope"] = scope.into();
    }
    Ok(result)
}

fn check_meta(call: &Call) -> Result<(), Refusal> {
    let version = call.message.meta(meta::PROTOCOL_VERSION);
    let capabilities = call.message.meta(meta::CLIENT_CAPABILITIES);
    if !version.is_string() || !capabilities.is_object() {
        let what = "`_meta` must tell the revision and what the client can do";
        return Err(Refusal::new(Code::INVALID_PARAMS, what).with_status(400));
    }
    if version != Version::V2026_07_28.as_str() {
        return Err(unserved(version));
    }
    Ok(())
}

async fn either(call: &Call) -> Result<Value, Refusal> {
    let params = call.message.params();
    match call.message.method() {
        "tools/list" => {
            let grown = call.scope.state().tools.clone();
            page(call, "tools", tools::listed(&call.engine.options, &grown))
        }
        "tools/call" => tools::call(call).await,
        "resources/list" => page(call, "resources", vec![described_resource()]),
        "resources/templates/list" => page(call, "resourceTemplates", Vec::new()),
        "resources/read" => {
            let uri = resource(params, call.era)?;
            let text = call.scope.state().count.to_string();
            Ok(json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": text }] }))
        }
        "prompts/list" => page(call, "prompts", vec![described_prompt()]),
        "prompts/get" => prompt(params),
        "completion/complete" => {
            let begun = params["argument"]["value"].as_str().unwrap_or_default();
            Ok(json!({ "completion": { "values": [format!("{begun}…")], "hasMore": false } }))
        }
        method => {
            Err(Refusal::new(Code::METHOD_NOT_FOUND, format!("nobody here knows `{method}`")))
        }
    }
}

fn initialize(call: &Call) -> Value {
    let params = call.message.params();
    let asked = Version::from(params["protocolVersion"].as_str().unwrap_or_default());
    let mut ours: Vec<Version> = call.engine.options.legacy_versions().collect();
    let newest = ours.pop().unwrap_or(Version::LATEST_LEGACY);
    let version = if ours.contains(&asked) { asked } else { newest };
    let mut state = call.scope.state();
    state.capabilities = params["capabilities"].clone();
    state.version = Some(version.clone());
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": { "subscribe": true },
            "prompts": {},
            "logging": {},
            "completions": {},
        },
        "serverInfo": server_info(),
        "instructions": "A server for tests.",
    })
}

fn discover(call: &Call) -> Value {
    let mut versions = vec![Version::V2026_07_28.as_str().to_owned()];
    if call.engine.options.eras == super::options::Eras::Dual {
        versions.extend(call.engine.options.legacy_versions().map(|v| v.as_str().to_owned()));
    }
    json!({
        "supportedVersions": versions,
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": { "subscribe": true },
            "prompts": {},
            "logging": {},
            "completions": {},
        },
        "instructions": "A server for tests.",
    })
}

fn server_info() -> Value {
    json!({ "name": "stayput-testserver", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns cache lifetime and scope of the result of a method, if the protocol requires them.
fn caching(method: &str) -> Option<(u64, &'static str)> {
    match method {
        "server/discover"
        | "tools/list"
        | "prompts/list"
        | "resources/list"
        | "resources/templates/list" => Some((60_000, "public")),
        "resources/read" => Some((0, "private")),
        _ => None,
    }
}

/// Returns one page of a list. The cursor is the number of the first entry.
fn page(call: &Call, name: &str, all: Vec<Value>) -> Result<Value, Refusal> {
    let size = call.engine.options.page.unwrap_or(usize::MAX);
    let from = match &call.message.params()["cursor"] {
        Value::Null => 0,
        cursor => cursor
            .as_str()
            .and_then(|cursor| cursor.parse().ok())
            .filter(|from| *from < all.len())
            .ok_or(Refusal::new(Code::INVALID_PARAMS, "this cursor is not one of ours"))?,
    };
    let next = from.saturating_add(size);
    let more = next < all.len();
    let entries: Vec<Value> = all.into_iter().skip(from).take(size).collect();
    let mut result = json!({ name: entries });
    if more {
        result["nextCursor"] = next.to_string().into();
    }
    Ok(result)
}

fn described_resource() -> Value {
    json!({ "uri": RESOURCE, "name": "count", "mimeType": "text/plain" })
}

fn described_prompt() -> Value {
    let arguments = json!([{ "name": "name", "required": true }]);
    json!({ "name": "greet", "description": "A greeting.", "arguments": arguments })
}

fn resource(params: &Value, era: Era) -> Result<String, Refusal> {
    if params["uri"] == RESOURCE {
        return Ok(RESOURCE.to_owned());
    }
    let code = match era {
        Era::Legacy => Code::RESOURCE_NOT_FOUND,
        Era::Modern => Code::INVALID_PARAMS,
    };
    Err(Refusal::new(code, "there is no such resource").with_data(json!({ "uri": params["uri"] })))
}

fn prompt(params: &Value) -> Result<Value, Refusal> {
    if params["name"] != "greet" {
        return Err(Refusal::new(Code::INVALID_PARAMS, "there is no such prompt"));
    }
    let name = params["arguments"]["name"].as_str().unwrap_or("nobody");
    let content = json!({ "type": "text", "text": format!("Say hello to {name}.") });
    Ok(json!({ "messages": [{ "role": "user", "content": content }] }))
}
