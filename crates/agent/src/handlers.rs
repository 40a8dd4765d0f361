//! Who answers what servers ask.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc};

use serde_json::Value;
use stayput_upstream::{Asked, Declares, Hello, Incoming, Link, Listener};
use stayput_wire::{Code, Message};

type Answering = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;
type Handler = Arc<dyn Fn(Value) -> Answering + Send + Sync>;

/// Who answers what servers ask. A server is told of what there is a handler for, and of nothing else.
///
/// A handler takes the parameters of the question and gives the result, both as the protocol has them;
/// an error is a sentence that the server gets. What is asked during a call is answered in the task, and so in
/// the scope, of that call, while the call goes on; what is asked at other times, on the thread of the hub.
/// For that, a legacy HTTP server is listened to on a stream of its own; without handlers it is not.
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

    /// These, and those of `others` for what there is none here.
    pub(crate) fn or(self, others: &Self) -> Self {
        Self {
            elicitation: self.elicitation.or_else(|| others.elicitation.clone()),
            sampling: self.sampling.or_else(|| others.sampling.clone()),
            roots: self.roots.or_else(|| others.roots.clone()),
        }
    }

    /// Whether there is any.
    pub(crate) fn is_some(&self) -> bool {
        self.declares() != Declares::default()
    }

    pub(crate) fn declares(&self) -> Declares {
        Declares {
            roots: self.roots.is_some(),
            sampling: self.sampling.is_some(),
            elicitation: self.elicitation.is_some(),
        }
    }

    /// What a server is told that can be asked, as JSON.
    pub(crate) fn capabilities(&self) -> String {
        let all = [
            ("elicitation", self.elicitation.is_some()),
            ("roots", self.roots.is_some()),
            ("sampling", self.sampling.is_some()),
        ];
        let has = all.iter().filter(|(_, has)| *has);
        let has: Vec<_> = has.map(|(name, _)| format!(r#""{name}":{{}}"#)).collect();
        format!("{{{}}}", has.join(","))
    }

    pub(crate) fn hello(&self) -> Hello {
        let usual = Hello::default();
        if !self.is_some() {
            return usual;
        }
        Hello::new(usual.info(), &self.capabilities()).unwrap_or(usual)
    }

    fn of(&self, method: &str) -> Option<&Handler> {
        match method {
            "elicitation/create" => self.elicitation.as_ref(),
            "sampling/createMessage" => self.sampling.as_ref(),
            "roots/list" => self.roots.as_ref(),
            _ => None,
        }
    }

    /// Answers a question; what there is no handler for is refused.
    pub(crate) async fn answer(self: Arc<Self>, asked: Asked) {
        // Dropped, the question is refused.
        let Some(handler) = self.of(asked.method()) else { return };
        let text = asked.text().clone();
        let params = Message::parse(&text).ok().and_then(|message| message.params());
        let params = params.and_then(|params| serde_json::from_str(params.as_str()).ok());
        match handler(params.unwrap_or(Value::Null)).await {
            Ok(result) => asked.reply(&result.to_string()),
            Err(sentence) => asked.refuse(Code::INTERNAL_ERROR, &sentence),
        }
    }

    /// Answers to all questions of a result that wants some, by their keys.
    ///
    /// # Errors
    /// A sentence, if one of them has no answer.
    pub(crate) async fn answers(
        &self,
        asked: BTreeMap<String, Question>,
    ) -> Result<serde_json::Map<String, Value>, String> {
        let mut answers = serde_json::Map::new();
        for (key, Question { method, params }) in asked {
            let unknown = || format!("there is no handler for `{method}`");
            let answer = self.of(&method).ok_or_else(unknown)?(params).await?;
            answers.insert(key, answer);
        }
        Ok(answers)
    }

    /// Answers what is asked on this link outside any call, as long as it lives.
    pub(crate) fn listen(
        self: Arc<Self>,
        link: &Link,
    ) -> impl Future<Output = ()> + Send + 'static {
        let listening = link.listener(self.declares());
        async move {
            let Some(mut listener): Option<Listener> = listening else { return };
            // One after the other: a server that asks twice waits once.
            while let Some(incoming) = listener.next().await {
                match incoming {
                    Incoming::Request(asked) => self.clone().answer(asked).await,
                    Incoming::Answer(_) => return,
                    _ => {}
                }
            }
        }
    }
}

/// One question of a result that wants input.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Question {
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
        write!(f, "Handlers({:?})", self.declares())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_of_what_there_is() {
        assert_eq!(Handlers::default().hello().capabilities(), "{}");
        let some = Handlers::default().roots(async |_| Err("no".to_owned()));
        assert_eq!(some.hello().capabilities(), r#"{"roots":{}}"#);
        assert_eq!(some.hello().declares(), some.declares());
        let more = Handlers::default().sampling(async |_| Err("no".to_owned())).or(&some);
        assert_eq!(more.capabilities(), r#"{"roots":{},"sampling":{}}"#);
    }
}
