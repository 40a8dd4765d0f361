//! What one of our tools answers.

use std::sync::Arc;

use serde_json::{Value, json};
use stayput_core::{Clock as _, Generation, Origin, Record, Session, SystemClock};

use crate::{forward::Done, house::House, identify::Claim, moment, reply, reply::Then};

/// A result: the same for a model to read and for a program.
pub(super) struct Told {
    pub(super) text: String,
    pub(super) structure: Value,
    pub(super) then: Option<Then>,
}

impl Told {
    pub(super) fn new(text: String, structure: Value) -> Self {
        Self { text, structure, then: None }
    }

    /// As the answer to a call.
    pub(super) fn done(self, claim: &Claim<'_>) -> Done {
        let kind = reply::kind_of_result(claim.era());
        let content = json!([{ "type": "text", "text": self.text }]);
        let result =
            format!(r#"{{{kind}"content":{content},"structuredContent":{}}}"#, self.structure);
        Done { text: reply::result(claim.asked().id, &result).into(), then: self.then }
    }
}

/// What there is to say of a session that somebody uses.
pub(super) fn session(session: &Session, origin: Origin) -> Value {
    let record = session.record();
    let (state, generation) = match origin {
        Origin::Fresh => ("fresh", record.generation),
        Origin::Kept => ("kept", record.generation),
        Origin::Lost(generation) => ("lost", generation),
    };
    let expires = record.expiry.deadline(record.created, SystemClock.now()).map(moment::text);
    let mut told = json!({
        "session": session.id().to_string(),
        "state": state,
        "generation": generation.0,
        "created": moment::text(record.created),
        "expires": expires,
    });
    if let Some(name) = name(&record) {
        told["name"] = name.into();
    }
    told
}

/// The name that somebody chose for a session. What a host calls it stays between the host and us.
pub(super) fn name(record: &Record) -> Option<&str> {
    let key = record.key.as_ref()?;
    matches!(key.source(), "name" | "project").then(|| key.value())
}

/// Notes that a loss of the whole session was told, once the answer that tells it was written.
pub(super) fn told(house: &Arc<House>, session: &Arc<Session>, generation: Generation) -> Then {
    let (house, session) = (house.clone(), session.clone());
    let runtime = tokio::runtime::Handle::current();
    Box::new(move || {
        runtime.spawn(async move {
            // Not noted, it is told once more, which does no harm.
            let _ = house.sessions.told(&session, generation).await;
        });
    })
}
