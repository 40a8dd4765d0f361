//! Tools about the process of the server.

use std::io::Write;

use serde_json::{Value, json};

use super::{failure, structured, text};

pub(super) fn call(name: &str, arguments: &Value) -> Value {
    match name {
        "pid" => {
            let pid = std::process::id();
            structured(&pid.to_string(), &json!({ "pid": pid }))
        }
        "env" => {
            let value = arguments["name"].as_str().and_then(std::env::var_os);
            let value = value.map(|value| value.to_string_lossy().into_owned());
            structured(value.as_deref().unwrap_or_default(), &json!({ "value": value }))
        }
        "cwd" => match std::env::current_dir() {
            Ok(folder) => text(&folder.to_string_lossy()),
            Err(error) => failure(&error.to_string()),
        },
        "crash" => end(3),
        "exit" => {
            end(arguments["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(0))
        }
        _ => {
            let said = arguments["text"].as_str().unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{said}");
            text("")
        }
    }
}

#[allow(clippy::exit, reason = "a crash is what the test asks for")]
fn end(code: i32) -> ! {
    std::process::exit(code)
}
