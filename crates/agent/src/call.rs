//! A call of a tool.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use stayput_upstream::{Answer, CallOptions, Incoming};
use stayput_wire::json;

use crate::{Error, Hub, ToolResult, ambient::Ambient, hold::Hold, visit::Visit};

/// Hears what a server says while a call is under way: a whole notification, as JSON.
type Hears = Box<dyn FnMut(&str) + Send>;

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
    /// The result of `tools/call` is a tool's; of others it is not.
    tool: bool,
}

/// A request to a server, before it is sent.
pub(crate) struct Request {
    hub: Hub,
    ambient: Result<Arc<Ambient>, Error>,
    server: String,
    method: &'static str,
    params: Result<String, Error>,
    limit: Option<Duration>,
    hears: Option<Hears>,
    again: bool,
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
        Self { request: Request::new(hub, hold, server, ("tools/call", params)), tool: true }
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
    /// [`ToolResult::after_loss`] tells.
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
        debug_assert!(self.tool);
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

impl Request {
    pub(crate) fn new(
        hub: &Hub,
        hold: Option<Arc<Hold>>,
        server: &str,
        (method, params): (&'static str, Result<String, Error>),
    ) -> Self {
        // Now and not when it is awaited, so that a call can be given to another task.
        let ambient = match hold {
            // Inside a scope of the same session its rules hold, too.
            Some(hold) => match hub.current() {
                Ok(current) if current.hold.id == hold.id => Ok(current),
                _ => Ok(Arc::new(Ambient::of(hold))),
            },
            None => hub.current(),
        };
        Self {
            hub: hub.clone(),
            ambient,
            server: server.to_owned(),
            method,
            params,
            limit: None,
            hears: None,
            again: false,
        }
    }

    /// The answer, and whether it comes from a state that was begun anew for it.
    pub(crate) async fn send(self) -> Result<(Answer, bool), Error> {
        let home = self.hub.inner.clone();
        home.home.at_home(self.perform()).await
    }

    async fn perform(mut self) -> Result<(Answer, bool), Error> {
        let ambient = std::mem::replace(&mut self.ambient, Err(Error::NoSession))?;
        let params = std::mem::replace(&mut self.params, Ok(String::new()))?;
        let params = if self.hears.is_some() { with_token(&params) } else { params };
        match self.once(&ambient, &params).await {
            Err(Error::StateLost(lost)) if self.again && !lost.may_have_run() => {
                Ok((self.once(&ambient, &params).await?, true))
            }
            answer => Ok((answer?, false)),
        }
    }

    async fn once(&mut self, ambient: &Arc<Ambient>, params: &str) -> Result<Answer, Error> {
        let visit = Visit::of(&self.hub, ambient, &self.server).await?;
        let link = visit.link().await?;
        if let Some(lost) = visit.pending_loss(&link).await {
            return Err(Error::StateLost(lost));
        }
        let handlers = visit.hub.handlers.clone();
        let options = CallOptions { limit: self.limit, declares: handlers.declares() };
        let mut call = match link.call(self.method, Some(params), options).await {
            Ok(call) => call,
            Err(error) => return Err(visit.failed(&link, error).await),
        };
        while let Some(incoming) = call.next().await {
            match incoming {
                Incoming::Answer(end) => {
                    return match end {
                        Ok(answer) => self.judge(answer),
                        Err(error) => Err(visit.failed(&link, error).await),
                    };
                }
                Incoming::Notification(text) => self.hear(&text),
                Incoming::Request(asked) => handlers.answer(asked).await,
                _ => {}
            }
        }
        Err(visit.failed(&link, stayput_upstream::CallError::Cancelled).await)
    }

    fn hear(&mut self, text: &Bytes) {
        if let (Some(hears), Ok(text)) = (&mut self.hears, str::from_utf8(text)) {
            hears(text);
        }
    }

    fn judge(&self, answer: Answer) -> Result<Answer, Error> {
        let Some(raw) = answer.error() else { return Ok(answer) };
        Err(Error::Refused {
            server: self.server.clone(),
            code: answer.code().map_or(0, |code| code.0),
            message: answer.error_message().unwrap_or_default(),
            raw: raw.into(),
        })
    }
}

/// Asks for progress. The link has tokens of its own on the wire; this one comes back to us.
fn with_token(params: &str) -> String {
    let open = params.trim_end().strip_suffix('}').unwrap_or(params);
    let comma = if open.trim_end().ends_with('{') { "" } else { "," };
    format!(r#"{open}{comma}"_meta":{{"progressToken":"stayput"}}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_asked_for() {
        assert_eq!(
            with_token(r#"{"name":"t"}"#),
            r#"{"name":"t","_meta":{"progressToken":"stayput"}}"#
        );
        assert_eq!(with_token("{}"), r#"{"_meta":{"progressToken":"stayput"}}"#);
    }
}
