//! A session on its way to another process.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use stayput_core::{Agent, Expiry, Generation, Key, OpenError, Opened, Record, StoreError, Wish};
use stayput_upstream::{Attachment, SealKey, Shared};

use crate::{Error, Hub, Session, hold::Hold};

/// Everything that another process needs to go on with a session, and a secret: whoever has it has the
/// session.
///
/// A session on an HTTP server goes on without a word to the server. Of a child process nothing can be
/// taken along: its loss is told.
#[derive(Clone)]
pub struct Ticket(String);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    v: u32,
    /// What the attachments are sealed with.
    key: String,
    name: Option<String>,
    agent: String,
    expiry: Expiry,
    generation: u64,
    /// A loss of the whole session that nobody was told of yet.
    untold: bool,
    attachments: BTreeMap<String, Kept>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    generation: u64,
    told: u64,
    body: String,
}

impl Ticket {
    /// The secret, to be given to the process that goes on with the session, and to nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What [`Ticket::expose`] gave.
    #[must_use]
    pub fn from_secret(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

impl Body {
    fn of(record: &Record, seal: &SealKey) -> Result<Self, Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(Error::invalid)?;
        let key = SealKey::from_bytes(&secret).map_err(Error::invalid)?;
        let mut attachments = BTreeMap::new();
        for (server, kept) in &record.attachments {
            let body = match Attachment::open(kept, seal) {
                Ok(open) => open.seal(&key).map_err(Error::invalid)?.body,
                // There the state behind it is another one, and that is told.
                Err(_) if Shared::is_kept_as(&kept.body) => kept.body.clone(),
                Err(_) => continue,
            };
            let kept = Kept { generation: kept.generation.0, told: kept.told.0, body };
            attachments.insert(server.clone(), kept);
        }
        Ok(Self {
            v: 2,
            key: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
            name: record.key.as_ref().map(|key| key.as_str().to_owned()),
            agent: record.agent.as_str().to_owned(),
            expiry: record.expiry,
            generation: record.generation.0,
            untold: record.lost().is_some(),
            attachments,
        })
    }

    /// What is kept of each server, sealed as everything is here.
    fn attachments(
        &self,
        seal: &SealKey,
    ) -> Result<Vec<(String, stayput_core::Attachment)>, Error> {
        let key = SealKey::from_hex(&self.key).map_err(|_| unreadable())?;
        let mut attachments = Vec::new();
        for (server, Kept { generation, told, body }) in &self.attachments {
            let mut kept = stayput_core::Attachment::new(Generation(*generation), body.as_str());
            if !Shared::is_kept_as(body) {
                let open = Attachment::open(&kept, &key).map_err(|_| unreadable())?;
                kept = open.seal(seal).map_err(Error::invalid)?;
            }
            kept.told = Generation(*told);
            attachments.push((server.clone(), kept));
        }
        Ok(attachments)
    }
}

fn unreadable() -> Error {
    Error::Invalid("this is not what `into_ticket` gave".to_owned())
}

impl Session {
    /// Lets go of the session, so that another process can go on with it. Here it is over.
    ///
    /// # Errors
    /// If it was ended, or the store cannot be reached.
    pub async fn into_ticket(self) -> Result<Ticket, Error> {
        let hub = self.hub().inner.clone();
        let leaving = async {
            let session = self.hold.enter().await?;
            let body = Body::of(&session.record(), &hub.seal)?;
            let ticket = serde_json::to_string(&body).map_err(Error::invalid)?;
            hub.links.release(self.id()).await;
            let ended = session.session().clone();
            drop(session);
            hub.sessions.forget(&ended).await?;
            hub.say_ended(ended.id());
            Ok(Ticket(ticket))
        };
        hub.home.at_home(leaving).await
    }
}

impl Hub {
    /// Goes on with a session of another process, or of another hub. If it had a name, it has it here, too,
    /// for the same agent.
    ///
    /// # Errors
    /// If the ticket cannot be read, or a session of this name is there already.
    pub async fn resume(&self, ticket: &Ticket) -> Result<Session, Error> {
        self.inner.check_open()?;
        let body: Body = serde_json::from_str(&ticket.0).map_err(|_| unreadable())?;
        let attachments = body.attachments(&self.inner.seal)?;
        let agent = match body.agent.as_str() {
            "" => Agent::none(),
            agent => Agent::named(agent)?,
        };
        let owner = self.inner.owner.clone();
        let wish = match body.name.as_deref().and_then(|name| name.split_once(':')) {
            Some((source, name)) => Wish::keyed(owner, agent.clone(), Key::new(source, name)?),
            None => Wish::new(owner),
        };
        let sessions = &self.inner.sessions;
        let opening = async {
            let wish = wish.expiry(body.expiry);
            let Opened { session, .. } = sessions.open_new(&wish).await?;
            let change = sessions.change(session.session(), |record| {
                record.generation = record.generation.max(Generation(body.generation));
                if !body.untold {
                    record.told = record.generation;
                }
                for (server, attachment) in &attachments {
                    record.attachments.insert(server.clone(), attachment.clone());
                }
            });
            change.await.map(|()| session)
        };
        match self.inner.home.at_home(opening).await {
            Ok(session) => {
                let hub = Self { inner: self.inner.clone(), agent };
                Ok(Session::new(&hub, Hold::opened(self.inner.clone(), session.id())))
            }
            Err(OpenError::Store(StoreError::Taken { .. })) => {
                Err(Error::Taken { name: body.name.clone().unwrap_or_default() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
