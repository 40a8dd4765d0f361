//! What is kept of a session.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    Agent, Attachments, Expiry, Generation, Key, Lease, Owner, Revision, SessionId, Timestamp,
    text::{InvalidText, serde_as_text},
};

/// What a store keeps of a session: enough to come back to it from another process.
///
/// State, handles and connections are rows of their own beside it, so a change here never rewrites
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The name of the session in logs and tools.
    pub id: SessionId,
    /// Whose it is. It never changes.
    pub owner: Owner,
    /// The namespace its key is in.
    #[serde(default)]
    pub agent: Agent,
    /// Its name, if it has one. While the session lives no other one of this owner and agent has it.
    #[serde(default)]
    pub key: Option<Key>,
    /// When it was opened.
    pub created: Timestamp,
    /// When the last call ended, as far as it was written back.
    pub last_used: Timestamp,
    /// When it ends by itself.
    pub expiry: Expiry,
    /// The highest generation any of its links has reached; a new link begins here.
    #[serde(default)]
    pub generation: Generation,
    /// Minted without being asked for, and its handle has not come back yet.
    #[serde(default)]
    pub provisional: bool,
    /// What is needed to come back to each server, by the server's name.
    #[serde(default)]
    pub attachments: Attachments,
    /// The generation up to which its client has been told of losses of the whole session. While it is
    /// below [`Record::generation`], every answer has to tell. What only one server lost is noted in its
    /// [`Attachment`].
    #[serde(default)]
    pub told: Generation,
    /// When it is to end once it is provisional no longer. Boxed, because few sessions have it.
    #[serde(default)]
    pub wanted: Option<Box<Expiry>>,
    /// Counts how often it was revived: whoever had to do with an earlier life has nothing to do with
    /// this one.
    #[serde(default)]
    pub life: u32,
    /// Whether a handle ever led to it: then somebody beside the connection it was made with may count
    /// on it.
    #[serde(default)]
    pub named: bool,
    /// Set when it is over. The record stays for a while as a tombstone.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// The lease under which a process holds it, if one does. Set by the store's `claim` and `release`.
    #[serde(default)]
    pub holder: Option<Lease>,
    /// Counts the changes of this record. Set by the store.
    #[serde(default)]
    pub revision: Revision,
}

impl Record {
    /// The record of a session that is opened at `now`.
    #[must_use]
    pub fn new(owner: Owner, expiry: Expiry, now: Timestamp) -> Self {
        Self {
            id: SessionId::generate(now),
            owner,
            agent: Agent::none(),
            key: None,
            created: now,
            last_used: now,
            expiry,
            generation: Generation::default(),
            provisional: false,
            attachments: Attachments::new(),
            told: Generation::default(),
            wanted: None,
            life: 0,
            named: false,
            ended: None,
            holder: None,
            revision: Revision::default(),
        }
    }

    /// The same record under a key.
    #[must_use]
    pub fn keyed(mut self, agent: Agent, key: Key) -> Self {
        self.agent = agent;
        self.key = Some(key);
        self
    }

    /// Whether the session is not over.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// The moment at which it ends if it is not used again.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expiry.deadline(self.created, self.last_used)
    }

    /// Remembers how to come back to `server`. A generation that its client was not told of is a loss
    /// on this server, and on no other one.
    pub fn attach(&mut self, server: &str, mut attachment: Attachment) {
        let before = self.attachments.get(server).map(|before| before.told);
        let began = attachment.generation.min(self.generation);
        attachment.told = before.unwrap_or(began).max(attachment.told);
        self.raise(attachment.generation);
        self.attachments.insert(server.to_owned(), attachment);
    }

    /// Notes that its client was told of the loss on `server` up to `generation`, and with it of
    /// whatever befell the whole session before.
    pub fn tell(&mut self, server: &str, generation: Generation) {
        self.raise(generation);
        self.told = self.told.max(generation);
        if let Some(attachment) = self.attachments.get_mut(server) {
            attachment.told = attachment.told.max(generation);
        }
    }

    /// A link reached this generation: that is no loss of the whole session.
    fn raise(&mut self, generation: Generation) {
        let pending = self.lost().is_some();
        self.generation = self.generation.max(generation);
        if !pending {
            self.told = self.told.max(self.generation);
        }
    }

    /// The loss of the whole session that its client was not told of yet.
    #[must_use]
    pub fn lost(&self) -> Option<Generation> {
        (self.generation > self.told).then_some(self.generation)
    }

    /// The loss that a call on `server` has to tell of, before anything else is done there.
    #[must_use]
    pub fn lost_on(&self, server: &str) -> Option<Generation> {
        let own = self.attachments.get(server).and_then(Attachment::lost);
        self.lost().max(own)
    }

    /// Whether its client was told of the loss on `server` up to `generation`.
    #[must_use]
    pub fn has_told(&self, server: &str, generation: Generation) -> bool {
        self.attachments.get(server).is_some_and(|attachment| attachment.told >= generation)
    }

    /// The latest loss that its client was not told of yet, wherever it was.
    pub(crate) fn untold(&self) -> Option<Generation> {
        let attachments = self.attachments.values().filter_map(Attachment::lost);
        attachments.max().max(self.lost())
    }

    /// Turns it into a tombstone. What led to the servers is forgotten; the generation stays, so
    /// that whoever takes over the key can tell that something was lost.
    pub fn end(&mut self, reason: EndReason, now: Timestamp) {
        self.ended = Some(Ended { at: now, reason });
        self.attachments.clear();
        self.holder = None;
    }

    /// Makes a tombstone live again, on a generation of its own: nothing of the old state is left.
    pub fn revive(&mut self, now: Timestamp) {
        self.ended = None;
        self.last_used = now;
        // A life that ended of age begins anew; else the next sweep would end it again at once.
        self.created = now;
        self.generation = self.generation.next();
        self.life = self.life.saturating_add(1);
    }

    /// What no store has to understand, as one line of JSON: attachments, what was told and wanted, the life,
    /// whether it was named.
    /// A store keeps it as it is, so a new field there is no new schema.
    #[must_use]
    pub fn detail(&self) -> String {
        let Self { attachments, told, wanted, life, named, .. } = self.clone();
        // Maps with text keys, and numbers: there is always JSON for it.
        serde_json::to_string(&Detail { attachments, told, wanted, life, named })
            .unwrap_or_default()
    }

    /// Takes over what [`Record::detail`] wrote.
    ///
    /// # Errors
    /// [`InvalidText`] if it is not such a line. What it was is not told: it may hold a secret.
    pub fn set_detail(&mut self, line: &str) -> Result<(), InvalidText> {
        let form = |_| InvalidText::form("the detail of a record", "JSON as it was written");
        let Detail { attachments, told, wanted, life, named } =
            serde_json::from_str(line).map_err(form)?;
        (self.attachments, self.told, self.wanted) = (attachments, told, wanted);
        (self.life, self.named) = (life, named);
        Ok(())
    }

    /// The record as one line of JSON.
    #[must_use]
    pub fn encode(&self) -> String {
        // A record has no map with keys other than text and no value that JSON cannot say.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`Record::encode`] wrote.
    ///
    /// # Errors
    /// If it is not such a line.
    pub fn decode(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }
}

/// See [`Record::detail`].
#[derive(Serialize, Deserialize)]
struct Detail {
    #[serde(default, skip_serializing_if = "Attachments::is_empty")]
    attachments: Attachments,
    #[serde(default)]
    told: Generation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted: Option<Box<Expiry>>,
    #[serde(default)]
    life: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    named: bool,
}

/// What is needed to come back to one server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The generation of the link.
    pub generation: Generation,
    /// Text that only the maker of the link reads. Whatever is secret in it is sealed by its maker.
    #[serde(default)]
    pub body: String,
    /// The generation up to which the client has been told of losses on this server.
    #[serde(default)]
    pub told: Generation,
}

impl Attachment {
    /// What leads back to a link of this generation.
    #[must_use]
    pub fn new(generation: Generation, body: impl Into<String>) -> Self {
        Self { generation, body: body.into(), told: Generation::default() }
    }

    /// The loss on this server that its client was not told of yet.
    fn lost(&self) -> Option<Generation> {
        (self.generation > self.told).then_some(self.generation)
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment(generation {}, {} bytes)", self.generation, self.body.len())
    }
}

/// When and why a session was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: EndReason,
}

/// Why a session was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// Its owner ended it.
    Closed,
    /// Nobody used it for its idle time.
    Idle,
    /// It reached its full age.
    Age,
    /// It made room for another one at a limit.
    Evicted,
}

impl EndReason {
    const ALL: [Self; 4] = [Self::Closed, Self::Idle, Self::Age, Self::Evicted];

    /// The one word for it, in stores and in tools.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Age => "age",
            Self::Evicted => "evicted",
        }
    }
}

impl FromStr for EndReason {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or_else(|| {
            InvalidText::form("the end of a session", "closed, idle, age or evicted")
        })
    }
}

serde_as_text!(EndReason, as_str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let owner = Owner::verified("https://i", "ann").unwrap();
        let mut record = Record::new(owner, Expiry::default(), now)
            .keyed(Agent::named("a").unwrap(), Key::named("k").unwrap());
        record.attach("browser", Attachment::new(Generation(3), "{}"));
        assert_eq!(record.generation, Generation(3));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        (record.told, record.wanted) = (Generation(2), Some(Expiry::NEVER.into()));
        record.named = true;
        let blank = Record { attachments: Attachments::new(), wanted: None, ..record.clone() };
        let mut other = Record { named: false, ..blank };
        other.set_detail(&record.detail()).unwrap();
        assert_eq!(other, record);
        assert!(
            other
                .set_detail("{\"told\":\"secret\"}")
                .is_err_and(|e| !e.to_string().contains("secret"))
        );
        record.end(EndReason::Idle, now.after(std::time::Duration::from_secs(1)));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        assert!(record.attachments.is_empty() && record.generation == Generation(3));
    }

    /// Invariant 3: what one server lost is told on that server, once, and on no other one.
    #[test]
    fn a_loss_belongs_to_its_server() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut record = Record::new(Owner::local(), Expiry::NEVER, now);
        let at = |generation| Attachment::new(Generation(generation), "");
        record.attach("a", at(0));
        record.attach("b", at(0));
        assert_eq!((record.lost_on("a"), record.untold()), (None, None));
        record.attach("a", at(1));
        assert_eq!((record.lost_on("a"), record.lost_on("b")), (Some(Generation(1)), None));
        assert_eq!((record.lost_on("c"), record.untold()), (None, Some(Generation(1))));
        // A first link begins where the session is: nothing of it was lost.
        record.attach("c", at(1));
        assert_eq!(record.lost_on("c"), None);
        record.tell("a", Generation(1));
        assert_eq!((record.lost_on("a"), record.untold()), (None, None));
        // Told before the next link was opened.
        record.tell("b", Generation(2));
        record.attach("b", at(2));
        assert_eq!((record.lost_on("b"), record.untold()), (None, None));
        // The whole session: everywhere, until told anywhere.
        record.revive(now);
        assert_eq!(record.lost_on("a"), Some(Generation(3)));
        record.attach("a", at(3));
        assert_eq!(record.lost_on("z"), Some(Generation(3)));
        record.tell("a", Generation(3));
        assert_eq!((record.lost_on("a"), record.lost_on("z"), record.untold()), (None, None, None));
    }

    #[test]
    fn a_record_from_a_stranger_is_checked() {
        let line = Record::new(Owner::local(), Expiry::NEVER, Timestamp::from_millis(1)).encode();
        assert!(Record::decode(&line.replace("\"local\"", "\"root\"")).is_err());
        assert!(Record::decode(&line.replace("\"owner\"", "\"ovner\"")).is_err());
        assert!(Record::decode(&line[..line.len() - 1]).is_err());
    }
}
