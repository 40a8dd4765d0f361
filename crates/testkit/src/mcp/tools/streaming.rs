//! Tools that run long or send many messages.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_wire::{Era, meta};

use super::{super::engine::Call, super::message::notification_text, super::methods, text};

pub(super) async fn call(call: &Call, name: &str, arguments: &Value) -> Value {
    match name {
        "slow" => slow(call, arguments).await,
        "big" => {
            let bytes = arguments["bytes"].as_u64().unwrap_or(1 << 20);
            text(&"x".repeat(usize::try_from(bytes).unwrap_or(usize::MAX)))
        }
        "log" => log(call, arguments),
        _ => {
            let grown = arguments["tool"].as_str().map(str::to_owned);
            call.scope.state().tools.extend(grown);
            call.engine.changed(&call.scope, methods::RESOURCE);
            if let Some(message) = arguments["log"].as_str() {
                log_later(call, message);
            }
            text("")
        }
    }
}

/// Sends progress before each step and after the last, if the call has a token.
async fn slow(call: &Call, arguments: &Value) -> Value {
    let steps = arguments["steps"].as_u64().unwrap_or(1).max(1);
    let pause = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(1_000))
        / u32::try_from(steps).unwrap_or(u32::MAX);
    let token = call.message.meta(meta::PROGRESS_TOKEN);
    for step in 0..=steps {
        if !token.is_null() {
            let progress = json!({ "progressToken": token, "progress": step, "total": steps });
            call.notify("notifications/progress", &progress);
        }
        if step < steps {
            tokio::time::sleep(pause).await;
        }
    }
    text("done")
}

/// Time after which a log message is certainly outside of the call that asked for it.
const AFTER_THE_CALL: Duration = Duration::from_millis(200);

/// Logs a message after the answer of the call.
fn log_later(call: &Call, message: &str) {
    let said = json!({ "level": "error", "data": message });
    let (text, scope) = (notification_text("notifications/message", &said), call.scope.clone());
    tokio::spawn(async move {
        tokio::time::sleep(AFTER_THE_CALL).await;
        scope.general.send(text);
    });
}

fn log(call: &Call, arguments: &Value) -> Value {
    let wanted = match call.era {
        Era::Legacy => call.scope.state().log_level.clone().unwrap_or("info".to_owned()),
        Era::Modern => call.message.meta(meta::LOG_LEVEL).as_str().unwrap_or("never").to_owned(),
    };
    let hears_info = ["debug", "info"].contains(&wanted.as_str());
    let lines = arguments["n"].as_u64().unwrap_or(1);
    for line in (1..=lines).filter(|_| hears_info) {
        let said = json!({ "level": "info", "logger": "test", "data": format!("line {line}") });
        call.notify("notifications/message", &said);
    }
    text(&lines.to_string())
}
