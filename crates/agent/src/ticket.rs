//! A session on its way to another process.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use stayput_core::{Generation, Key, Opened, Wish};
use stayput_upstream::{Attachment, SealKey};

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
    generation: u64,
    attachments: BTreeMap<String, Kept>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    generation: u64,
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

impl Session {
    /// Lets go of the session, so that another process can go on with it. Here it is over.
    ///
    /// # Errors
    /// If it was ended, or the store cannot be reached.
    pub async fn into_ticket(self) -> Result<Ticket, Error> {
        let hub = self.hub().inner.clone();
        let session = self.hold.enter().await?;
        let record = session.record();
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(Error::invalid)?;
        let key = SealKey::from_bytes(&secret).map_err(Error::invalid)?;
        let mut attachments = BTreeMap::new();
        for (server, kept) in &record.attachments {
            let Ok(open) = Attachment::open(kept, &hub.seal) else { continue };
            let sealed = open.seal(&key).map_err(Error::invalid)?;
            let kept = Kept { generation: sealed.generation.0, body: sealed.body };
            attachments.insert(server.clone(), kept);
        }
        let body = Body {
            v: 1,
            key: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
            name: record.key.as_ref().map(|key| key.as_str().to_owned()),
            generation: record.generation.0,
            attachments,
        };
        let ticket = serde_json::to_string(&body).map_err(Error::invalid)?;
        hub.home.at_home(hub.links.release(self.id())).await;
        let ended = session.session().clone();
        drop(session);
        hub.sessions.end(&ended).await?;
        Ok(Ticket(ticket))
    }
}

impl Hub {
    /// Goes on with a session of another process, or of another hub. If it had a name, it has it here, too.
    ///
    /// # Errors
    /// If the ticket cannot be read, or a session of this name is there already.
    pub async fn resume(&self, ticket: &Ticket) -> Result<Session, Error> {
        self.inner.check_open()?;
        let unreadable = || Error::Invalid("this is not what `into_ticket` gave".to_owned());
        let body: Body = serde_json::from_str(&ticket.0).map_err(|_| unreadable())?;
        let key = SealKey::from_hex(&body.key).map_err(|_| unreadable())?;
        let mut attachments = Vec::new();
        for (server, Kept { generation, body }) in body.attachments {
            let kept = stayput_core::Attachment::new(Generation(generation), body);
            let open = Attachment::open(&kept, &key).map_err(|_| unreadable())?;
            attachments.push((server, open.seal(&self.inner.seal).map_err(Error::invalid)?));
        }
        let owner = self.inner.owner.clone();
        let wish = match body.name.as_deref().and_then(|name| name.split_once(':')) {
            Some((source, name)) => Wish::keyed(owner, self.agent.clone(), Key::new(source, name)?),
            None => Wish::new(owner),
        };
        let taken = |_| Error::Taken { name: body.name.clone().unwrap_or_default() };
        let Opened { session, .. } = match self.inner.sessions.open_new(&wish).await {
            Err(stayput_core::OpenError::Store(error @ stayput_core::StoreError::Taken { .. })) => {
                return Err(taken(error));
            }
            opened => opened?,
        };
        let change = self.inner.sessions.change(session.session(), |record| {
            record.generation = record.generation.max(Generation(body.generation));
            record.told = record.generation;
            for (server, attachment) in &attachments {
                record.attach(server, attachment.clone());
            }
        });
        change.await?;
        Ok(Session::new(self, Hold::opened(self.inner.clone(), session.id())))
    }
}
