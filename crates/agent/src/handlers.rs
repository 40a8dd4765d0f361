//! Handlers of requests that servers send: elicitation, sampling, roots.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc};

use serde_json::Value;
use stayput_upstream::{ClientCapabilities, ClientInfo, Incoming, Link, Listener, ServerRequest};
use stayput_wire::{Code, Message};

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;
type Handler = Arc<dyn Fn(Value) -> HandlerFuture + Send + Sync>;

/// Handlers of requests that servers send. The hub declares to a server exactly the capabilities that have a handler.
///
/// A handler takes the parameters of the request and returns the result, both as in the protocol; an error is a
/// message for the server. A request during a call is handled in the task, and so in the scope, of that call. A
/// request outside of calls is handled on the hub's thread; for those of a legacy HTTP server the hub opens a GET
/// stream, but only if there is a handler.
///
/// ```
/// use serde_json::json;
/// use stayput::Handlers;
///
/// let handlers = Handlers::default()
///     .elicitation(async |_question| Ok(json!({ "action": "accept", "content": { "name": "Ann" } })))
///     .roots(async |_| Ok(json!({ "roots": [{ "uri": "file:///home/ann/work" }] })));
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Handlers {
    elicitation: Option<Handler>,
    sampling: Option<Handler>,
    roots: Option<Handler>,
}

impl Handlers {
    /// Answers `elicitation/create`.
    pub fn elicitation<F>(mut self, handler: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, String>> + Send + 'static,
    {
        self.elicitation = Some(boxed(handler));
        self
    }

    /// Answers `sampling/createMessage`.
    pub fn sampling<F>(mut self, handler: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, String>> + Send + 'static,
    {
        self.sampling = Some(boxed(handler));
        self
    }

    /// Answers `roots/list`.
    pub fn roots<F>(mut self, handler: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, String>> + Send + 'static,
    {
        self.roots = Some(boxed(handler));
        self
    }

    /// Fills the missing handlers from `others`.
    pub(crate) fn or(self, others: &Self) -> Self {
        Self {
            elicitation: self.elicitation.or_else(|| others.elicitation.clone()),
            sampling: self.sampling.or_else(|| others.sampling.clone()),
            roots: self.roots.or_else(|| others.roots.clone()),
        }
    }

    /// Whether there is any handler.
    pub(crate) fn is_some(&self) -> bool {
        self.capabilities() != ClientCapabilities::default()
    }

    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: self.roots.is_some(),
            sampling: self.sampling.is_some(),
            elicitation: self.elicitation.is_some(),
        }
    }

    /// Client capabilities, as JSON.
    pub(crate) fn capabilities_json(&self) -> String {
        let all = [
            ("elicitation", self.elicitation.is_some()),
            ("roots", self.roots.is_some()),
            ("sampling", self.sampling.is_some()),
        ];
        let has = all.iter().filter(|(_, has)| *has);
        let has: Vec<_> = has.map(|(name, _)| format!(r#""{name}":{{}}"#)).collect();
        format!("{{{}}}", has.join(","))
    }

    pub(crate) fn client_info(&self) -> ClientInfo {
        let usual = ClientInfo::default();
        if !self.is_some() {
            return usual;
        }
        ClientInfo::new(usual.info(), &self.capabilities_json()).unwrap_or(usual)
    }

    fn get(&self, method: &str) -> Option<&Handler> {
        match method {
            "elicitation/create" => self.elicitation.as_ref(),
            "sampling/createMessage" => self.sampling.as_ref(),
            "roots/list" => self.roots.as_ref(),
            _ => None,
        }
    }

    /// Answers a request. One without a handler is refused.
    pub(crate) async fn answer(self: Arc<Self>, request: ServerRequest) {
        // Dropping the request refuses it.
        let Some(handler) = self.get(request.method()) else { return };
        let text = request.text().clone();
        let params = Message::parse(&text).ok().and_then(|message| message.params());
        let params = params.and_then(|params| serde_json::from_str(params.as_str()).ok());
        match handler(params.unwrap_or(Value::Null)).await {
            Ok(result) => request.reply(&result.to_string()),
            Err(message) => request.refuse(Code::INTERNAL_ERROR, &message),
        }
    }

    /// Answers all requests of an `input_required` result, by key.
    ///
    /// # Errors
    /// A message, if one of them has no answer.
    pub(crate) async fn answer_all(
        &self,
        requests: BTreeMap<String, InputRequest>,
    ) -> Result<serde_json::Map<String, Value>, String> {
        let mut answers = serde_json::Map::new();
        for (key, InputRequest { method, params }) in requests {
            let unknown = || format!("there is no handler for `{method}`");
            let answer = self.get(&method).ok_or_else(unknown)?(params).await?;
            answers.insert(key, answer);
        }
        Ok(answers)
    }

    /// Answers the requests on this link outside of calls, until the link ends.
    pub(crate) fn listen(
        self: Arc<Self>,
        link: &Link,
    ) -> impl Future<Output = ()> + Send + 'static {
        let listener = link.listener(self.capabilities());
        async move {
            let Some(mut listener): Option<Listener> = listener else { return };
            // Requests are answered one after the other.
            while let Some(incoming) = listener.next().await {
                match incoming {
                    Incoming::Request(request) => self.clone().answer(request).await,
                    Incoming::Answer(_) => return,
                    _ => {}
                }
            }
        }
    }
}

/// Request in an `input_required` result.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct InputRequest {
    method: String,
    #[serde(default)]
    params: Value,
}

fn boxed<F>(handler: impl Fn(Value) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Result<Value, String>> + Send + 'static,
{
    Arc::new(move |params| Box::pin(handler(params)))
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handlers({:?})", self.capabilities())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_follow_the_handlers() {
        assert_eq!(Handlers::default().client_info().capabilities_json(), "{}");
        let some = Handlers::default().roots(async |_| Err("no".to_owned()));
        assert_eq!(some.client_info().capabilities_json(), r#"{"roots":{}}"#);
        assert_eq!(some.client_info().capabilities_json(), some.capabilities_json());
        let more = Handlers::default().sampling(async |_| Err("no".to_owned())).or(&some);
        assert_eq!(more.capabilities_json(), r#"{"roots":{},"sampling":{}}"#);
    }
}
