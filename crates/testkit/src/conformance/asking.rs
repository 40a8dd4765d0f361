//! Tools that answer with `input_required`, and expect a second request with the answers.

use std::collections::BTreeMap;

use rmcp::{
    ErrorData,
    model::{CallToolRequestParams, CallToolResponse, InputRequiredResult},
};
use serde_json::{Value, json};

use super::{Context, Shared, capabilities, invalid, read, tools::text};

type Answers = BTreeMap<String, Value>;

/// Returns a form with one text field.
pub(super) fn form(message: &str, field: &str) -> Value {
    typed_form(message, field, "string")
}

fn typed_form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": { field: { "type": kind } },
        "required": [field],
    });
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

fn sample(prompt: &str, tokens: u32) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let params = json!({ "messages": [message], "maxTokens": tokens });
    json!({ "method": "sampling/createMessage", "params": params })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// Returns the result with those of these questions that the client supports.
pub(super) fn ask(
    questions: &[(&str, Value)],
    state: Option<String>,
    context: &Context,
) -> InputRequiredResult {
    let can = capabilities(context);
    let may_ask = |question: &Value| match question["method"].as_str() {
        Some("elicitation/create") => !can["elicitation"].is_null(),
        Some("sampling/createMessage") => !can["sampling"].is_null(),
        _ => !can["roots"].is_null(),
    };
    let asked: Answers = questions
        .iter()
        .filter(|(_, question)| may_ask(question))
        .map(|(key, question)| ((*key).to_owned(), question.clone()))
        .collect();
    let mut result = json!({ "resultType": "input_required", "inputRequests": asked });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    read(result)
}

/// Returns the text of a field of a completed form.
pub(super) fn answer(answers: Option<&Answers>, key: &str, field: &str) -> Option<String> {
    let answer = answers?.get(key)?;
    if answer["action"] != "accept" {
        return None;
    }
    match &answer["content"][field] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Calls a tool whose name begins with `test_input_required_result_`.
pub(super) fn call(
    shared: &Shared,
    call: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let answers = call.input_responses.as_ref();
    let given = |key: &str| answers.and_then(|answers| answers.get(key));
    let name = call.name.trim_start_matches("test_input_required_result_");
    Ok(match name {
        "elicitation" => match answer(answers, "user_name", "name") {
            Some(name) => text(&format!("Hello, {name}!")),
            None => ask(&[("user_name", form("What is your name?", "name"))], None, context).into(),
        },
        "sampling" => match given("capital_question") {
            Some(said) => text(&said["content"].to_string()),
            None => {
                let question = sample("What is the capital of France?", 100);
                ask(&[("capital_question", question)], None, context).into()
            }
        },
        "list_roots" => match given("client_roots") {
            Some(said) => text(&said["roots"].to_string()),
            None => ask(&[("client_roots", roots())], None, context).into(),
        },
        "capabilities" => {
            let questions = [("user", form("Who?", "name")), ("model", sample("Say hello", 50))];
            ask(&questions, None, context).into()
        }
        "request_state" | "tampered_state" => {
            let question = typed_form("Please confirm", "ok", "boolean");
            return with_state(shared, call, &[("confirm", question)], context);
        }
        "multiple_inputs" => {
            let questions = [
                ("user_name", form("What is your name?", "name")),
                ("greeting", sample("Generate a greeting", 50)),
                ("client_roots", roots()),
            ];
            return with_state(shared, call, &questions, context);
        }
        "multi_round" => return rounds(shared, call, context),
        _ => return Err(invalid(format!("there is no tool `{}`", call.name))),
    })
}

/// Asks, and requires the state with the answers.
fn with_state(
    shared: &Shared,
    call: &CallToolRequestParams,
    questions: &[(&str, Value)],
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    check_state(shared, call)?;
    let answers = call.input_responses.as_ref();
    let complete =
        answers.is_some_and(|answers| questions.iter().all(|(key, _)| answers.contains_key(*key)));
    if complete {
        return Ok(text("state-ok: every question was answered"));
    }
    Ok(ask(questions, Some(shared.new_state()), context).into())
}

fn rounds(
    shared: &Shared,
    call: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    check_state(shared, call)?;
    let answers = call.input_responses.as_ref();
    let question = if answers.is_some_and(|answers| answers.contains_key("step2")) {
        return Ok(text("Both steps were answered."));
    } else if answers.is_some_and(|answers| answers.contains_key("step1")) {
        ("step2", form("Step 2: What is your favorite color?", "color"))
    } else {
        ("step1", form("Step 1: What is your name?", "name"))
    };
    Ok(ask(&[question], Some(shared.new_state()), context).into())
}

/// Checks that answers come with an issued state, or not at all.
fn check_state(shared: &Shared, call: &CallToolRequestParams) -> Result<(), ErrorData> {
    let state = call.request_state.as_deref();
    if (state.is_some() || call.input_responses.is_some()) && !shared.knows_state(state) {
        return Err(invalid("`requestState` is not what was given"));
    }
    Ok(())
}
