//! Call of a tool.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
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
    server: String,
    /// Taken by the first poll.
    request: Option<Request>,
    sent: Option<SentCall>,
}

type SentCall = Pin<Box<dyn Future<Output = Result<ToolResult, Error>> + Send>>;

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

/// Arguments that cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
#[error("the arguments of `{tool}` are no JSON: {source}")]
struct InvalidArguments {
    tool: String,
    source: serde_json::Error,
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
            Err(source) => Err(Error::invalid(InvalidArguments { tool: tool.to_owned(), source })),
        };
        let mut request = Request::new(hub, guard, server, ("tools/call", params));
        request.tool = Some(tool.into());
        Self { server: server.to_owned(), request: Some(request), sent: None }
    }

    /// Changes the request, unless it was sent.
    fn with(mut self, change: impl FnOnce(&mut Request)) -> Self {
        if let Some(request) = &mut self.request {
            change(request);
        }
        self
    }

    /// Fails the call when neither an answer nor progress arrives for this long. Defaults to the server's own
    /// timeout.
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|request| request.timeout = Some(limit))
    }

    /// Adds members to the `_meta` of the request, such as `{"example.com/tenant": "a"}`: a JSON object. Members that the
    /// protocol needs are added to it.
    pub fn meta(self, members: impl Serialize) -> Self {
        let members = serde_json::to_value(members).map_err(Error::invalid);
        self.with(|request| request.add_meta(members))
    }

    /// Calls `handler` for each progress and log notification of this call, with the whole notification as JSON.
    /// Also requests progress from the server.
    pub fn on_notification(self, handler: impl FnMut(&str) + Send + 'static) -> Self {
        self.with(|request| request.on_notification = Some(Box::new(handler)))
    }

    /// Repeats the call once on a fresh state if the state was lost before the call ran;
    /// [`ToolResult::after_loss`] is true then. [`Hub::on_loss`] sets this for all calls to a server.
    pub fn restart_on_loss(self) -> Self {
        self.with(|request| request.restart_on_loss = true)
    }

    /// Sends the call and returns the result as the server wrote it.
    ///
    /// # Errors
    /// The same as for the call itself.
    pub async fn raw(self) -> Result<Box<RawValue>, Error> {
        let result = self.await?;
        RawValue::from_string(result.raw().to_owned()).map_err(Error::invalid)
    }
}

impl Future for ToolCall {
    type Output = Result<ToolResult, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(request) = self.request.take() {
            self.sent = Some(Box::pin(async move {
                let (answer, after_loss) = request.send().await?;
                Ok(ToolResult::new(answer, after_loss))
            }));
        }
        let Some(sent) = self.sent.as_mut() else {
            // A mistake of the caller, which would wait forever.
            let sentence =
                "the call has ended already, and its result was returned; make a new call";
            return Poll::Ready(Err(Error::InvalidInput(sentence.to_owned())));
        };
        let polled = sent.as_mut().poll(cx);
        if polled.is_ready() {
            // Drops the session guard now, even if the caller keeps this value.
            self.sent = None;
        }
        polled
    }
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the arguments, which may hold secrets.
        write!(f, "ToolCall({})", self.server)
    }
}
