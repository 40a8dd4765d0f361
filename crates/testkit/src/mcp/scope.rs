//! State of one client of a test server: of a stdio process, of a legacy HTTP session, or of all modern clients
//! together.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use stayput_wire::Version;
use tokio::sync::{oneshot, watch};

use super::{engine::Engine, message::Incoming};

/// Receiver of messages other than the answer.
pub(super) trait Outlet: Send + Sync {
    /// Sends a message, or drops it if the client is gone.
    fn send(&self, text: String);
}

/// Outlet that drops everything.
pub(super) struct Nowhere;

impl Outlet for Nowhere {
    fn send(&self, _text: String) {}
}

/// State that tests look at.
#[derive(Default)]
pub(super) struct State {
    pub(super) count: u64,
    pub(super) notes: Vec<String>,
    /// Tools that were added later.
    pub(super) tools: Vec<String>,
    pub(super) subscriptions: BTreeSet<String>,
    pub(super) log_level: Option<String>,
    /// Legacy: version negotiated by `initialize`.
    pub(super) version: Option<Version>,
    pub(super) capabilities: Value,
}

type Answer = Result<Value, Value>;

pub(super) struct Scope {
    state: Mutex<State>,
    calls: Mutex<HashMap<String, watch::Sender<bool>>>,
    asks: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_ask: AtomicU64,
    /// Outlet for messages outside of calls.
    pub(super) general: Arc<dyn Outlet>,
}

impl Scope {
    pub(super) fn new(general: Arc<dyn Outlet>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            calls: Mutex::default(),
            asks: Mutex::default(),
            next_ask: AtomicU64::new(1),
            general,
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<bool>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asks(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a running call under the name by which it can be cancelled.
    pub(super) fn begin(self: &Arc<Self>, name: &str, engine: &Arc<Engine>) -> Running {
        let (stop, stopped) = watch::channel(false);
        self.calls().insert(name.to_owned(), stop);
        let (scope, engine) = (self.clone(), engine.clone());
        Running { scope, name: name.to_owned(), engine, stopped, done: false }
    }

    /// Cancels a call, if it still runs.
    pub(super) fn stop(&self, name: &str) {
        if let Some(stop) = self.calls().get(name) {
            let _ = stop.send(true);
        }
    }

    /// Sends a request to the client during a call. Ids are small numbers like the client's own, which reveals code
    /// that mixes up the two directions.
    pub(super) async fn ask(&self, out: &dyn Outlet, method: &str, params: &Value) -> Answer {
        let id = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        self.asks().insert(id, tell);
        let asking = Asking { scope: self, id };
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        out.send(request.to_string());
        let answer = told.await;
        drop(asking);
        answer.unwrap_or_else(|_| Err(Value::from("the session is over")))
    }

    /// Processes a notification of the client. `notifications/test/send` makes the server send the `message` in its
    /// params, outside any call.
    pub(super) fn notified(&self, message: &Incoming) {
        match message.method() {
            "notifications/cancelled" => self.stop(&message.params()["requestId"].to_string()),
            "notifications/test/send" => self.general.send(message.params()["message"].to_string()),
            _ => {}
        }
    }

    /// Processes an answer of the client. Returns whether it was expected.
    pub(super) fn answered(&self, id: &str, answer: Answer) -> bool {
        let asked = id.parse().ok().and_then(|id: u64| self.asks().remove(&id));
        asked.is_some_and(|tell| tell.send(answer).is_ok())
    }
}

/// Running call. If it is dropped before [`Running::done`], it counts as cancelled.
pub(super) struct Running {
    scope: Arc<Scope>,
    name: String,
    engine: Arc<Engine>,
    stopped: watch::Receiver<bool>,
    done: bool,
}

impl Running {
    /// Waits until the call is cancelled.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stopped = self.stopped.clone();
        async move {
            if stopped.wait_for(|stopped| *stopped).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.scope.calls().remove(&self.name);
        if !self.done {
            self.engine.stats.count("cancels");
        }
    }
}

struct Asking<'a> {
    scope: &'a Scope,
    id: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.scope.asks().remove(&self.id);
    }
}
