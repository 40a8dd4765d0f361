//! Results of session tools.

use std::sync::Arc;

use serde_json::{Value, json};
use stayput_core::{Clock as _, Generation, Origin, Record, Session, SessionId, SystemClock};

use crate::{
    identify::{FoundSession, RequestContext},
    observe::time_format,
    reply::{self, AfterWrite, ReplyText},
    state::AppState,
};

/// Result with the same content as text for a model and as JSON for a program.
pub(super) struct ToolReply {
    pub(super) text: String,
    pub(super) structure: Value,
    pub(super) then: Option<AfterWrite>,
}

impl ToolReply {
    pub(super) fn new(text: String, structure: Value) -> Self {
        Self { text, structure, then: None }
    }

    /// Returns the session that the result describes, if there is one.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.structure["session"].as_str()?.parse().ok()
    }

    /// Builds the answer to a call.
    pub(super) fn done(self, context: &RequestContext<'_>) -> ReplyText {
        let kind = reply::kind_of_result(context.era());
        let content = json!([{ "type": "text", "text": self.text }]);
        let result =
            format!(r#"{{{kind}"content":{content},"structuredContent":{}}}"#, self.structure);
        context.result(&result).then(self.then)
    }
}

/// Describes a session in use, as JSON.
pub(super) fn session(session: &Session, origin: Origin) -> Value {
    let record = session.record();
    let (state, generation) = match origin {
        Origin::New => ("fresh", record.generation),
        Origin::Existing => ("kept", record.generation),
        Origin::Lost(generation) => ("lost", generation),
    };
    let expires = record.expiry.deadline(record.created, SystemClock.now()).map(time_format::text);
    let mut told = json!({
        "session": session.id().to_string(),
        "state": state,
        "generation": generation.0,
        "created": time_format::text(record.created),
        "expires": expires,
    });
    if let Some(name) = name(&record) {
        told["name"] = name.into();
    }
    told
}

/// Returns the chosen name of a session (a `name` or `project` key). A key that comes from the host is not shown.
pub(super) fn name(record: &Record) -> Option<&str> {
    let key = record.key.as_ref()?;
    matches!(key.source(), "name" | "project").then(|| key.value())
}

/// Returns whether the state that a client remembers can still be valid on the server of its request. A loss on
/// another server is reported there.
pub(super) fn origin(context: &RequestContext<'_>, found: &FoundSession) -> Origin {
    let lost = match context.server {
        Some(server) => found.session.unacknowledged_loss_on(server.name()),
        None => found.session.latest_unacknowledged_loss(),
    };
    match (lost, found.origin) {
        (Some(generation), _) => Origin::Lost(generation),
        (None, Origin::Lost(_)) => Origin::Existing,
        (None, origin) => origin,
    }
}

/// Acknowledges a loss when the answer that reports it has been written: on the server of the request, or on all.
pub(super) fn told(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    session: &Arc<Session>,
) -> AfterWrite {
    let (app, session) = (app.clone(), session.clone());
    let record = session.record();
    let servers: Vec<String> = match context.server {
        Some(server) => vec![server.name().to_owned()],
        None => app.servers.keys().cloned().collect(),
    };
    let lost = servers.into_iter().filter_map(|it| Some((record.unacknowledged_loss_on(&it)?, it)));
    let lost: Vec<(Generation, String)> = lost.collect();
    let runtime = tokio::runtime::Handle::current();
    Box::new(move || {
        for (generation, server) in &lost {
            app.loss_acknowledgements.begin(session.id(), server, *generation);
        }
        runtime.spawn(async move {
            // If the store fails, the loss is reported once more, which is harmless.
            let change = app.sessions.change(&session, |record| {
                lost.iter()
                    .for_each(|(generation, server)| record.acknowledge_loss(server, *generation));
            });
            let _ = change.await;
            for (generation, server) in &lost {
                app.loss_acknowledgements.end(session.id(), server, *generation);
            }
        });
    })
}
