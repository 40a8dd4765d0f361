//! A small MCP client on a link: opens a server by its URL, lists its tools, calls each of them, and
//! answers what it is asked. The official conformance suite drives it: it names a scenario in the
//! environment, and gives arguments for calls there.
//!
//! ```text
//! cargo run -p stayput-upstream --example client -- http://127.0.0.1:3000/mcp
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::{error::Error, process::ExitCode, time::Duration};

use serde_json::{Map, Value, json};
use stayput_core::{Owner, SessionId, Timestamp};
use stayput_process::Processes;
use stayput_upstream::{
    CallOptions, ClientCapabilities, ClientInfo, EraChoice, Http, Incoming, LinkOpenOptions,
    LinkOwner, LinkSettings, Links, Options, PooledLink, Server, ServerRequest, SessionDirs,
};
use stayput_wire::{Code, Era, ParamHeaders, Raw};
use tokio::runtime::Handle;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The most rounds of questions and answers in one call.
const ROUNDS: usize = 8;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("which server? give its URL")?;
    let era = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").as_deref() {
        Ok("2026-07-28") => EraChoice::Modern,
        Ok(_) => EraChoice::Legacy,
        Err(_) => EraChoice::Auto,
    };
    let server = Server::with("server", Http::new(url), Options { era, ..Options::default() })?;
    let processes = Processes::local(Handle::current());
    let settings = LinkSettings::new(processes, SessionDirs::temporary()?);
    let links = Links::new(settings, Handle::current());
    let place = LinkOwner::new(Owner::local(), SessionId::generate(Timestamp::from_millis(0)));
    let capabilities = r#"{"elicitation":{"form":{}},"sampling":{},"roots":{}}"#;
    let info = r#"{"name":"stayput-example","version":"1"}"#;
    let asking = LinkOpenOptions {
        client_info: ClientInfo::new(info, capabilities)?,
        ..LinkOpenOptions::default()
    };
    let link = links.open(&server, &place, &asking).await?;
    let worked = converse(&link).await;
    drop(link);
    let _ = links.end(place.session).await;
    links.close(Duration::from_secs(5)).await;
    worked
}

/// Asks for everything that a server may have, and calls every tool.
async fn converse(link: &PooledLink) -> Result<()> {
    // Some servers ask on a stream of their own, which is open only while somebody listens.
    let _listening = match link.initialize_result().era() {
        Era::Legacy => Some(link.listen("{}", ClientCapabilities::default()).await?),
        Era::Modern => None,
    };
    let tools = list(link, "tools/list", "tools").await?;
    let wanted: Value = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(context) => serde_json::from_str(&context)?,
        Err(_) => Value::Null,
    };
    let usable = tools.iter().filter(|tool| is_usable(tool));
    let calls: Vec<(String, Value)> = match wanted["toolCalls"].as_array() {
        Some(calls) => {
            calls.iter().map(|it| (text(&it["name"]), it["arguments"].clone())).collect()
        }
        None => usable.map(|tool| (text(&tool["name"]), arguments(&tool["inputSchema"]))).collect(),
    };
    let calls = calls.iter().map(|(name, arguments)| call(link, name, arguments));
    for done in futures_util::future::join_all(calls).await {
        // A tool that fails is no reason to stop.
        println!("{}", done.unwrap_or_else(|error| json!(error.to_string())));
    }
    for (method, member, read, key) in [
        ("resources/list", "resources", "resources/read", "uri"),
        ("prompts/list", "prompts", "prompts/get", "name"),
    ] {
        if !link.initialize_result().has(member) {
            continue;
        }
        for found in list(link, method, member).await? {
            println!("{}", ask(link, read, &json!({ key: found[key] })).await?);
        }
    }
    Ok(())
}

/// A tool whose schema asks for headers that cannot be must not be called.
fn is_usable(tool: &Value) -> bool {
    let schema = tool["inputSchema"].to_string();
    Raw::parse(&schema).is_ok_and(|schema| ParamHeaders::from_schema(schema).is_ok())
}

async fn list(link: &PooledLink, method: &str, member: &str) -> Result<Vec<Value>> {
    let answer = link.call(method, Some("{}"), CallOptions::default()).await?.answer().await?;
    let result = answer.result().ok_or_else(|| answer.error_message().unwrap_or_default())?;
    if method == "tools/list" {
        link.learn_tools(result);
    }
    let result: Value = serde_json::from_str(result)?;
    Ok(result[member].as_array().cloned().unwrap_or_default())
}

async fn call(link: &PooledLink, tool: &str, arguments: &Value) -> Result<Value> {
    ask(link, "tools/call", &json!({ "name": tool, "arguments": arguments })).await
}

/// Makes a call, through as many rounds of questions as the server has.
async fn ask(link: &PooledLink, method: &str, params: &Value) -> Result<Value> {
    let mut params = params.clone();
    for _ in 0..ROUNDS {
        let options = CallOptions {
            capabilities: ClientInfo::default().capabilities(),
            ..CallOptions::default()
        };
        let mut call = link.call(method, Some(&params.to_string()), options).await?;
        let result = loop {
            match call.next().await.ok_or("the call ended without an answer")? {
                Incoming::Request(asked) => answer(asked),
                Incoming::Answer(answer) => {
                    let answer = answer?;
                    let failed = answer.error_message().unwrap_or_default();
                    break serde_json::from_str::<Value>(answer.result().ok_or(failed)?)?;
                }
                _ => {}
            }
        };
        if result["resultType"] != "input_required" {
            return Ok(result);
        }
        let questions = result["inputRequests"].as_object().cloned().unwrap_or_default();
        let answers: Map<String, Value> = questions
            .iter()
            .map(|(key, it)| (key.clone(), reply(&text(&it["method"]), &it["params"])))
            .collect();
        params["inputResponses"] = answers.into();
        params.as_object_mut().ok_or("parameters are an object")?.remove("requestState");
        if let Some(state) = result.get("requestState") {
            params["requestState"] = state.clone();
        }
    }
    Err("the server asks without end".into())
}

/// Answers a question of a legacy server.
fn answer(asked: ServerRequest) {
    let question: Value = serde_json::from_slice(asked.text()).unwrap_or_default();
    let known = ["elicitation/create", "sampling/createMessage", "roots/list"];
    if known.contains(&asked.method()) {
        let reply = reply(asked.method(), &question["params"]);
        asked.reply(&reply.to_string());
    } else {
        asked.refuse(Code::METHOD_NOT_FOUND, "nobody here knows that");
    }
}

fn reply(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            json!({ "action": "accept", "content": arguments(&params["requestedSchema"]) })
        }
        "sampling/createMessage" => json!({
            "role": "assistant", "model": "none",
            "content": { "type": "text", "text": "a thought" },
        }),
        _ => json!({ "roots": [] }),
    }
}

/// Something that fits a schema: its defaults, else the plainest value of each type.
fn arguments(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let required: Vec<String> =
        schema["required"].as_array().into_iter().flatten().map(text).collect();
    let values = properties.iter().filter_map(|(name, property)| {
        let value = match property.get("default") {
            Some(default) => default.clone(),
            None if !required.contains(name) => return None,
            None => match property["type"].as_str() {
                Some("integer" | "number") => json!(1),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => property["enum"][0].as_str().map_or(json!("text"), |first| json!(first)),
            },
        };
        Some((name.clone(), value))
    });
    Value::Object(values.collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
