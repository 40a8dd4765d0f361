//! Conversation of the tour: a client of one server, like the client of a host.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_core::{Clock as _, Owner, SessionId, SystemClock};
use stayput_upstream::{Call, CallOptions, LinkOpenOptions, LinkOwner, Links, PooledLink, Server};
use stayput_wire::meta;

use super::StepResult;

/// Timeout of a call: longer than any call of the tour takes, and short enough to wait for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Conversation with one server. The server sees each one as a client of its own, unless it is shared.
pub(super) struct Chat {
    links: Links,
    server: Server,
    place: LinkOwner,
}

/// Answer of a tool.
#[derive(Debug)]
pub(super) struct ToolAnswer {
    pub(super) text: String,
    /// Whether it reports a loss of state.
    pub(super) lost: bool,
    failed: bool,
}

impl ToolAnswer {
    fn read(result: &str) -> Option<Self> {
        let result: Value = serde_json::from_str(result).ok()?;
        let text = result["content"][0]["text"].as_str()?.to_owned();
        let lost = result[meta::META][meta::STATE]["state"] == "lost";
        Some(Self { text, lost, failed: result["isError"] == true })
    }
}

impl Chat {
    pub(super) fn new(links: &Links, server: &Server) -> Self {
        let session = SessionId::generate(SystemClock.now());
        let place = LinkOwner::new(Owner::local(), session);
        Self { links: links.clone(), server: server.clone(), place }
    }

    /// Opens the link, if it is not open yet.
    pub(super) async fn connect(&self) -> StepResult<PooledLink> {
        let opened = self.links.open(&self.server, &self.place, &LinkOpenOptions::default()).await;
        opened.map_err(|error| error.to_string())
    }

    /// Calls a tool and returns its text. A failure of the tool is an error.
    pub(super) async fn ask(&self, tool: &str, arguments: Value) -> StepResult<String> {
        let said = self.call(tool, arguments).await?;
        if said.failed { Err(format!("`{tool}` failed: {}", said.text)) } else { Ok(said.text) }
    }

    /// Calls a tool and returns its answer, also if the tool failed.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> StepResult<ToolAnswer> {
        let call = self.begin(&self.connect().await?, tool, &arguments).await?;
        answer(tool, call).await
    }

    /// Makes `count` concurrent calls of a tool and returns their answers.
    pub(super) async fn ask_at_once(&self, tool: &str, count: usize) -> StepResult<Vec<String>> {
        let link = self.connect().await?;
        let mut calls = Vec::with_capacity(count);
        for _ in 0..count {
            calls.push(self.begin(&link, tool, &json!({})).await?);
        }
        let mut answers = Vec::with_capacity(count);
        for call in calls {
            answers.push(answer(tool, call).await?.text);
        }
        Ok(answers)
    }

    /// Checks that the server answers. A ping can be repeated without effect.
    pub(super) async fn ping(&self) -> StepResult<()> {
        let call = self.connect().await?.call("ping", None, options()).await;
        let answer = call.map_err(|error| error.to_string())?.answer().await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    async fn begin(&self, link: &PooledLink, tool: &str, arguments: &Value) -> StepResult<Call> {
        let params = json!({ "name": tool, "arguments": arguments }).to_string();
        let call = link.call("tools/call", Some(&params), options()).await;
        call.map_err(|error| format!("`{tool}` cannot be called: {error}"))
    }
}

fn options() -> CallOptions {
    CallOptions { limit: Some(REQUEST_TIMEOUT), ..CallOptions::default() }
}

async fn answer(tool: &str, call: Call) -> StepResult<ToolAnswer> {
    let answer = call.answer().await.map_err(|error| format!("`{tool}` has no answer: {error}"))?;
    let said = answer.result().and_then(ToolAnswer::read);
    said.ok_or_else(|| {
        let whole = String::from_utf8_lossy(answer.as_bytes());
        format!("`{tool}` answered what is no result of a tool: {whole}")
    })
}
