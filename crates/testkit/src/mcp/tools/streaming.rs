//! Tools that run long or send many messages.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_wire::{Era, meta};

use super::{super::engine::Call, super::methods, text};

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
