//! Call of a tool.

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

use super::{ToolResult, request::Request};
use crate::{Error, Hub, Session, session::SessionGuard};

/// Call of a tool. It is sent when it is awaited, and cancelled when it is dropped before its end.
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
#[must_use = "a call is sent when it is awaited"]
pub struct ToolCall {
    request: Request,
}

impl Hub {
    /// Calls a tool in the session of the current task.
    pub fn call(&self, server: &str, tool: &str, arguments: impl Serialize) -> ToolCall {
        ToolCall::new(self, None, (server, tool), arguments)
    }
}

impl Session {
    /// Calls a tool in this session, whichever session the current task belongs to.
    pub fn call(&self, server: &str, tool: &str, arguments: impl Serialize) -> ToolCall {
        ToolCall::new(self.hub(), Some(self.guard.clone()), (server, tool), arguments)
    }
}

impl ToolCall {
    fn new(
        hub: &Hub,
        guard: Option<Arc<SessionGuard>>,
        (server, tool): (&str, &str),
        arguments: impl Serialize,
    ) -> Self {
        let params = match serde_json::to_string(&arguments) {
            // `()` and `None` mean no arguments.
            Ok(arguments) if arguments == "null" => {
                Ok(format!(r#"{{"name":{}}}"#, json::quote(tool)))
            }
            Ok(arguments) if arguments.starts_with('{') => {
                Ok(format!(r#"{{"name":{},"arguments":{arguments}}}"#, json::quote(tool)))
            }
            Ok(_) => {
                Err(Error::InvalidInput(format!("the arguments of `{tool}` are no JSON object")))
            }
            Err(error) => {
                Err(Error::InvalidInput(format!("the arguments of `{tool}` are no JSON: {error}")))
            }
        };
        let mut request = Request::new(hub, guard, server, ("tools/call", params));
        request.tool = Some(tool.into());
        Self { request }
    }

    /// Fails the call when neither an answer nor progress arrives for this long. Defaults to the server's own
    /// timeout.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.request.timeout = Some(limit);
        self
    }

    /// Calls `handler` for each progress and log notification of this call, with the whole notification as JSON.
    /// Also requests progress from the server.
    pub fn on_notification(mut self, handler: impl FnMut(&str) + Send + 'static) -> Self {
        self.request.on_notification = Some(Box::new(handler));
        self
    }

    /// Repeats the call once on a fresh state if the state was lost before the call ran;
    /// [`ToolResult::after_loss`] is true then. [`Hub::on_loss`] sets this for all calls to a server.
    pub fn restart_on_loss(mut self) -> Self {
        self.request.restart_on_loss = true;
        self
    }

    /// Sends the call and returns the result as the server wrote it.
    ///
    /// # Errors
    /// The same as for the call itself.
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
            let (answer, after_loss) = self.request.send().await?;
            Ok(ToolResult::new(answer, after_loss))
        })
    }
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the arguments, which may hold secrets.
        write!(f, "ToolCall({})", self.request.server)
    }
}
