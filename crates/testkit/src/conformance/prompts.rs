//! Prompts of the suite.

use rmcp::{
    ErrorData,
    model::{GetPromptRequestParams, GetPromptResponse, GetPromptResult},
};
use serde_json::{Value, json};

use super::{Context, asking, complete, invalid, tools::PNG};

pub(super) fn list() -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|name| json!({ "name": name, "description": "A text.", "required": true }))
            .collect();
        json!({ "name": name, "description": "A prompt.", "arguments": arguments })
    };
    json!([
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ])
}

pub(super) fn get(
    ask: &GetPromptRequestParams,
    context: &Context,
) -> Result<GetPromptResponse, ErrorData> {
    let arguments = serde_json::to_value(&ask.arguments).unwrap();
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    let said = |text: &str| json!({ "type": "text", "text": text });
    let contents = match ask.name.as_ref() {
        "test_simple_prompt" => vec![said("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            vec![said(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            let resource = json!({ "type": "resource", "resource": resource });
            vec![resource, said("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => {
            let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
            vec![image, said("Please analyze the image above.")]
        }
        "test_input_required_result_prompt" => {
            let answers = ask.input_responses.as_ref();
            let Some(words) = asking::answer(answers, "user_context", "context") else {
                let question = asking::form("What context should the prompt use?", "context");
                let ask = asking::ask(&[("user_context", question)], None, context);
                return Ok(ask.into());
            };
            vec![said(&format!("The context is {words}."))]
        }
        name => return Err(invalid(format!("there is no prompt `{name}`"))),
    };
    let message = |content| json!({ "role": "user", "content": content });
    let messages: Vec<Value> = contents.into_iter().map(message).collect();
    Ok(complete::<GetPromptResult>(json!({ "messages": messages })).into())
}
