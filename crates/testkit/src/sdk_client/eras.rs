//! Modern client that lets the conformance server ask, report progress, run tasks and be cancelled.
#![allow(deprecated, reason = "servers still ask for sampling")]

use std::time::Duration;

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientConfig,
        CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
        GetTaskParams, ProgressNotificationParam, ProtocolVersion,
    },
    service::{
        ClientLifecycleMode, ClientServiceExt, NotificationContext, RequestContext, RunningService,
    },
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Failure;

/// Client that answers the questions of a server.
struct Answering {
    progress: mpsc::UnboundedSender<f64>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl ClientHandler for Answering {
    fn get_info(&self) -> ClientConfig {
        read(json!({
            "protocolVersion": "2026-07-28", "clientInfo": { "name": "rmcp", "version": "1" },
            "capabilities": {
                "elicitation": {}, "sampling": {}, "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
        }))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(read(json!({ "action": "accept", "content": { "name": "Ann" } })))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!({ "type": "text", "text": "roses are red" });
        Ok(read(json!({ "role": "assistant", "content": content, "model": "none" })))
    }

    async fn on_progress(
        &self,
        said: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.progress.send(said.progress);
    }
}

/// Open client, with the progress that it is told of.
struct Client {
    service: RunningService<RoleClient, Answering>,
    progress: mpsc::UnboundedReceiver<f64>,
}

impl Client {
    async fn open(url: &str) -> Result<Self, Failure> {
        let (sender, progress) = mpsc::unbounded_channel();
        let config = StreamableHttpClientTransportConfig::with_uri(url);
        let transport = StreamableHttpClientTransport::from_config(config);
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
        let service =
            Answering { progress: sender }.serve_with_lifecycle(transport, lifecycle).await?;
        Ok(Self { service, progress })
    }

    async fn text(&self, tool: &'static str) -> Result<Value, Failure> {
        let result = self.service.call_tool(CallToolRequestParams::new(tool)).await?;
        Ok(serde_json::to_value(result)?["content"][0]["text"].take())
    }

    /// Starts a task and returns its id.
    async fn start_task(&self, seconds: f64) -> Result<String, Failure> {
        let arguments = json!({ "seconds": seconds }).as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new("slow_compute").with_arguments(arguments);
        match self.service.call_tool_once(params).await? {
            CallToolResponse::Task(created) => Ok(created.task.task_id),
            other => Err(format!("no task: {other:?}").into()),
        }
    }

    /// Waits until a task has ended, and returns it.
    async fn ended_task(&self, id: &str) -> Result<Value, Failure> {
        loop {
            let task = self.service.get_task(GetTaskParams::new(id)).await?;
            let task = serde_json::to_value(task)?;
            if task["status"] != "working" {
                return Ok(task);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Cancels a call that has reported progress.
    async fn cancel_call(&mut self) -> Result<(), Failure> {
        let call = self.service.call_tool(CallToolRequestParams::new("wait"));
        tokio::select! {
            result = call => Err(format!("it was not cancelled: {result:?}").into()),
            _ = self.progress.recv() => Ok(()),
        }
    }
}

/// Uses the server at a URL, and returns what came of it.
pub(super) async fn seen(url: &str) -> Result<Value, Failure> {
    let mut client = Client::open(url).await?;
    let version = client.service.peer_info().map(|info| info.protocol_version.to_string());
    let elicited = client.text("test_input_required_result_elicitation").await?;
    let sampled = client.text("test_input_required_result_sampling").await?;
    while client.progress.try_recv().is_ok() {}
    let steps = client.text("test_tool_with_progress").await?;
    let mut progress = Vec::new();
    while let Ok(step) = client.progress.try_recv() {
        progress.push(step);
    }
    let done = client.start_task(0.05).await?;
    let done = client.ended_task(&done).await?;
    let stopped = client.start_task(3_600.0).await?;
    client.service.cancel_task(CancelTaskParams::new(&*stopped)).await?;
    let stopped = client.ended_task(&stopped).await?;
    client.cancel_call().await?;
    while client.text("cancelled").await? == "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(json!({
        "version": version, "elicited": elicited, "sampled": sampled, "steps": steps, "progress": progress,
        "task": [done["status"], done["result"]["content"][0]["text"]], "stopped": stopped["status"], "cancelled": true,
    }))
}
