//! Results of session tools.

use std::sync::Arc;

use serde_json::json;
use stayput_core::{Clock as _, Generation, Origin, Session, SessionId, SystemClock};
use stayput_identify::tools::{SessionView, ToolReply};

use crate::{
    identify::{FoundSession, RequestContext},
    reply::{self, AfterWrite, ReplyText},
    state::AppState,
};

/// Result of a session tool, and what happens when it was written.
pub(super) struct Answer {
    pub(super) reply: ToolReply,
    pub(super) then: Option<AfterWrite>,
}

impl From<ToolReply> for Answer {
    fn from(reply: ToolReply) -> Self {
        Self { reply, then: None }
    }
}

impl Answer {
    /// Returns the session that the result describes, if there is one.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.reply.structure["session"].as_str()?.parse().ok()
    }

    /// Builds the answer to a call.
    pub(super) fn done(self, context: &RequestContext<'_>) -> ReplyText {
        let (kind, ToolReply { text, structure, .. }) =
            (reply::kind_of_result(context.era), self.reply);
        let content = json!([{ "type": "text", "text": text }]);
        let result = format!(r#"{{{kind}"content":{content},"structuredContent":{structure}}}"#);
        context.result(&result).then(self.then)
    }
}

/// Describes the session of a call to a function of [`SessionView`].
pub(super) fn describe(
    session: &Session,
    origin: Origin,
    reply: impl FnOnce(&SessionView<'_>) -> ToolReply,
) -> ToolReply {
    reply(&SessionView { record: &session.record(), origin, now: SystemClock.now() })
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
pub(super) fn acknowledge_when_written(
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
    AfterWrite::new(Some(session.id()), move || {
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
