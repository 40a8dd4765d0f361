//! Who answers what servers ask.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use serde_json::Value;
use stayput_upstream::{Asked, Declares, Hello};
use stayput_wire::{Code, Message};

type Answering = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;
type Handler = Arc<dyn Fn(Value) -> Answering + Send + Sync>;

/// Who answers what servers ask during calls. A server is told of what there is a handler for, and of
/// nothing else.
///
/// A handler takes the parameters of the question and gives the result, both as the protocol has them;
/// an error is a sentence that the server gets. It runs in the task, and so in the scope, of the call that
/// made the server ask.
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

    pub(crate) fn declares(&self) -> Declares {
        Declares {
            roots: self.roots.is_some(),
            sampling: self.sampling.is_some(),
            elicitation: self.elicitation.is_some(),
        }
    }

    pub(crate) fn hello(&self) -> Hello {
        let all = [
            ("elicitation", self.elicitation.is_some()),
            ("roots", self.roots.is_some()),
            ("sampling", self.sampling.is_some()),
        ];
        let has: Vec<_> = all.iter().filter(|(_, has)| *has).collect();
        let has: Vec<_> = has.iter().map(|(name, _)| format!(r#""{name}":{{}}"#)).collect();
        let capabilities = format!("{{{}}}", has.join(","));
        let usual = Hello::default();
        Hello::new(usual.info(), &capabilities).unwrap_or(usual)
    }

    /// Answers a question; what there is no handler for is refused.
    pub(crate) async fn answer(&self, asked: Asked) {
        let handler = match asked.method() {
            "elicitation/create" => &self.elicitation,
            "sampling/createMessage" => &self.sampling,
            "roots/list" => &self.roots,
            _ => &None,
        };
        // Dropped, the question is refused.
        let Some(handler) = handler else { return };
        let text = asked.text().clone();
        let params = Message::parse(&text).ok().and_then(|message| message.params());
        let params = params.and_then(|params| serde_json::from_str(params.as_str()).ok());
        match handler(params.unwrap_or(Value::Null)).await {
            Ok(result) => asked.reply(&result.to_string()),
            Err(sentence) => asked.refuse(Code::INTERNAL_ERROR, &sentence),
        }
    }
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
    }
}
