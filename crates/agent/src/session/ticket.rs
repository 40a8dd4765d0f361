//! Tickets: sessions that move to another process.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use stayput_core::{
    Agent, Expiry, Generation, Key, OpenOptions, OpenedSession, Record, SessionOpenError,
    StoreError,
};
use stayput_upstream::{Attachment, SealKey, SharedStateId};

use crate::{Error, Hub, Session};

/// Data that another process needs to continue a session. It is a secret: it gives access to the session.
///
/// A session on an HTTP server continues without a request to the server. The state of a child process cannot move:
/// the next call reports its loss.
#[derive(Clone)]
pub struct Ticket(String);

/// Version of the format. A ticket of another version is refused.
const VERSION: u32 = 3;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TicketBody {
    v: u32,
    /// Key that seals the attachments, in hexadecimal.
    key: String,
    name: Option<String>,
    agent: String,
    expiry: Expiry,
    generation: u64,
    /// Whether a loss of the whole session was not reported yet.
    unacknowledged: bool,
    attachments: BTreeMap<String, AttachmentData>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttachmentData {
    generation: u64,
    acknowledged: u64,
    body: String,
}

impl Ticket {
    /// Returns the secret, for the process that continues the session.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Creates a ticket from the secret that [`Ticket::expose`] returned.
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

impl TicketBody {
    fn new(record: &Record, seal: &SealKey) -> Result<Self, Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(Error::invalid)?;
        let key = SealKey::from_bytes(&secret).map_err(Error::invalid)?;
        let mut attachments = BTreeMap::new();
        for (server, sealed) in &record.attachments {
            let body = match Attachment::open(sealed, seal) {
                Ok(open) => open.seal(&key).map_err(Error::invalid)?.body,
                // A shared link has another state in the other process, which reports the difference as a loss.
                Err(_) if SharedStateId::is_kept_as(&sealed.body) => sealed.body.clone(),
                Err(_) => continue,
            };
            let (generation, acknowledged) = (sealed.generation.0, sealed.acknowledged.0);
            attachments.insert(server.clone(), AttachmentData { generation, acknowledged, body });
        }
        Ok(Self {
            v: VERSION,
            key: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
            name: record.key.as_ref().map(|key| key.as_str().to_owned()),
            agent: record.agent.as_str().to_owned(),
            expiry: record.expiry,
            generation: record.generation.0,
            unacknowledged: record.unacknowledged_loss().is_some(),
            attachments,
        })
    }

    /// Returns the attachments by server, sealed with the key of this hub.
    fn attachments(
        &self,
        seal: &SealKey,
    ) -> Result<Vec<(String, stayput_core::Attachment)>, Error> {
        let key = SealKey::from_hex(&self.key).map_err(|_| unreadable())?;
        let mut attachments = Vec::new();
        for (server, AttachmentData { generation, acknowledged, body }) in &self.attachments {
            let mut sealed = stayput_core::Attachment::new(Generation(*generation), body.as_str());
            if !SharedStateId::is_kept_as(body) {
                let open = Attachment::open(&sealed, &key).map_err(|_| unreadable())?;
                sealed = open.seal(seal).map_err(Error::invalid)?;
            }
            sealed.acknowledged = Generation(*acknowledged);
            attachments.push((server.clone(), sealed));
        }
        Ok(attachments)
    }
}

fn unreadable() -> Error {
    Error::InvalidInput(
        "the ticket cannot be read: it must come from a session of the same version of Stayput"
            .to_owned(),
    )
}

impl Session {
    /// Returns a ticket, while the session goes on here: both processes then use the same sessions on HTTP servers. Take
    /// it again after a call to a server that was not used before.
    ///
    /// # Errors
    /// If the session was ended.
    pub async fn ticket(&self) -> Result<Ticket, Error> {
        let hub = self.hub().inner.clone();
        let taking = async {
            let session = self.guard.acquire().await?;
            let body = TicketBody::new(&session.record(), hub.engine.seal())?;
            Ok(Ticket(serde_json::to_string(&body).map_err(Error::invalid)?))
        };
        hub.thread.in_runtime(taking).await
    }

    /// Releases the session, so that another process can continue it. In this process it is ended.
    ///
    /// # Errors
    /// If it was ended, or the store cannot be reached.
    pub async fn into_ticket(self) -> Result<Ticket, Error> {
        let hub = self.hub().inner.clone();
        let leaving = async {
            let session = self.guard.acquire().await?;
            let body = TicketBody::new(&session.record(), hub.engine.seal())?;
            let ticket = serde_json::to_string(&body).map_err(Error::invalid)?;
            hub.links.release(self.id()).await;
            let ended = session.session().clone();
            drop(session);
            hub.sessions.end_and_remove(&ended).await?;
            hub.send_ended(&ended.record());
            Ok(Ticket(ticket))
        };
        hub.thread.in_runtime(leaving).await
    }
}

impl Hub {
    /// Continues a session of another process or hub, under the same name and for the same agent.
    ///
    /// # Errors
    /// If the ticket cannot be read, or there already is a session of this name.
    pub async fn resume(&self, ticket: &Ticket) -> Result<Session, Error> {
        self.inner.check_open()?;
        let body: TicketBody = serde_json::from_str(&ticket.0).map_err(|_| unreadable())?;
        if body.v != VERSION {
            return Err(unreadable());
        }
        let attachments = body.attachments(self.inner.engine.seal())?;
        let agent = match body.agent.as_str() {
            "" => Agent::none(),
            agent => Agent::named(agent)?,
        };
        let owner = self.inner.owner.clone();
        let options = match body.name.as_deref().and_then(|name| name.split_once(':')) {
            Some((source, name)) => {
                OpenOptions::with_key(owner, agent.clone(), Key::new(source, name)?)
            }
            None => OpenOptions::new(owner),
        };
        let sessions = &self.inner.sessions;
        let opening = async {
            let options = options.expiry(body.expiry);
            let OpenedSession { session, .. } = sessions.open_new(&options).await?;
            let change = sessions.change(session.session(), |record| {
                record.generation = record.generation.max(Generation(body.generation));
                if !body.unacknowledged {
                    record.acknowledged = record.generation;
                }
                for (server, attachment) in &attachments {
                    record.attachments.insert(server.clone(), attachment.clone());
                }
            });
            change.await.map(|()| session)
        };
        match self.inner.thread.in_runtime(opening).await {
            Ok(session) => {
                let hub = Self { inner: self.inner.clone(), agent };
                Ok(hub.open_session(session.id()))
            }
            Err(SessionOpenError::Store(StoreError::Taken { .. })) => {
                Err(Error::NameTaken { name: body.name.clone().unwrap_or_default() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
