//! A call of a tool.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use serde_json::value::RawValue;
use stayput_wire::json;

use crate::{Error, Hub, ToolResult, hold::Hold, request::Request};

/// A call of a tool, which is made when it is awaited. Dropped before its end, it is cancelled.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(hub: &stayput::Hub) -> Result<(), stayput::Error> {
/// use serde_json::json;
///
/// let page = hub
///     .call("browser", "browser_navigate", json!({ "url": "https://example.com" }))
///     .timeout(Duration::from_secs(30))
///     .await?;
/// println!("{}", page.text());
/// # Ok(())
/// # }
/// ```
#[must_use = "a call is made when it is awaited"]
pub struct ToolCall {
    request: Request,
}

impl ToolCall {
    pub(crate) fn new(
        hub: &Hub,
        hold: Option<Arc<Hold>>,
        (server, tool): (&str, &str),
        arguments: impl Serialize,
    ) -> Self {
        let params = match serde_json::to_string(&arguments) {
            // Nothing at all is no arguments.
            Ok(arguments) if arguments == "null" => {
                Ok(format!(r#"{{"name":{}}}"#, json::quote(tool)))
            }
            Ok(arguments) if arguments.starts_with('{') => {
                Ok(format!(r#"{{"name":{},"arguments":{arguments}}}"#, json::quote(tool)))
            }
            Ok(_) => Err(Error::Invalid(format!("the arguments of `{tool}` are no JSON object"))),
            Err(error) => {
                Err(Error::Invalid(format!("the arguments of `{tool}` are no JSON: {error}")))
            }
        };
        let mut request = Request::new(hub, hold, server, ("tools/call", params));
        request.tool = Some(tool.into());
        Self { request }
    }

    /// Fails when neither an answer nor progress came for this long. The server's own limit holds
    /// otherwise.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.request.limit = Some(limit);
        self
    }

    /// Hears the progress and the log messages of this call, each a whole notification as JSON. The server is
    /// asked for progress.
    pub fn on_notification(mut self, hears: impl FnMut(&str) + Send + 'static) -> Self {
        self.request.hears = Some(Box::new(hears));
        self
    }

    /// If the state is lost before the call was carried out, makes it once more on a fresh one;
    /// [`ToolResult::after_loss`] tells. [`Hub::on_loss`] chooses it for all calls to a server.
    pub fn restart_on_loss(mut self) -> Self {
        self.request.again = true;
        self
    }

    /// The result as the server wrote it.
    ///
    /// # Errors
    /// As for the call itself.
    pub async fn raw(self) -> Result<Box<RawValue>, Error> {
        let (answer, _) = self.request.send().await?;
        RawValue::from_string(answer.result().unwrap_or("null").to_owned()).map_err(Error::invalid)
    }
}

impl IntoFuture for ToolCall {
    type Output = Result<ToolResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (answer, lost) = self.request.send().await?;
            Ok(ToolResult::new(answer, lost))
        })
    }
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the arguments: they can hold anything.
        write!(f, "ToolCall({})", self.request.server)
    }
}
