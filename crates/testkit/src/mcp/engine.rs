//! The one server behind all fronts: it takes a message and gives an answer.

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
    /// The state of all modern clients.
    pub(super) modern: Arc<Scope>,
    listens: Mutex<Vec<Listen>>,
    next: AtomicU64,
    log: Option<Mutex<File>>,
}

/// A modern client that wants to hear of changes.
struct Listen {
    name: u64,
    id: Value,
    wanted: Value,
    out: Arc<dyn Outlet>,
}

/// A request on its way to an answer.
pub(super) struct Call {
    pub(super) engine: Arc<Engine>,
    pub(super) scope: Arc<Scope>,
    pub(super) era: Era,
    pub(super) message: Incoming,
    /// Empty on stdio.
    pub(super) headers: HeaderMap,
    /// Where what belongs to this call goes before its answer.
    pub(super) out: Arc<dyn Outlet>,
    /// What it can be stopped by.
    pub(super) name: String,
}

/// An answer, ready to be sent.
pub(super) struct Answer {
    pub(super) text: String,
    /// The HTTP status it travels under.
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

    /// A number that was not given out before.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes what came in, byte for byte.
    pub(super) fn note(&self, line: &[u8]) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.write_all(&[line, b"\n"].concat()).unwrap();
        }
    }

    /// Why a message of this era is not for us, if it is not.
    pub(super) fn refuse_era(&self, message: &Incoming) -> Option<Refusal> {
        match (self.options.eras, message.era()) {
            (Eras::Modern, Era::Legacy) if message.method() == "initialize" => {
                Some(unserved(&message.params()["protocolVersion"]))
            }
            (Eras::Legacy, Era::Modern) => {
                Some(Refusal::new(Code::METHOD_NOT_FOUND, "this server wants to be initialized"))
            }
            _ => None,
        }
    }

    /// Tells everybody who wants to know that something changed.
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

    /// Sends what changes to whoever listens, until it is stopped.
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
    /// Runs it. No answer: it was cancelled. That can happen from now on, not only once it is polled:
    /// a client may send both at once.
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

/// The answer to a revision that nobody speaks here.
pub(super) fn unserved(requested: &Value) -> Refusal {
    let data = json!({ "supported": [Version::V2026_07_28.as_str()], "requested": requested });
    Refusal::new(Code::UNSUPPORTED_VERSION, "this revision is not served here").with_data(data)
}
