//! Channel to the thread of Python that runs the callbacks of a hub: headers of HTTP servers, stderr, kept session ids.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use stayput::Headers;
use tokio::sync::{mpsc, oneshot};

use crate::message::PendingRequest;

/// Number of lines of stderr that wait for Python. More are dropped, so that a slow callback costs no memory.
const MAX_WAITING: usize = 10_000;

/// Sends requests to the thread of Python that runs the callbacks of a hub. It does not depend on the caller of an
/// operation, because a link can need a callback at any time.
#[derive(Clone)]
pub(crate) struct CallbackSender {
    hub: u64,
    sender: mpsc::UnboundedSender<PendingRequest>,
    /// Number of lines that were sent and not received.
    waiting: Arc<AtomicUsize>,
}

/// Receiver of what a [`CallbackSender`] sends.
pub(crate) struct CallbackReceiver {
    receiver: mpsc::UnboundedReceiver<PendingRequest>,
    waiting: Arc<AtomicUsize>,
}

/// Creates the two ends of the callbacks of a hub.
pub(crate) fn callbacks(hub: u64) -> (CallbackSender, CallbackReceiver) {
    let ((sender, receiver), waiting) = (mpsc::unbounded_channel(), Arc::<AtomicUsize>::default());
    (
        CallbackSender { hub, sender, waiting: waiting.clone() },
        CallbackReceiver { receiver, waiting },
    )
}

impl CallbackSender {
    /// Passes on a line of stderr.
    pub(crate) fn pass_line(&self, params: &Value) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        // There is no answer to wait for.
        drop(self.ask("stderr", params));
    }

    /// Runs a callback and returns its answer.
    pub(crate) fn ask(
        &self,
        kind: &'static str,
        params: &Value,
    ) -> impl Future<Output = Result<Value, String>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let request = PendingRequest { hub: self.hub, kind, params: params.to_string(), answer };
        let sent = self.sender.send(request);
        async move {
            let gone = || "the thread that runs the callback has ended".to_owned();
            sent.map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        }
    }

    /// Creates the callback for headers.
    pub(crate) fn headers(&self) -> Headers {
        let sender = self.clone();
        Headers::new(move |request| {
            let params = json!({
                "server": request.server,
                "session": request.session.map(|id| id.to_string()),
                "session_name": request.session_name,
                "agent": request.agent,
                "rejected": request.rejected,
            });
            let asking = sender.ask("headers", &params);
            async move {
                to_headers(asking.await?)
                    .ok_or_else(|| "the callback must return a dict of strings".to_owned())
            }
        })
    }
}

impl CallbackReceiver {
    pub(crate) async fn next(&mut self) -> Option<PendingRequest> {
        let request = self.receiver.recv().await?;
        if request.kind == "stderr" {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Some(request)
    }
}

fn to_headers(answer: Value) -> Option<Vec<(String, String)>> {
    let Value::Object(members) = answer else { return None };
    let header = |(name, value): (String, Value)| Some((name, value.as_str()?.to_owned()));
    members.into_iter().map(header).collect()
}
