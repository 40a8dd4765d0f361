//! `initialize` requests of clients.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use stayput_core::{ActiveSession, Handle, OpenOptions, Session, SessionOpenError};
use stayput_upstream::{ClientInfo, LinkOwner};
use stayput_wire::{Code, Era, Message, Version};

use crate::{
    config::target::Target,
    connections::connection::Connection,
    identify::{self, Refusal, RequestContext},
    reply::{self, HeldBy, ReplyText},
    route::{aggregate, lists},
    state::{AppState, snapshot},
};

/// Result of an `initialize` request.
pub(crate) struct InitializeOutcome {
    pub(crate) answer: Bytes,
    /// Secret name of the new connection, if one was opened.
    pub(crate) name: Option<Handle>,
    /// HTTP status if the client can try again: the session store is unavailable, or the owner has too many sessions.
    pub(crate) later: Option<StatusCode>,
    /// Replica that holds the session which the client names.
    pub(crate) held_by: Option<Box<HeldBy>>,
}

impl InitializeOutcome {
    fn answered(answer: impl Into<Bytes>) -> Self {
        Self { answer: answer.into(), name: None, later: None, held_by: None }
    }
}

/// Reason why an `initialize` request fails.
enum HandshakeError {
    /// The session that the client names cannot be used, or another gateway creates the session.
    Named(Refusal),
    /// The server or the session is unavailable, permanently or for now.
    Here { sentence: String, later: Option<StatusCode> },
}

impl From<SessionOpenError> for HandshakeError {
    fn from(error: SessionOpenError) -> Self {
        if let SessionOpenError::HeldElsewhere { .. } = error {
            return Self::Named(Refusal::for_open_error(&error, "Try again."));
        }
        let later = match error {
            SessionOpenError::Store(_) | SessionOpenError::LeaseLost => {
                Some(StatusCode::SERVICE_UNAVAILABLE)
            }
            SessionOpenError::AtCapacity { .. } => Some(StatusCode::TOO_MANY_REQUESTS),
            _ => None,
        };
        Self::Here { sentence: error.to_string(), later }
    }
}

impl From<String> for HandshakeError {
    fn from(sentence: String) -> Self {
        Self::Here { sentence, later: None }
    }
}

/// Opens a new connection, with a new session or the one that the client names. Both are stored before the answer is
/// sent.
pub(crate) async fn initialize(context: &RequestContext<'_>) -> InitializeOutcome {
    let (app, asked) = (context.app, context.request_ref());
    let client = match parse_request(context.message) {
        Ok(client) => client,
        Err(sentence) => {
            return InitializeOutcome::answered(reply::error(
                asked.id,
                Code::INVALID_PARAMS,
                &sentence,
            ));
        }
    };
    match open(context, client).await {
        Ok((name, initialize_result)) => {
            let answer = reply::result(asked.id, &initialize_result);
            InitializeOutcome { name: Some(name), ..InitializeOutcome::answered(answer) }
        }
        Err(HandshakeError::Named(refusal)) => {
            app.count_refused("no_session");
            let ReplyText { text, held_by, .. } = refusal.answer(asked, Era::Legacy);
            InitializeOutcome { held_by, ..InitializeOutcome::answered(text) }
        }
        Err(HandshakeError::Here { sentence, later }) => {
            app.count_refused("no_session");
            let answer = reply::error(asked.id, Code::INTERNAL_ERROR, &sentence);
            InitializeOutcome { later, ..InitializeOutcome::answered(answer) }
        }
    }
}

/// Size limit of `clientInfo` and `capabilities` in bytes: they are kept for as long as the connection.
const HELLO: usize = 64 << 10;

/// Client information of a client that sends none.
pub(crate) const NOBODY: &str = r#"{"name":"unknown","version":"0"}"#;

/// Parses the protocol version and client information of an `initialize` request. Returns the error message if they
/// are invalid.
pub(crate) fn parse_request(message: &Message<'_>) -> Result<(Version, ClientInfo), String> {
    let params = message.params();
    let find = |name: &str| params.and_then(|params| params.find(&[name]));
    let said = find("protocolVersion").and_then(|version| version.text().map(|it| it.into_owned()));
    let said = said.ok_or("`initialize` needs a protocolVersion")?;
    let capabilities = find("capabilities").map_or("{}", |it| it.as_str());
    let info = find("clientInfo").map_or(NOBODY, |it| it.as_str());
    if info.len() + capabilities.len() > HELLO {
        let sentence = format!("`clientInfo` and `capabilities` have more than {HELLO} bytes");
        return Err(sentence);
    }
    let client_info = ClientInfo::new(info, capabilities).map_err(|error| error.to_string())?;
    Ok((negotiate_version(&said), client_info))
}

/// Returns the protocol version to use with a client that asks for this one.
fn negotiate_version(said: &str) -> Version {
    let version = Version::from(said);
    if version.is_known() && version.era() == Era::Legacy {
        version
    } else {
        Version::LATEST_LEGACY
    }
}

async fn open(
    context: &RequestContext<'_>,
    (version, client_info): (Version, ClientInfo),
) -> Result<(Handle, String), HandshakeError> {
    let claim = match context.server {
        Some(server) => identify::claim_server(context, server).await,
        None => Ok(None),
    };
    let claim = claim.map_err(HandshakeError::Named)?;
    let context = &RequestContext { claim: claim.as_ref(), ..*context };
    let RequestContext { app, owner, target, .. } = *context;
    let mcp_session_id = Handle::generate();
    let found = identify::session_for_initialize(context).await.map_err(HandshakeError::Named)?;
    let is_new = found.is_none();
    let (session, unclaimed) = match found {
        Some(found) => (found.session, UnclaimedSession::empty(app, target)),
        None => {
            let bytes = Connection::new_bytes(target, (&version, &client_info));
            let options = OpenOptions::new(owner.clone()).connection(mcp_session_id.clone(), bytes);
            let session = app.open(&options, target.label()).await?.session;
            let unclaimed = UnclaimedSession::new(app, target, &session);
            (session, unclaimed)
        }
    };
    let identity = (owner.clone(), mcp_session_id.clone());
    let connection =
        Connection::new(identity, session.id(), target.clone(), (version, client_info));
    let link_owner = LinkOwner::new(owner.clone(), session.id());
    let client = (&connection.version, &connection.client_info);
    let initialize_result = initialize_result(app, target, &link_owner, client).await?;
    if !is_new {
        app.sessions.put_connection(&session, &mcp_session_id, &connection.to_bytes()).await?;
    }
    let protocol = connection.version.as_str();
    tracing::debug!(
        session = %session.id(), server = target.label(), protocol, is_new, "initialize"
    );
    app.connections.insert(Arc::new(connection));
    unclaimed.claim();
    Ok((mcp_session_id, initialize_result))
}

/// Builds the `initialize` result of the server or the aggregate behind a path.
pub(crate) async fn initialize_result(
    app: &Arc<AppState>,
    target: &Target,
    link_owner: &LinkOwner,
    (version, client_info): (&Version, &ClientInfo),
) -> Result<String, String> {
    let Target::Server(name) = target else {
        return Ok(aggregate::merged_initialize_result(app, link_owner, version).await);
    };
    let server = app.servers.get(&**name).ok_or_else(|| snapshot::gone(name))?;
    app.adopt_profile(server, &link_owner.owner).await;
    let profile = app.links.profile_for_opener(server, link_owner, client_info).await;
    let profile = profile.map_err(|error| app.describe_open_error(&error))?;
    Ok(lists::initialize_result(&profile, version))
}

/// Guard of a new session that its client does not know yet. If it is dropped, because the client disconnected or the
/// server cannot be asked, the session ends and nothing of it is stored.
pub(crate) struct UnclaimedSession<'a> {
    app: &'a Arc<AppState>,
    target: &'a Target,
    session: Option<Arc<Session>>,
}

impl<'a> UnclaimedSession<'a> {
    /// Guards a session that was just created.
    pub(crate) fn new(app: &'a Arc<AppState>, target: &'a Target, session: &ActiveSession) -> Self {
        Self { app, target, session: Some(session.session().clone()) }
    }

    /// Creates an empty guard, for a session that existed before and is always kept.
    pub(crate) fn empty(app: &'a Arc<AppState>, target: &'a Target) -> Self {
        Self { app, target, session: None }
    }

    /// Keeps the session: its client knows it now.
    pub(crate) fn claim(mut self) {
        self.session = None;
    }
}

impl Drop for UnclaimedSession<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (app, target) = (self.app.clone(), self.target.clone());
        tokio::runtime::Handle::current().spawn(async move {
            // If this fails, the session becomes idle and expires, or is removed later.
            let _ = app.discard(&session, target.label()).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use stayput_core::{Store, Timestamp};
    use stayput_testkit::faulty::Faulty;
    use stayput_upstream::{Server, Stdio};

    use super::*;
    use crate::identify::tests::{Fixture, Request, ann};

    /// Sends an `initialize` request of owner Ann to a server.
    async fn opened(
        world: &Fixture,
        app: &Arc<AppState>,
        server: &str,
    ) -> Result<Handle, HandshakeError> {
        let params = json!({ "protocolVersion": "2025-11-25" });
        let request = Request { method: "initialize", params, ..Request::call(&ann()) };
        let text = request.to_text();
        let message = Message::parse(text.as_bytes()).unwrap();
        let target = Target::Server(server.into());
        let context = RequestContext { app, target: &target, ..world.context(&request, &message) };
        let opened = open(&context, parse_request(&message).unwrap()).await;
        opened.map(|(name, _)| name)
    }

    /// Waits until no session is held, and asserts that the store contains no trace of any session.
    async fn leaves_nothing(world: &Fixture) {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
            let _swept = world.app.sessions.sweep().await;
            if world.app.sessions.held_sessions().is_empty() {
                break;
            }
        }
        let store: &Faulty = &world.store;
        assert!(store.list(None, None, 9).await.unwrap().is_empty());
        let far = Timestamp::from_millis(9_000_000_000_000);
        assert_eq!(store.purge(far, 9).await.unwrap(), 0, "a tombstone is left");
    }

    /// Invariant 6: an `initialize` that is cancelled during a store operation leaves no session and no connection.
    #[tokio::test]
    async fn cancelled_initialize_leaves_no_session() {
        let world = Fixture::new().await;
        for steps in 1..100 {
            let opening = opened(&world, &world.app, "test");
            if let Some(done) = world.store.cut(steps, opening).await {
                let name = done.map_err(drop).unwrap();
                assert!(steps > 2, "there was nothing to cancel it at");
                assert!(world.app.sessions.find_connection(&ann(), &name).await.unwrap().is_some());
                return;
            }
            leaves_nothing(&world).await;
        }
        panic!("it never ends");
    }

    /// The same while the gateway waits for a server that does not answer.
    #[tokio::test]
    async fn initialize_cancelled_while_the_server_starts_leaves_no_session() {
        let world = Fixture::new().await;
        let server = Server::new("slow", Stdio::new("sleep").args(["60"])).unwrap();
        let servers = [("slow".to_owned(), server)].into();
        let app = Arc::new(AppState { servers, ..AppState::clone(&world.app) });
        let asked = async {
            while app.links.used().processes == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = opened(&world, &app, "slow") => panic!("nobody answered it"),
            () = asked => {}
        }
        assert!(world.store.asked().contains(&"insert"));
        leaves_nothing(&world).await;
        let _closed = app.links.close(Duration::from_secs(5)).await;
    }

    /// A server that cannot be asked leaves nothing of the session that was created for it.
    #[tokio::test]
    async fn refused_initialize_leaves_no_session() {
        let world = Fixture::new().await;
        let refused = opened(&world, &world.app, "gone").await;
        assert!(matches!(refused, Err(HandshakeError::Here { .. })));
        leaves_nothing(&world).await;
    }

    /// A new session and its connection are one write to the store, because the store is the slowest part of an
    /// `initialize`.
    #[tokio::test]
    async fn initialize_writes_to_the_store_once() {
        let world = Fixture::new().await;
        world.store.asked();
        let name = opened(&world, &world.app, "test").await.map_err(drop).unwrap();
        assert_eq!(world.store.asked(), ["insert"]);
        let kept = world.app.sessions.find_connection(&ann(), &name).await.unwrap();
        let known = world.app.connection(&ann(), &name).await.unwrap().unwrap();
        assert_eq!(kept, Some((known.default_session(), known.to_bytes())));
    }
}
