//! Reports of lost state to clients.

use std::collections::HashMap;

use bytes::Bytes;
use stayput_core::{Generation, SessionId};
use stayput_sync::Mutex;
use stayput_upstream::{Delivery, InitializeResult, LossReason};
use stayput_wire::{Code, Era, json, meta};

use crate::reply::{self, RequestRef};

/// Losses that were reported to clients and are being acknowledged in the store. Calls in the meantime do not report
/// them again.
#[derive(Debug, Default)]
pub(crate) struct LossAcknowledgements(Mutex<HashMap<(SessionId, String), Generation>>);

impl LossAcknowledgements {
    /// Adds a loss whose report is being written. Returns whether it is the first report.
    pub(crate) fn begin(&self, session: SessionId, server: &str, generation: Generation) -> bool {
        let mut all = self.0.lock();
        let latest = all.entry((session, server.to_owned())).or_default();
        let first = *latest < generation;
        *latest = generation.max(*latest);
        first
    }

    /// Removes a loss when its acknowledgement is stored, or has failed.
    pub(crate) fn end(&self, session: SessionId, server: &str, generation: Generation) {
        let mut all = self.0.lock();
        let key = (session, server.to_owned());
        if all.get(&key).is_some_and(|latest| *latest <= generation) {
            all.remove(&key);
        }
    }

    /// Whether no acknowledgement is being stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns whether this loss has just been reported.
    pub(crate) fn has(&self, session: SessionId, server: &str, generation: Generation) -> bool {
        let latest = self.0.lock().get(&(session, server.to_owned())).copied();
        latest.is_some_and(|latest| latest >= generation)
    }
}

/// Loss of state, as it is reported to a client.
pub(crate) struct LossReport<'a> {
    pub(crate) server: &'a str,
    /// Session that lost its state. `None` for shared state.
    pub(crate) session: Option<String>,
    pub(crate) generation: Generation,
    pub(crate) reason: &'a str,
    /// Whether the call that gets this answer may have run.
    pub(crate) delivery: Delivery,
}

impl LossReport<'_> {
    /// Builds the answer to a call.
    pub(crate) fn answer(&self, RequestRef { id, method }: RequestRef<'_>, era: Era) -> String {
        if method == "tools/call" {
            let session = self.session.as_deref().map_or("null".to_owned(), json::quote);
            let (generation, ran) = (self.generation, self.delivery.may_have_run());
            let state = format!(
                r#"{{"session":{session},"state":"lost","generation":{generation},"may_have_run":{ran}}}"#
            );
            let text = json::quote(&self.sentence());
            let key = json::quote(meta::STATE);
            return format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{{}"content":[{{"type":"text","text":{text}}}],"isError":true,"_meta":{{{key}:{state}}}}}}}"#,
                reply::kind_of_result(era)
            );
        }
        let data = format!(
            r#"{{"server":{},"generation":{},"may_have_run":{},"reason":{}}}"#,
            json::quote(self.server),
            self.generation,
            self.delivery.may_have_run(),
            json::quote(self.reason)
        );
        let (code, message) = (Code::STATE_LOST.0, json::quote(&self.sentence()));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#
        )
    }

    fn sentence(&self) -> String {
        let ran = certainty(self.delivery);
        format!(
            "The state of `{}` was lost ({}): whatever was open, logged in or noted there is gone, and \
             it has started afresh. {ran} Set up again what you need, then go on.",
            self.server, self.reason
        )
    }
}

/// Returns the sentence about a call whose link was closed before its answer came, while the state behind the link may
/// still exist.
pub(crate) fn closed(server: &str, delivery: Delivery) -> String {
    let ran = certainty(delivery);
    format!("Stayput closed its link to `{server}` before the answer came. {ran}")
}

/// Returns the sentence about whether a call has run.
fn certainty(delivery: Delivery) -> &'static str {
    if delivery.may_have_run() {
        "This call may or may not have been carried out; check before you repeat it."
    } else {
        "This call was not carried out."
    }
}

/// Notifications that legacy clients get besides the loss report: the server's lists may have changed, and a warning
/// in the log.
#[derive(Debug, Default)]
pub(crate) struct LossNotices {
    changed: Vec<&'static str>,
    warning: Option<String>,
}

impl LossNotices {
    /// Builds the notifications for a loss on a server with these capabilities. For a server without `logging` there
    /// is no warning.
    pub(crate) fn new(
        initialize_result: &InitializeResult,
        server: &str,
        why: Option<LossReason>,
    ) -> Self {
        let changed = LISTS_CHANGED.iter().filter(|(kind, _)| initialize_result.has(kind));
        let warning = initialize_result.has("logging").then(|| {
            let why = reason(why);
            let data = json::quote(&format!("the state of `{server}` was lost ({why})"));
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","logger":"stayput","data":{data}}}}}"#
            )
        });
        Self { changed: changed.map(|(_, text)| *text).collect(), warning }
    }

    /// Returns the notifications for a client with this log level.
    pub(crate) fn messages(&self, level: Option<&str>) -> impl Iterator<Item = Bytes> {
        let quiet = level.is_some_and(|it| LOUDER.contains(&it));
        let warning = self.warning.as_ref().filter(|_| !quiet);
        let changed = self.changed.iter().map(|text| Bytes::from_static(text.as_bytes()));
        changed.chain(warning.map(|text| text.clone().into()))
    }
}

/// Log levels above `warning`.
const LOUDER: [&str; 4] = ["error", "critical", "alert", "emergency"];

/// Notifications that a list has changed, by capability.
pub(crate) const LISTS_CHANGED: [(&str, &str); 3] = [
    ("tools", r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
    ("prompts", r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#),
    ("resources", r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#),
];

/// Returns the lost state as JSON, for programs.
pub(crate) fn state(session: Option<&str>, generation: Generation) -> String {
    let session = session.map_or("null".to_owned(), json::quote);
    format!(r#"{{"session":{session},"state":"lost","generation":{generation}}}"#)
}

/// Returns the reason in a few words for a model. If the session was over, no link with a reason is known.
pub(crate) fn reason(reason: Option<LossReason>) -> &'static str {
    match reason {
        Some(LossReason::Exited(_)) => "its process ended",
        Some(LossReason::SessionUnknown) => "the server forgot the session",
        Some(LossReason::Disconnected) => "the connection broke",
        Some(LossReason::Evicted) => "it was idle and made room for others",
        Some(LossReason::Restarted) => "it was restarted",
        Some(LossReason::Reconfigured) => "its configuration changed",
        Some(LossReason::Stopped) => "the gateway that held it was stopped",
        Some(_) => "the gateway was restarted",
        None => "it expired or was ended, or the gateway was restarted",
    }
}

/// Reason of a loss whose session another replica held before.
pub(crate) const HOLDER_DIED: &str = "holder died: the gateway that held it is gone";

/// Returns the machine-readable reason of a loss: `expired` if none is recorded.
pub(crate) fn word(reason: Option<LossReason>) -> &'static str {
    reason.map_or("expired", LossReason::as_str)
}

/// Returns whether a method depends on state, so that a loss has to be reported first.
pub(crate) fn depends_on_state(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}
