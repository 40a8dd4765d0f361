//! A client's `initialize`.

use std::sync::Arc;

use stayput_core::{Handle, InUse, Owner, Session, Wish};
use stayput_upstream::{Hello, Place, Profile, Server};
use stayput_wire::{Code, Era, Message, Version};

use crate::{
    connection::Connection,
    house::House,
    identify::{self, Claim, Refusal},
    lists, reply,
    request::Along,
    target::Target,
    visit::Asked,
};

/// How a client was greeted.
pub(crate) struct Greeted {
    pub(crate) answer: String,
    /// The secret name of the new connection, if there is one.
    pub(crate) name: Option<Handle>,
}

impl Greeted {
    fn refused(answer: String) -> Self {
        Self { answer, name: None }
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
    let params = message.params();
    let find = |name: &str| params.and_then(|params| params.find(&[name]));
    let said = find("protocolVersion").and_then(|version| version.text().map(|it| it.into_owned()));
    let Some(said) = said else {
        let sentence = "`initialize` needs a protocolVersion";
        return Greeted::refused(reply::error(&id, Code::INVALID_PARAMS, sentence));
    };
    let version = spoken(&said);
    let capabilities = find("capabilities").map_or("{}", |it| it.as_str());
    let info = find("clientInfo").map_or(r#"{"name":"unknown","version":"0"}"#, |it| it.as_str());
    let hello = match Hello::new(info, capabilities) {
        Ok(hello) => hello,
        Err(error) => {
            let sentence = error.to_string();
            return Greeted::refused(reply::error(&id, Code::INVALID_PARAMS, &sentence));
        }
    };
    let Target::Server(name) = target else {
        let sentence = "there is no such path yet";
        return Greeted::refused(reply::error(&id, Code::INTERNAL_ERROR, sentence));
    };
    let Some(server) = house.servers.get(&**name) else {
        let sentence = "there is no such server";
        return Greeted::refused(reply::error(&id, Code::INTERNAL_ERROR, sentence));
    };
    let Along { headers, path_key, .. } = along;
    let claim = Claim { owner, server, headers, path_key, message, connection: None };
    match open(house, &claim, target, (version.clone(), hello)).await {
        Ok((name, profile)) => {
            let greeting = lists::greeting(&profile, &version);
            Greeted { answer: reply::result(&id, &greeting), name: Some(name) }
        }
        Err(refusal) => {
            let asked = Asked { id: &id, method: "initialize" };
            Greeted::refused(refusal.answer(asked, Era::Legacy))
        }
    }
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
    claim: &Claim<'_>,
    target: &Target,
    (version, hello): (Version, Hello),
) -> Result<(Handle, Arc<Profile>), Refusal> {
    let (owner, name) = (claim.owner, claim.server.name());
    let (session, unclaimed) = session(house, claim).await?;
    let profile = profile(house, claim.server, &session).await?;
    let connection = Connection::new(owner.clone(), session.id(), target.clone(), version, hello);
    let handle = Handle::generate();
    let kept = house.sessions.connect(&session, &handle, &connection.to_bytes()).await;
    kept.map_err(|error| Refusal::here(error.to_string()))?;
    house.connections.insert(handle.hash(owner), Arc::new(connection));
    unclaimed.claim();
    house.log.info(&format!("session {} connected to {name}", session.id()));
    Ok((handle, profile))
}

/// The session that the client names, or else a new one, which ends if nothing comes of it.
async fn session<'a>(
    house: &'a Arc<House>,
    claim: &Claim<'_>,
) -> Result<(InUse, Unclaimed<'a>), Refusal> {
    if let Some(found) = identify::greeted(house, claim).await? {
        return Ok((found.session, Unclaimed { house, session: None }));
    }
    let opened = house.sessions.open(&Wish::new(claim.owner.clone())).await;
    let session = opened.map_err(|error| Refusal::here(error.to_string()))?.session;
    let unclaimed = Unclaimed { house, session: Some(session.session().clone()) };
    Ok((session, unclaimed))
}

async fn profile(house: &House, server: &Server, session: &InUse) -> Result<Arc<Profile>, Refusal> {
    let place = Place::new(session.owner().clone(), session.id());
    let profile = house.links.profile(server, &place).await;
    profile.map_err(|error| Refusal::here(error.to_string()))
}

/// A session that no connection leads to yet. Dropped, because its client went away or its server cannot
/// be asked, it ends.
struct Unclaimed<'a> {
    house: &'a Arc<House>,
    session: Option<Arc<Session>>,
}

impl Unclaimed<'_> {
    fn claim(mut self) {
        self.session = None;
    }
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let house = self.house.clone();
        tokio::runtime::Handle::current().spawn(async move {
            // If this fails, it idles out.
            let _ = house.sessions.end(&session).await;
        });
    }
}
