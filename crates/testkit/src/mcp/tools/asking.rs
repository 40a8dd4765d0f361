//! Tools that ask the client before they answer: legacy by a server request during the call, modern by
//! `input_required` and a second request.

use serde_json::{Value, json};
use stayput_wire::{Code, Era, meta};

use super::{
    super::{engine::Call, message::Refusal, options::Quirk},
    failure, structured,
};

/// State that has to come back with the second request.
const STATE: &str = "as it was given";

pub(super) async fn call(call: &Call, name: &str, arguments: &Value) -> Result<Value, Refusal> {
    let (capability, method, params) = question(name, arguments);
    match call.era {
        Era::Legacy => Ok(legacy(call, capability, method, &params).await),
        Era::Modern => modern(call, capability, method, &params),
    }
}

fn question(name: &str, arguments: &Value) -> (&'static str, &'static str, Value) {
    match name {
        "elicit" => {
            let message = arguments["message"].as_str().unwrap_or("What is your name?");
            let properties = json!({ "name": { "type": "string" } });
            let schema = json!({ "type": "object", "properties": properties });
            let params = json!({ "message": message, "requestedSchema": schema });
            ("elicitation", "elicitation/create", params)
        }
        "sample" => {
            let prompt = arguments["prompt"].as_str().unwrap_or("Say something.");
            let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
            let params = json!({ "messages": [message], "maxTokens": 100 });
            ("sampling", "sampling/createMessage", params)
        }
        _ => ("roots", "roots/list", json!({})),
    }
}

async fn legacy(call: &Call, capability: &str, method: &str, params: &Value) -> Value {
    let declared = !call.scope.state().capabilities[capability].is_null();
    if !declared && !call.engine.options.has(Quirk::AskAnyway) {
        return failure(&format!("the client did not declare {capability}"));
    }
    match call.scope.ask(&*call.out, method, params).await {
        Ok(answer) => structured(&answer.to_string(), &answer),
        Err(error) => failure(&error.to_string()),
    }
}

fn modern(call: &Call, capability: &str, method: &str, params: &Value) -> Result<Value, Refusal> {
    if call.message.meta(meta::CLIENT_CAPABILITIES)[capability].is_null() {
        let needed = json!({ "requiredCapabilities": { capability: {} } });
        let what = format!("this needs a client that declares {capability}");
        return Err(Refusal::new(Code::MISSING_CAPABILITY, what).with_data(needed));
    }
    let said = call.message.params();
    let answer = &said["inputResponses"]["question"];
    if answer.is_null() {
        return Ok(json!({
            "resultType": "input_required",
            "inputRequests": { "question": { "method": method, "params": params } },
            "requestState": STATE,
        }));
    }
    if said["requestState"] != STATE {
        return Err(Refusal::new(Code::INVALID_PARAMS, "`requestState` is not what was given"));
    }
    Ok(structured(&answer.to_string(), answer))
}
