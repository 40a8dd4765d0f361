//! Server behind all transports: takes a message and returns an answer.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::HeaderMap;
use serde_json::{Value, json};
use stayput_wire::{Code, Era, Version, meta};

use super::{
    message::{Incoming, Refusal, answer_text, notification_text},
    methods,
    options::{Eras, Options},
    scope::{Nowhere, Outlet, Running, Scope},
    stats::Stats,
};

pub(super) struct Engine {
    pub(super) options: Options,
    pub(super) stats: Stats,
    /// State of all modern clients.
    pub(super) modern: Arc<Scope>,
    listens: Mutex<Vec<Listen>>,
    next: AtomicU64,
    log: Option<Mutex<File>>,
}

/// Modern client that subscribed to changes.
struct Listen {
    name: u64,
    id: Value,
    wanted: Value,
    out: Arc<dyn Outlet>,
}

/// Request that is being answered.
pub(super) struct Call {
    pub(super) engine: Arc<Engine>,
    pub(super) scope: Arc<Scope>,
    pub(super) era: Era,
    pub(super) message: Incoming,
    /// Empty on stdio.
    pub(super) headers: HeaderMap,
    /// Outlet for messages of this call before its answer.
    pub(super) out: Arc<dyn Outlet>,
    /// Name by which the call can be cancelled.
    pub(super) name: String,
}

/// Answer that is ready to be sent.
pub(super) struct Answer {
    pub(super) text: String,
    /// HTTP status of the answer.
    pub(super) status: u16,
}

impl Engine {
    pub(super) fn new(options: Options) -> Arc<Self> {
        let log = options.log.as_ref().map(|path| {
            Mutex::new(OpenOptions::new().append(true).create(true).open(path).unwrap())
        });
        Arc::new(Self {
            options,
            stats: Stats::new(),
            modern: Scope::new(Arc::new(Nowhere)),
            listens: Mutex::default(),
            next: AtomicU64::new(1),
            log,
        })
    }

    /// Returns an unused number.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Logs a received message byte for byte.
    pub(super) fn note(&self, line: &[u8]) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.write_all(&[line, b"\n"].concat()).unwrap();
        }
    }

    /// Returns why a message of this era is refused, if it is.
    pub(super) fn refuse_era(&self, message: &Incoming) -> Option<Refusal> {
        match (self.options.eras, message.era()) {
            (Eras::Modern, Era::Legacy) if message.method() == "initialize" => {
                Some(unserved(&message.params()["protocolVersion"]))
            }
            // A legacy server ignores the `_meta` of a method that it knows, and answers `ping` at any time.
            (Eras::Legacy, Era::Modern) if message.method() != "ping" => {
                Some(Refusal::new(Code::METHOD_NOT_FOUND, "this server wants to be initialized"))
            }
            _ => None,
        }
    }

    /// Notifies all subscribers of a change.
    pub(super) fn changed(&self, scope: &Scope, uri: &str) {
        let tools = "notifications/tools/list_changed";
        let updated = "notifications/resources/updated";
        scope.general.send(notification_text(tools, &json!({})));
        if scope.state().subscriptions.contains(uri) {
            scope.general.send(notification_text(updated, &json!({ "uri": uri })));
        }
        for listen in self.listens.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let tag = json!({ meta::SUBSCRIPTION_ID: listen.id });
            if listen.wanted["toolsListChanged"] == true {
                listen.out.send(notification_text(tools, &json!({ "_meta": tag })));
            }
            let uris = listen.wanted["resourceSubscriptions"].as_array();
            if uris.is_some_and(|uris| uris.contains(&uri.into())) {
                listen.out.send(notification_text(updated, &json!({ "_meta": tag, "uri": uri })));
            }
        }
    }

    /// Sends changes to a subscriber until the call is cancelled.
    pub(super) async fn listen(&self, call: &Call) -> Value {
        let id: Value = serde_json::from_str(call.message.id().unwrap_or("null")).unwrap();
        let mut wanted = call.message.params()["notifications"].clone();
        if let Some(wanted) = wanted.as_object_mut() {
            wanted.remove("promptsListChanged");
        }
        let acknowledged =
            json!({ "_meta": { meta::SUBSCRIPTION_ID: id }, "notifications": wanted });
        let name = self.next();
        {
            let mut listens = self.listens.lock().unwrap_or_else(PoisonError::into_inner);
            let method = "notifications/subscriptions/acknowledged";
            call.out.send(notification_text(method, &acknowledged));
            listens.push(Listen { name, id, wanted, out: call.out.clone() });
        }
        let _listening = Listening { engine: self, name };
        std::future::pending().await
    }
}

struct Listening<'a> {
    engine: &'a Engine,
    name: u64,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut listens = self.engine.listens.lock().unwrap_or_else(PoisonError::into_inner);
        listens.retain(|listen| listen.name != self.name);
    }
}

impl Call {
    /// Runs the call. Returns `None` if it was cancelled. A cancellation counts from now on, not only after the first
    /// poll, because a client may send both at once.
    pub(super) fn run(self) -> impl Future<Output = Option<Answer>> + Send {
        let running = self.scope.begin(&self.name, &self.engine);
        self.run_until_stopped(running)
    }

    async fn run_until_stopped(self, running: Running) -> Option<Answer> {
        let id = self.message.id().unwrap_or("null").to_owned();
        let reply = tokio::select! {
            biased;
            () = running.stopped() => return None,
            reply = methods::answer(&self) => reply,
        };
        running.done();
        Some(match reply {
            Ok(result) => Answer { text: answer_text(&id, &result), status: 200 },
            Err(refusal) => {
                let status = refusal.status.unwrap_or(refusal.code.http_status(self.era));
                Answer { text: refusal.to_text(Some(&id)), status }
            }
        })
    }

    /// Sends a notification that belongs to this call.
    pub(super) fn notify(&self, method: &str, params: &Value) {
        self.out.send(notification_text(method, params));
    }
}

/// Returns the answer to an unsupported revision.
pub(super) fn unserved(requested: &Value) -> Refusal {
    let data = json!({ "supported": [Version::V2026_07_28.as_str()], "requested": requested });
    Refusal::new(Code::UNSUPPORTED_VERSION, "this revision is not served here").with_data(data)
}
