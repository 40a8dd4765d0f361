//! Tools that become tasks, for clients that support tasks.

use std::time::Duration;

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
        CreateTaskResult, InputRequest,
    },
    task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions},
};
use serde_json::{Value, json};

use super::{Context, Shared, asking, capabilities, invalid, read, tools::text};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

pub(super) fn call(
    shared: &Shared,
    call: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let arguments = serde_json::to_value(&call.arguments).unwrap();
    let knows_tasks = !capabilities(context)["extensions"][EXTENSION].is_null();
    let work: Work = match call.name.as_ref() {
        // The only tool that works without tasks: it then answers at once.
        "slow_compute" if !knows_tasks => return Ok(text("computed")),
        _ if !knows_tasks => return Err(needs_tasks()),
        "slow_compute" => {
            let seconds = arguments["seconds"].as_f64().unwrap_or(0.0);
            Box::new(move |task| Box::pin(compute(task, Duration::from_secs_f64(seconds))))
        }
        "failing_job" => Box::new(|_| Box::pin(async { Ok(failed()) })),
        "protocol_error_job" => Box::new(|_| {
            Box::pin(async {
                Err(ErrorData::internal_error("it broke, as it should", None).into())
            })
        }),
        "confirm_delete" => Box::new(|task| Box::pin(confirm(task))),
        "multi_input" => Box::new(|task| Box::pin(two_questions(task))),
        "test_tool_with_task" => {
            let name = asking::answer(call.input_responses.as_ref(), "user_name", "name");
            let Some(name) = name else {
                let question = asking::form("What is your name?", "name");
                return Ok(asking::ask(&[("user_name", question)], None, context).into());
            };
            Box::new(move |_| Box::pin(async move { Ok(result(&format!("Hello, {name}!"))) }))
        }
        name => return Err(invalid(format!("there is no tool `{name}`"))),
    };
    let options = TaskOptions::new().with_poll_interval_ms(100);
    Ok(CreateTaskResult::new(shared.tasks.spawn(options, work)).into())
}

type Work = Box<dyn FnOnce(TaskContext) -> TaskFuture>;

fn needs_tasks() -> ErrorData {
    let needed = json!({ "extensions": { EXTENSION: {} } });
    ErrorData::missing_required_client_capability(read::<ClientCapabilities>(needed))
}

fn result(text: &str) -> CallToolResult {
    read(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn failed() -> CallToolResult {
    let content = json!([{ "type": "text", "text": "it failed, as it should" }]);
    read(json!({ "content": content, "isError": true }))
}

async fn compute(task: TaskContext, time: Duration) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = task.cancelled() => Err(TaskExit::Cancelled),
        () = tokio::time::sleep(time) => Ok(result("computed")),
    }
}

fn question(message: &str, field: &str) -> InputRequest {
    read::<InputRequest>(asking::form(message, field))
}

async fn confirm(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let answer: Value = task.request_input("confirm", question("Delete it?", "confirm")).await?;
    Ok(result(&answer.to_string()))
}

async fn two_questions(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let (one, two) = tokio::join!(
        task.request_input("one", question("What is the first name?", "name")),
        task.request_input("two", question("What is the second name?", "name")),
    );
    Ok(result(&json!([one?, two?]).to_string()))
}
