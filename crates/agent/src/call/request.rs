//! Request to a server, from its parameters to its answer.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use stayput_config::OnLoss;
use stayput_upstream::{Answer, Call, CallError, CallOptions, Incoming, PooledLink};
use stayput_wire::{Era, Raw, meta};
use tracing::{Instrument as _, Span};

use crate::{
    Error, Handlers, Hub,
    handlers::InputRequest,
    hub::{TraceContext, loss_of},
    session::{SessionGuard, SessionLink, TaskScope},
};

/// Callback for notifications during a call. Gets the whole notification as JSON.
type NotificationHandler = Box<dyn FnMut(&str) + Send>;

/// Handlers that are answering requests of the server.
type RunningHandlers = Vec<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Maximum number of `input_required` results to one request, for servers that never stop asking.
const MAX_INPUT_ROUNDS: u32 = 16;

/// Delay before a request is repeated when the server answers `input_required` without a question. It grows with each
/// round.
const INPUT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Request to a server, before it is sent.
pub(crate) struct Request {
    hub: Hub,
    scope: Result<Arc<TaskScope>, Error>,
    pub(crate) server: String,
    method: &'static str,
    params: Result<String, Error>,
    /// Name of the tool, if the request is a tool call.
    pub(crate) tool: Option<Box<str>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_notification: Option<NotificationHandler>,
    /// Repeats the request once after a loss, if it certainly did not run.
    pub(crate) restart_on_loss: bool,
    /// Members of `_meta` from the caller, and its trace context.
    meta: Map<String, Value>,
}

/// Result with `resultType: input_required`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired<'a> {
    #[serde(default)]
    input_requests: BTreeMap<String, InputRequest>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
}

impl Request {
    pub(crate) fn new(
        hub: &Hub,
        guard: Option<Arc<SessionGuard>>,
        server: &str,
        (method, params): (&'static str, Result<String, Error>),
    ) -> Self {
        // Resolved here and not when the request is awaited, so that a call can be awaited in another task.
        let scope = match guard {
            Some(guard) => hub.scope_of(guard),
            None => hub.current_scope(),
        };
        Self {
            hub: hub.clone(),
            scope,
            server: server.to_owned(),
            method,
            params,
            tool: None,
            timeout: None,
            on_notification: None,
            restart_on_loss: false,
            meta: hub.inner.trace_context.as_ref().map(TraceContext::current).unwrap_or_default(),
        }
    }

    /// Adds members to `_meta`. Anything but an object makes the request fail.
    pub(crate) fn add_meta(&mut self, members: Result<Value, Error>) {
        match members {
            Ok(Value::Object(members)) => self.meta.extend(members),
            Ok(_) => {
                self.params =
                    Err(Error::InvalidInput("the `_meta` of a call is no JSON object".to_owned()));
            }
            Err(error) => self.params = Err(error),
        }
    }

    /// Returns the answer, and whether the request was repeated on a fresh state after a loss.
    pub(crate) async fn send(self) -> Result<(Answer, bool), Error> {
        let inner = self.hub.inner.clone();
        let span = match &self.scope {
            Ok(scope) => tracing::debug_span!("session", id = %scope.guard.id),
            Err(_) => Span::none(),
        };
        inner.thread.in_runtime(self.perform().instrument(span)).await
    }

    async fn perform(mut self) -> Result<(Answer, bool), Error> {
        let scope = std::mem::replace(&mut self.scope, Err(Error::NoSession))?;
        let params = std::mem::replace(&mut self.params, Ok(String::new()))?;
        let entry = self.hub.entry(&self.server)?;
        if let Some(tool) = self.tool.as_deref().filter(|tool| !entry.tools.allows(tool)) {
            let (server, tool) = (self.server.clone(), tool.to_owned());
            return Err(Error::ToolDenied { server, tool });
        }
        let restarts = self.restart_on_loss || entry.on_loss == OnLoss::Restart;
        match self.perform_once(&scope, &params).await {
            Err(Error::StateLost(lost)) if restarts && !lost.may_have_run() => {
                Ok((self.perform_once(&scope, &params).await?, true))
            }
            answer => Ok((answer?, false)),
        }
    }

    async fn perform_once(
        &mut self,
        scope: &Arc<TaskScope>,
        params: &str,
    ) -> Result<Answer, Error> {
        let session_link = SessionLink::new(&self.hub, scope, &self.server).await?;
        let link = session_link.open().await?;
        if let Some(lost) = session_link.take_pending_loss(&link).await? {
            return Err(Error::StateLost(lost));
        }
        let handlers = scope.guard.handlers();
        let modern = link.initialize_result().era() == Era::Modern;
        let params = self.with_meta(params, modern.then_some(&*handlers));
        let span = link.call_span(self.method, || self.tool.as_deref().map(Cow::from));
        let began = tokio::time::Instant::now();
        let exchange = self.exchange(&session_link, &link, &params, &handlers);
        let exchanged = exchange.instrument(span.clone()).await;
        let exchanged = exchanged.and_then(|answer| {
            let lost = self.hub.inner.gateway.as_ref().and_then(|_| loss_of(&answer, &self.server));
            match lost {
                Some(lost) => Err(Error::StateLost(session_link.report_of_gateway(lost))),
                None => Ok(answer),
            }
        });
        session_link.send_called(self.tool.as_deref(), began.elapsed(), exchanged.as_ref().err());
        let answer = exchanged?;
        if !modern || !is_input_required(&answer) {
            return self.check_protocol_error(answer);
        }
        // Boxed, because this rare case would otherwise enlarge the future of every request.
        let providing = self.provide_input((&session_link, &link), &params, &handlers, answer);
        Box::pin(providing.instrument(span)).await
    }

    /// Answers the questions of a modern server and repeats the request, until it returns a result.
    async fn provide_input(
        &mut self,
        (session_link, link): (&SessionLink, &PooledLink),
        params: &str,
        handlers: &Arc<Handlers>,
        mut answer: Answer,
    ) -> Result<Answer, Error> {
        for round in 1..=MAX_INPUT_ROUNDS {
            let required: InputRequired<'_> =
                serde_json::from_str(answer.result().unwrap_or("{}")).map_err(Error::invalid)?;
            if required.input_requests.is_empty() {
                tokio::time::sleep(INPUT_RETRY_DELAY * round).await;
            }
            let unavailable = |reason| Error::InputRequired { server: self.server.clone(), reason };
            let answers =
                handlers.answer_all(required.input_requests).await.map_err(unavailable)?;
            let answers = Value::Object(answers).to_string();
            let mut members = format!(r#""inputResponses":{answers}"#);
            if let Some(state) = required.request_state {
                members = format!(r#"{members},"requestState":{}"#, state.get());
            }
            let params = with_members(params, &members);
            answer = self.exchange(session_link, link, &params, handlers).await?;
            if !is_input_required(&answer) {
                return self.check_protocol_error(answer);
            }
        }
        let reason = format!("it asked {MAX_INPUT_ROUNDS} times and still requires more");
        Err(Error::InputRequired { server: self.server.clone(), reason })
    }

    /// Sends the request, and handles notifications and requests of the server until the answer arrives.
    async fn exchange(
        &mut self,
        session_link: &SessionLink,
        link: &PooledLink,
        params: &str,
        handlers: &Arc<Handlers>,
    ) -> Result<Answer, Error> {
        let options = CallOptions { limit: self.timeout, capabilities: handlers.capabilities() };
        let mut call = match link.call(self.method, Some(params), options).await {
            Ok(call) => call,
            Err(error) => return Err(session_link.convert_error(link, error).await),
        };
        let mut running = RunningHandlers::new();
        while let Some(incoming) = next_incoming(&mut call, &mut running).await {
            match incoming {
                Incoming::Answer(Ok(answer)) => return Ok(answer),
                Incoming::Answer(Err(error)) => {
                    return Err(session_link.convert_error(link, error).await);
                }
                Incoming::Notification(text) => self.notify(&text),
                Incoming::Request(request) => {
                    running.push(Box::pin(handlers.clone().answer(request)));
                }
                _ => {}
            }
        }
        Err(session_link.convert_error(link, CallError::Cancelled).await)
    }

    fn notify(&mut self, text: &Bytes) {
        if let (Some(handler), Ok(text)) = (&mut self.on_notification, str::from_utf8(text)) {
            handler(text);
        }
    }

    fn check_protocol_error(&self, answer: Answer) -> Result<Answer, Error> {
        let Some(raw) = answer.error() else { return Ok(answer) };
        Err(Error::ProtocolError {
            server: self.server.clone(),
            code: answer.code().map_or(0, |code| code.0),
            message: answer.error_message().unwrap_or_default(),
            raw: raw.into(),
        })
    }

    /// Adds `_meta`: a progress token if the caller wants notifications, and the client's capabilities, which modern
    /// servers get with each request. The link replaces the token by its own one on the wire and restores this one
    /// in notifications.
    fn with_meta<'p>(&self, params: &'p str, handlers: Option<&Handlers>) -> Cow<'p, str> {
        let handlers = handlers.filter(|handlers| handlers.is_some());
        if self.meta.is_empty() && self.on_notification.is_none() && handlers.is_none() {
            return params.into();
        }
        let mut meta = self.meta.clone();
        if self.on_notification.is_some() {
            meta.insert("progressToken".to_owned(), "stayput".into());
        }
        if let Some(handlers) = handlers {
            let capabilities = serde_json::from_str(&handlers.capabilities_json());
            meta.insert(meta::CLIENT_CAPABILITIES.to_owned(), capabilities.unwrap_or_default());
        }
        with_members(params, &format!(r#""_meta":{}"#, Value::Object(meta))).into()
    }
}

/// Waits for the next message of a call, and runs the handlers meanwhile. Handlers that are still running at the end
/// of the call are dropped with it.
async fn next_incoming(call: &mut Call, running: &mut RunningHandlers) -> Option<Incoming> {
    let mut next = pin!(call.next());
    poll_fn(|cx| {
        running.retain_mut(|handler| handler.as_mut().poll(cx).is_pending());
        next.as_mut().poll(cx)
    })
    .await
}

fn is_input_required(answer: &Answer) -> bool {
    let raw = answer.result().and_then(|result| Raw::parse(result).ok());
    let kind = raw.and_then(|raw| raw.find(&["resultType"])?.text());
    kind.is_some_and(|kind| kind == "input_required")
}

/// Adds members to a JSON object that has none of them yet.
fn with_members(params: &str, members: &str) -> String {
    let open = params.trim_end().strip_suffix('}').unwrap_or(params);
    let comma = if open.trim_end().ends_with('{') { "" } else { "," };
    format!("{open}{comma}{members}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_members_extends_an_object() {
        assert_eq!(with_members(r#"{"name":"t"}"#, r#""a":1"#), r#"{"name":"t","a":1}"#);
        assert_eq!(with_members("{}", r#""a":1"#), r#"{"a":1}"#);
    }
}
