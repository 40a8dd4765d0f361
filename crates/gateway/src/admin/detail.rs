//! View of one session with its recent calls, losses and connections.

use serde::Serialize;
use stayput_core::SessionId;
use stayput_wire::Raw;

use super::{events::EventView, view::SessionView};
use crate::{
    connections::connection::Connection,
    observe::recent::{NameClass, call_history::PastCall, recent_events::LoggedEvent},
    state::AppState,
};

/// Largest number of connections that are shown.
const MAX_CONNECTIONS: usize = 64;

/// Number of requests for which the page shows what named the session. More are in `recent_calls`.
const MAX_NAMED: usize = 16;

/// View of one session with its history.
#[derive(Serialize)]
pub(super) struct SessionDetail<'a> {
    #[serde(flatten)]
    session: SessionView,
    /// Last calls, the latest first.
    recent_calls: Vec<CallView>,
    /// Last requests, with the part of each that named the session.
    identified: Vec<IdentifiedView>,
    losses: Vec<EventView<'a>>,
    connections: Vec<ConnectionView>,
    /// Whether arguments of calls are shown.
    shows_arguments: bool,
}

/// View of a call.
#[derive(Serialize)]
struct CallView {
    at: String,
    server: String,
    /// Name of the tool, or method of another request.
    label: String,
    /// Outcome, and `running` while there is none.
    outcome: &'static str,
    duration_micros: Option<u32>,
    sent_bytes: u32,
    received_bytes: u32,
    connection: Option<String>,
    arguments: Option<String>,
}

/// View of the part of a request that named its session.
#[derive(Serialize)]
struct IdentifiedView {
    at: String,
    label: String,
    /// Part of the request, or policy.
    carrier: &'static str,
    class: &'static str,
    /// Classes that would have counted before it.
    absent: Vec<&'static str>,
    connection: Option<String>,
}

/// View of a client's connection.
#[derive(Serialize)]
struct ConnectionView {
    number: String,
    client: Option<String>,
    version: Option<String>,
    protocol: String,
    transport: &'static str,
    target: String,
    /// Whether requests without a name on this connection belong to the session.
    by_default: bool,
    in_flight: usize,
}

/// Losses of a session, kept while the view refers to them.
pub(super) type Losses = Vec<std::sync::Arc<LoggedEvent>>;

impl<'a> SessionDetail<'a> {
    pub(super) fn new(
        app: &AppState,
        id: SessionId,
        session: SessionView,
        losses: &'a Losses,
    ) -> Self {
        let calls = app.recent.calls.calls(id);
        let mut connections: Vec<_> = app
            .connections
            .of_session(id, MAX_CONNECTIONS)
            .iter()
            .map(|it| ConnectionView::new(it, id))
            .collect();
        connections.sort_by(|one, other| one.number.cmp(&other.number));
        Self {
            session,
            identified: calls.iter().filter_map(IdentifiedView::new).take(MAX_NAMED).collect(),
            recent_calls: calls.into_iter().map(CallView::from).collect(),
            losses: losses.iter().map(|event| EventView::new(event)).collect(),
            connections,
            shows_arguments: app.recent.calls.keeps_arguments(),
        }
    }
}

fn number(connection: u32) -> String {
    format!("{connection:08x}")
}

impl From<PastCall> for CallView {
    fn from(call: PastCall) -> Self {
        Self {
            at: call.at.to_rfc3339_millis(),
            server: call.server,
            label: call.label,
            outcome: call.end.map_or("running", |end| end.as_str()),
            duration_micros: call.micros,
            sent_bytes: call.sent,
            received_bytes: call.received,
            connection: call.connection.map(number),
            arguments: call.arguments,
        }
    }
}

impl IdentifiedView {
    fn new(call: &PastCall) -> Option<Self> {
        let carrier = call.name_source?;
        Some(Self {
            at: call.at.to_rfc3339_millis(),
            label: call.label.clone(),
            carrier: carrier.as_str(),
            class: carrier.class().as_str(),
            absent: carrier.class().absent().map(NameClass::as_str).collect(),
            connection: call.connection.map(number),
        })
    }
}

impl ConnectionView {
    fn new(connection: &Connection, session: SessionId) -> Self {
        let info = connection.client_info.info();
        let text = |name: &str| {
            let info = Raw::parse(info).ok()?;
            let text = info.find(&[name])?.text()?;
            // A client can send much; the page shows a line.
            Some(text.chars().take(120).collect())
        };
        Self {
            number: number(connection.number()),
            client: text("name"),
            version: text("version"),
            protocol: connection.version.as_str().to_owned(),
            transport: if connection.stdio { "stdio" } else { "http" },
            target: connection.target.label().to_owned(),
            by_default: connection.default_session() == session,
            in_flight: connection.calls_in_flight(),
        }
    }
}
