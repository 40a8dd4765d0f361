//! A client's `initialize`.

use std::sync::Arc;

use http::StatusCode;
use stayput_core::{Handle, InUse, OpenError, Owner, Session, Wish};
use stayput_upstream::{Hello, Place};
use stayput_wire::{Code, Era, Message, Version};

use crate::{
    aggregate,
    connection::Connection,
    house::House,
    identify::{self, Claim, Refusal},
    latest, lists, reply,
    request::Along,
    target::Target,
    visit::Asked,
};

/// How a client was greeted.
pub(crate) struct Greeted {
    pub(crate) answer: String,
    /// The secret name of the new connection, if there is one.
    pub(crate) name: Option<Handle>,
    /// It can be tried again: where sessions are kept is away for a moment, or the owner has too many.
    pub(crate) later: Option<StatusCode>,
}

impl Greeted {
    fn refused(answer: String) -> Self {
        Self { answer, name: None, later: None }
    }
}

/// Why nobody can be greeted.
enum Refused {
    /// What the client says of its session leads nowhere.
    Named(Refusal),
    /// It cannot be had here, or not now.
    Here { sentence: String, later: Option<StatusCode> },
}

impl From<OpenError> for Refused {
    fn from(error: OpenError) -> Self {
        let later = match error {
            OpenError::Store(_) | OpenError::LeaseLost => Some(StatusCode::SERVICE_UNAVAILABLE),
            OpenError::AtCapacity { .. } => Some(StatusCode::TOO_MANY_REQUESTS),
            _ => None,
        };
        Self::Here { sentence: error.to_string(), later }
    }
}

impl From<String> for Refused {
    fn from(sentence: String) -> Self {
        Self::Here { sentence, later: None }
    }
}

/// Shakes hands: a new connection, and behind it a new session or the one that the client names. Both are
/// kept before the answer leaves.
pub(crate) async fn initialize(
    house: &Arc<House>,
    owner: &Owner,
    target: &Target,
    message: &Message<'_>,
    along: Along<'_>,
) -> Greeted {
    let id = message.id().map_or("null".to_owned(), |id| id.as_str().to_owned());
    let said = match said(message) {
        Ok(said) => said,
        Err(sentence) => {
            return Greeted::refused(reply::error(&id, Code::INVALID_PARAMS, &sentence));
        }
    };
    let server = match target {
        Target::Server(name) => house.servers.get(&**name),
        Target::All => None,
    };
    let Along { principal, headers, path_key, .. } = along;
    let claims = &*principal.claims;
    let claim = Claim { owner, claims, server, headers, path_key, message, connection: None };
    match open(house, owner, (target, &claim), said).await {
        Ok((name, greeting)) => {
            let answer = reply::result(&id, &greeting);
            Greeted { answer, name: Some(name), later: None }
        }
        Err(Refused::Named(refusal)) => {
            house.metrics.refused("no_session");
            let asked = Asked { id: &id, method: "initialize" };
            Greeted::refused(refusal.answer(asked, Era::Legacy))
        }
        Err(Refused::Here { sentence, later }) => {
            house.metrics.refused("no_session");
            let answer = reply::error(&id, Code::INTERNAL_ERROR, &sentence);
            Greeted { later, ..Greeted::refused(answer) }
        }
    }
}

/// The most bytes that a client may say of itself: it is remembered for as long as the connection.
const HELLO: usize = 64 << 10;

/// What a client is taken for that says nothing of itself.
pub(crate) const NOBODY: &str = r#"{"name":"unknown","version":"0"}"#;

/// What a client says of itself, and what is spoken with it; or what is wrong with that.
pub(crate) fn said(message: &Message<'_>) -> Result<(Version, Hello), String> {
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
    let hello = Hello::new(info, capabilities).map_err(|error| error.to_string())?;
    Ok((spoken(&said), hello))
}

/// What is spoken with a client that asks for this version.
fn spoken(said: &str) -> Version {
    let version = Version::from(said);
    if version.is_known() && version.era() == Era::Legacy {
        version
    } else {
        Version::LATEST_LEGACY
    }
}

async fn open(
    house: &Arc<House>,
    owner: &Owner,
    (target, claim): (&Target, &Claim<'_>),
    (version, hello): (Version, Hello),
) -> Result<(Handle, String), Refused> {
    let (session, unclaimed) = session(house, owner, (target, claim)).await?;
    let place = Place::new(owner.clone(), session.id());
    let greeting = greeting(house, target, &place, (&version, &hello)).await?;
    let handle = Handle::generate();
    let named = (owner.clone(), handle.clone());
    let connection = Connection::new(named, session.id(), target.clone(), (version, hello));
    let kept = house.sessions.connect(&session, &handle, &connection.to_bytes()).await;
    kept?;
    house.connections.insert(Arc::new(connection));
    unclaimed.claim();
    Ok((handle, greeting))
}

/// What is behind a path says of itself.
pub(crate) async fn greeting(
    house: &Arc<House>,
    target: &Target,
    place: &Place,
    (version, hello): (&Version, &Hello),
) -> Result<String, String> {
    let Target::Server(name) = target else {
        return Ok(aggregate::greet(house, place, version).await);
    };
    let server = house.servers.get(&**name).ok_or_else(|| latest::gone(name))?;
    let profile = house.links.profile_for(server, place, hello).await;
    let profile = profile.map_err(|error| house.blame(&error))?;
    Ok(lists::greeting(&profile, version))
}

/// The session that the client names, or else a new one, which ends if nothing comes of it.
async fn session<'a>(
    house: &'a Arc<House>,
    owner: &Owner,
    (target, claim): (&'a Target, &Claim<'_>),
) -> Result<(InUse, Unclaimed<'a>), Refused> {
    if let Some(found) = identify::greeted(house, claim).await.map_err(Refused::Named)? {
        return Ok((found.session, Unclaimed::kept(house, target)));
    }
    let session = house.open(&Wish::new(owner.clone()), target.label()).await?.session;
    let unclaimed = Unclaimed::of(house, target, &session);
    Ok((session, unclaimed))
}

/// A session that no connection leads to yet. Dropped, because its client went away or its server cannot
/// be asked, it ends.
pub(crate) struct Unclaimed<'a> {
    house: &'a Arc<House>,
    target: &'a Target,
    session: Option<Arc<Session>>,
}

impl<'a> Unclaimed<'a> {
    /// For a session that was made just now.
    pub(crate) fn of(house: &'a Arc<House>, target: &'a Target, session: &InUse) -> Self {
        Self { house, target, session: Some(session.session().clone()) }
    }

    /// For one that is kept, whatever comes of it.
    pub(crate) fn kept(house: &'a Arc<House>, target: &'a Target) -> Self {
        Self { house, target, session: None }
    }

    pub(crate) fn claim(mut self) {
        self.session = None;
    }
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (house, target) = (self.house.clone(), self.target.clone());
        tokio::runtime::Handle::current().spawn(async move {
            // If this fails, it idles out.
            let _ = house.end(&session, Some(target.label())).await;
        });
    }
}
