//! Client of the official SDK.

use std::sync::Arc;

use rmcp::{
    RoleClient, ServiceExt,
    model::{CallToolRequestParams, JsonObject},
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, TokioChildProcess,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio::process::Command;

use super::load::{Load, Tool, at_once};
use crate::server::counter;

pub(crate) type Sdk = RunningService<RoleClient, ()>;

pub(crate) async fn over_stdio() -> Sdk {
    let command = Command::new(counter());
    ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap()
}

/// Connects with persistent connections, which the SDK's own client does not have, and with the concurrency that we
/// need.
pub(crate) async fn over_http(url: &str) -> Sdk {
    let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().unwrap();
    let config = StreamableHttpClientTransportConfig::with_uri(url).max_concurrent_requests(32);
    ().serve(StreamableHttpClientTransport::with_client(client, config)).await.unwrap()
}

async fn call(client: &Sdk, tool: Tool) {
    let mut arguments = JsonObject::new();
    arguments.insert("path".to_owned(), "notes/today.md".into());
    arguments.insert("limit".to_owned(), 10.into());
    let params = CallToolRequestParams::new(tool.name()).with_arguments(arguments);
    let result = client.call_tool(params).await.unwrap();
    let size = result.content.iter().filter_map(|block| Some(block.as_text()?.text.len())).sum();
    assert!(tool.fits(size), "not the answer of this tool");
}

pub(crate) async fn run(client: &Arc<Sdk>, load: Load) {
    at_once(load.at_once, || {
        let client = client.clone();
        async move {
            for _ in 0..load.each {
                call(&client, load.tool).await;
            }
        }
    })
    .await;
}
