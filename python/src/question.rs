//! What servers ask, on its way to whoever answers in Python.

use std::{fmt, sync::Mutex};

use pyo3::prelude::*;
use serde_json::Value;
use stayput::{Error, Handlers};
use tokio::sync::oneshot;

use crate::{
    error::raised,
    keep::{Last, lock},
    message::{CALLER, What},
};

/// A question, and where its answer goes.
pub(crate) struct Asked {
    /// Which hub it came to.
    pub(crate) hub: u64,
    kind: &'static str,
    params: String,
    answer: oneshot::Sender<Result<Value, String>>,
}

/// A question of a server.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Question {
    kind: &'static str,
    params: String,
    answer: Mutex<Option<oneshot::Sender<Result<Value, String>>>>,
}

impl Question {
    pub(crate) fn new(asked: Asked) -> Self {
        let Asked { kind, params, answer, .. } = asked;
        Self { kind, params, answer: Mutex::new(Some(answer)) }
    }

    fn give(&self, answer: Result<Value, String>) {
        if let Some(give) = lock(&self.answer).take() {
            // The call that it belonged to may be over.
            let _ = give.send(answer);
        }
    }
}

#[pymethods]
impl Question {
    /// Who is to answer it: `elicitation`, `sampling` or `roots`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// Its parameters, as JSON.
    #[getter]
    fn params(&self) -> &str {
        &self.params
    }

    /// Answers it, with JSON.
    fn answer(&self, json: &str) -> PyResult<()> {
        let answer = serde_json::from_str(json)
            .map_err(|error| raised(&Error::Invalid(format!("this is no answer: {error}"))))?;
        self.give(Ok(answer));
        Ok(())
    }

    /// Says why there is no answer.
    fn refuse(&self, sentence: String) {
        self.give(Err(sentence));
    }
}

/// The handlers of these kinds, which all answer in Python.
pub(crate) fn handlers(kinds: &[String], hub: u64, last: &Last) -> Result<Handlers, Error> {
    let mut handlers = Handlers::default();
    for kind in kinds {
        let last = last.clone();
        let ask = move |kind| {
            let last = last.clone();
            move |params| ask(kind, params, hub, last.clone())
        };
        handlers = match kind.as_str() {
            "elicitation" => handlers.elicitation(ask("elicitation")),
            "sampling" => handlers.sampling(ask("sampling")),
            "roots" => handlers.roots(ask("roots")),
            other => {
                let sentence = format!(
                    "servers ask for `elicitation`, `sampling` and `roots`, not for `{other}`"
                );
                return Err(Error::Invalid(sentence));
            }
        };
    }
    Ok(handlers)
}

async fn ask(kind: &'static str, params: Value, hub: u64, last: Last) -> Result<Value, String> {
    let caller = CALLER.try_with(Clone::clone).ok().or_else(|| lock(&last).clone());
    let nobody = || "nobody is there to answer".to_owned();
    let (answer, answered) = oneshot::channel();
    let asked = Asked { hub, kind, params: params.to_string(), answer };
    caller.ok_or_else(nobody)?.tell(What::Asked(asked));
    answered.await.unwrap_or_else(|_| Err(nobody()))
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what was asked: it can hold anything.
        write!(f, "Question({})", self.kind)
    }
}
