//! Client on the official Rust SDK, controlled by lines like those in `peers/clients`.

mod eras;

use std::{collections::HashMap, io::Write, process::ExitCode};

use rmcp::{
    RoleClient,
    model::{CallToolRequestParams, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt, RunningService},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

type Client = RunningService<RoleClient, ()>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs `stayput-sdk-client URL [MODE]`: a legacy client, unless the mode is another one. `peers/clients/lines.mjs`
/// describes its input and output. `stayput-sdk-client use URL` uses the conformance server as `peers/clients/both_eras.py`
/// uses others.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).take(2).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match words.iter().map(|word| &**word).collect::<Vec<_>>()[..] {
        ["use", url] => {
            let seen = runtime.block_on(eras::seen(url)).unwrap();
            std::io::stdout().write_all(format!("{seen}\n").as_bytes()).unwrap();
        }
        [url, mode] => runtime.block_on(run(url, mode != "legacy")),
        [url] => runtime.block_on(run(url, false)),
        _ => return ExitCode::FAILURE,
    }
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

async fn run(url: &str, modern: bool) {
    let mut clients = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command: Value = serde_json::from_str(&line).unwrap();
        let said = answer(&command, (url, modern), &mut clients).await;
        let said = said.unwrap_or_else(|error| json!({ "error": error.to_string() }));
        std::io::stdout().write_all(format!("{said}\n").as_bytes()).unwrap();
    }
}

async fn answer(
    command: &Value,
    (url, modern): (&str, bool),
    clients: &mut HashMap<String, Client>,
) -> Result<Value, Failure> {
    if let Some(name) = command["open"].as_str() {
        let headers = command["headers"].as_object().into_iter().flatten().map(|(name, value)| {
            Ok::<_, Failure>((name.parse()?, value.as_str().unwrap_or_default().parse()?))
        });
        let headers = headers.collect::<Result<HashMap<_, _>, _>>()?;
        let config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers);
        let transport = StreamableHttpClientTransport::from_config(config);
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = match modern {
            true => ClientLifecycleMode::Discover { preferred_versions },
            false => ClientLifecycleMode::Initialize,
        };
        let client = ().serve_with_lifecycle(transport, lifecycle).await?;
        let version = client.peer_info().map(|info| info.protocol_version.to_string());
        clients.insert(name.to_owned(), client);
        return Ok(json!({ "version": version }));
    }
    if let Some(name) = command["call"].as_str() {
        let tool = command["tool"].as_str().unwrap_or_default().to_owned();
        let arguments = command["arguments"].as_object().cloned().unwrap_or_default();
        let mut params = CallToolRequestParams::new(tool).with_arguments(arguments);
        params.meta = serde_json::from_value(command["meta"].clone())?;
        let result = clients.get(name).ok_or("not open")?.call_tool(params).await?;
        return Ok(json!({ "result": serde_json::to_value(result)? }));
    }
    let name = command["close"].as_str().unwrap_or_default();
    clients.remove(name).ok_or("not open")?.cancel().await?;
    Ok(json!({ "closed": name }))
}
