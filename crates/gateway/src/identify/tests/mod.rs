//! Tests of identification for requests of a client without a connection, by name source.

mod name_sources;
mod policies;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::HeaderMap;
use serde_json::{Value, json};
use stayput_core::{
    EventIds, Expiry, Holder, ManualClock, MemoryStore, Owner, SessionId, Sessions, Settings,
    Timestamp,
};
use stayput_engine::Engine;
use stayput_process::Processes;
use stayput_testkit::faulty::Faulty;
use stayput_upstream::{
    LinkOwner, LinkSettings, Links, Profile, SealKey, Server, SessionDirs, Stdio,
};
use stayput_wire::{Era, Message};

use super::*;
use crate::{
    auth::{Authenticator, Claims, login::Logins, rate_limit::RateLimiter},
    catalog::tool_view::ToolViews,
    config::{Handles, Identify, target::Target},
    connections::{
        legacy_clients::LegacyClients, registry::Connections, stream_cache::StreamCache,
    },
    observe::{metrics::Metrics, recent::RecentActivity},
    reply::loss::LossAcknowledgements,
    state::{
        Aggregate, ConfiguredRules, RequestRules, ServerSet, Services, drain::Drain,
        health::Health, identify_rules::IdentifyRules, session_index::SessionIndex,
        shared_generations::SharedGenerations,
    },
};

/// Gateway in memory, with one server whose profile is known and which is never started.
pub(crate) struct Fixture {
    pub(crate) app: Arc<AppState>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) server: Server,
    target: Target,
    /// Store that records its queries.
    pub(crate) store: Arc<Faulty>,
    _folder: tempfile::TempDir,
}

/// Parts of a request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) claims: Claims,
    pub(crate) headers: HeaderMap,
    pub(crate) path: Option<String>,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

impl Request {
    /// Creates a tool call that names no session.
    pub(crate) fn call(owner: &Owner) -> Self {
        Self {
            owner: owner.clone(),
            claims: Claims::default(),
            headers: HeaderMap::new(),
            path: None,
            method: "tools/call",
            params: json!({ "name": "count", "arguments": {} }),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let params = &self.params;
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{}","params":{params}}}"#, self.method)
    }
}

/// Result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Session {
        id: SessionId,
        origin: Origin,
        text: Option<String>,
        given: Option<String>,
        ephemeral: Option<EphemeralSession>,
    },
    Refused(Value),
}

impl Answer {
    pub(crate) fn id(&self) -> SessionId {
        match self {
            Self::Session { id, .. } => *id,
            Self::Refused(value) => panic!("{value}"),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Session { origin, .. } => *origin,
            Self::Refused(value) => panic!("{value}"),
        }
    }

    /// Text of a tool error.
    pub(crate) fn refusal(&self) -> String {
        let Self::Refused(value) = self else { panic!("{self:?}") };
        assert_eq!(value["result"]["isError"], true, "{value}");
        assert_eq!(value["result"]["resultType"], "complete", "{value}");
        value["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn ann() -> Owner {
    Owner::verified("https://id.example.com", "ann").unwrap()
}

pub(crate) fn eve() -> Owner {
    Owner::verified("https://id.example.com", "eve").unwrap()
}

/// Owner and session of a link that every session of Ann has.
fn any_place() -> LinkOwner {
    LinkOwner::new(ann(), SessionId::generate(Timestamp::from_millis(0)))
}

/// Creates a profile with these tools.
pub(crate) fn profile(tools: &Value) -> Profile {
    let text = json!({
        "way": "legacy", "version": "2025-11-25", "greeting": { "capabilities": { "tools": {} } },
        "lists": [["tools/list", [{ "tools": tools }]]],
    });
    Profile::from_text(&text.to_string()).unwrap()
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(Identify::default(), Handles::Auto).await
    }

    pub(crate) async fn with(configured: Identify, handles: Handles) -> Self {
        let tools = json!([{ "name": "count", "inputSchema": { "type": "object" } }]);
        Self::with_tools(configured, handles, &tools).await
    }

    pub(crate) async fn with_tools(configured: Identify, handles: Handles, tools: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let settings = Settings { lease: Duration::MAX, ..Settings::default() };
        let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone()))));
        let holder = Holder::unreachable();
        let sessions = Sessions::start(store.clone(), clock.clone(), holder, settings);
        let runtime = tokio::runtime::Handle::current();
        let folders = SessionDirs::new(&folder.path().join("folders")).unwrap();
        let links = LinkSettings::new(Processes::local(runtime.clone()), folders);
        let server = Server::new("test", Stdio::new("/no/such/program")).unwrap();
        let identify = IdentifyRules {
            configured,
            handles: BTreeMap::from([("test".to_owned(), handles)]),
            expiry: Expiry::default(),
            tool_views: ToolViews::default(),
        };
        let server_set = ServerSet {
            servers: BTreeMap::from([("test".to_owned(), server.clone())]),
            tools: BTreeMap::new(),
            visibility: Arc::default(),
            restarting: BTreeSet::new(),
            aggregate: Aggregate::new(["test"]).into(),
            identify: identify.into(),
        };
        let (sessions, links) = (Arc::new(sessions.await.unwrap()), Links::new(links, runtime));
        let services = Services {
            engine: Engine::new(sessions.clone(), links.clone(), SealKey::generate().unwrap(), ""),
            sessions,
            links,
            connections: Connections::default(),
            legacy_clients: LegacyClients::default(),
            loss_acknowledgements: LossAcknowledgements::default(),
            server_claims: Arc::default(),
            generations: SharedGenerations::default(),
            stream_cache: StreamCache::default(),
            ids: EventIds::new(&[0; 32]),
            question_ids: Arc::default(),
            call_limiter: Arc::default(),
            body_budget: Arc::default(),
            health: Health::default(),
            drain: Drain::default(),
            cluster: None,
            recent: RecentActivity::default(),
            session_index: SessionIndex::default(),
            logins: Logins::default(),
            observers: None,
            closing: tokio::sync::watch::channel(false).1,
        };
        let rules = ConfiguredRules {
            rules: RequestRules::default(),
            authenticator: Authenticator::default(),
            rate_limiter: RateLimiter::new(None),
            metrics: Metrics::new(["test"].into_iter()),
        };
        let app = AppState::new(services, server_set, rules);
        app.links.set_profile(&server, &any_place(), profile(tools)).await;
        let (app, target) = (Arc::new(app), Target::Server("test".into()));
        Self { app, clock, server, target, store, _folder: folder }
    }

    pub(crate) async fn ask(&self, request: &Request) -> Answer {
        let text = request.to_text();
        let message = Message::parse(text.as_bytes()).unwrap();
        match identify_session(&self.context(request, &message)).await {
            SessionChoice::Session(chosen, edit) => {
                let given = chosen.new_handle.map(|handle| handle.expose().to_owned());
                let text = edit.map(|rest| rest.text().to_owned());
                let (id, origin) = (chosen.session.id(), chosen.origin);
                Answer::Session { id, origin, text, given, ephemeral: chosen._ephemeral }
            }
            SessionChoice::Answer(text) => {
                Answer::Refused(serde_json::from_slice(&text.text).unwrap())
            }
        }
    }

    pub(crate) fn context<'a>(
        &'a self,
        request: &'a Request,
        message: &'a Message<'a>,
    ) -> RequestContext<'a> {
        RequestContext {
            app: &self.app,
            owner: &request.owner,
            claims: &request.claims,
            target: &self.target,
            server: Some(&self.server),
            headers: &request.headers,
            path_key: request.path.as_deref(),
            message,
            connection: None,
            era: Era::Modern,
            claim: None,
            streams: true,
            timer: None,
        }
    }

    /// Creates a session of `owner` and returns its id and a handle.
    pub(crate) async fn handle(&self, owner: &Owner) -> (SessionId, String) {
        let options = stayput_core::OpenOptions::new(owner.clone());
        let opened = self.app.sessions.open(&options).await.unwrap();
        let handle = self.app.sessions.issue_handle(&opened.session).await.unwrap();
        (opened.session.id(), handle.expose().to_owned())
    }

    /// Advances the clock and ends the expired sessions.
    pub(crate) async fn pass(&self, minutes: u64) {
        self.clock.advance(Duration::from_secs(minutes * 60));
        let _ = self.app.sessions.sweep().await;
    }
}
