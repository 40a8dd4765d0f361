//! Stored record of a session.

mod attachments;
mod end;
mod expiry;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Agent, Generation, Key, Lease, Owner, Revision, SessionId, Timestamp,
    identity::text::InvalidText,
};

pub use attachments::{Attachment, Attachments};
pub use end::{EndReason, SessionEnd};
pub use expiry::Expiry;

/// Expiry of a session whose end has begun.
const ENDING: Expiry = Expiry::idle(Duration::ZERO);

/// Record of a session in a store: enough to resume the session from another process.
///
/// State, handles and connections are separate rows, so that a change of the record never rewrites
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Id of the session in logs and tools.
    pub id: SessionId,
    /// Owner. It never changes.
    pub owner: Owner,
    /// Namespace of the key.
    #[serde(default)]
    pub agent: Agent,
    /// Key, if the session has one. No other live session of this owner and agent has the same key.
    #[serde(default)]
    pub key: Option<Key>,
    /// Time of creation.
    pub created: Timestamp,
    /// Time at which the last call ended, as far as it was written back.
    pub last_used: Timestamp,
    /// Rule by which the session ends.
    pub expiry: Expiry,
    /// Highest generation that any of its links has reached. A new link begins with it.
    #[serde(default)]
    pub generation: Generation,
    /// Created without a request for a session, and its handle was not used yet.
    #[serde(default)]
    pub provisional: bool,
    /// Data to reconnect to each server, by the server's name.
    #[serde(default)]
    pub attachments: Attachments,
    /// Generation up to which the client has acknowledged losses of the whole session. While it is
    /// below [`Record::generation`], every answer reports the loss. A loss on one server only is
    /// stored in its [`Attachment`].
    #[serde(default)]
    pub acknowledged: Generation,
    /// Expiry that applies once the session is no longer provisional. Boxed, because few sessions
    /// have it.
    #[serde(default)]
    pub confirmed_expiry: Option<Box<Expiry>>,
    /// Number of revivals. A reference to an earlier incarnation is not valid for this one.
    #[serde(default)]
    pub incarnation: u32,
    /// Whether the session was ever found by a handle. Then clients other than the connection that
    /// created it may rely on it.
    #[serde(default)]
    pub handle_used: bool,
    /// Time and reason of the end. The record of an ended session is kept for a while as a
    /// tombstone.
    #[serde(default)]
    pub ended: Option<SessionEnd>,
    /// Lease of the process that holds the session. Set by `claim` and `release_claim` of the
    /// store.
    #[serde(default)]
    pub holder: Option<Lease>,
    /// Number of changes of this record. Set by the store.
    #[serde(default)]
    pub revision: Revision,
}

impl Record {
    /// Builds the record of a session that is created at `now`.
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
            acknowledged: Generation::default(),
            confirmed_expiry: None,
            incarnation: 0,
            handle_used: false,
            ended: None,
            holder: None,
            revision: Revision::default(),
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, agent: Agent, key: Key) -> Self {
        self.agent = agent;
        self.key = Some(key);
        self
    }

    /// Returns the next revision of this record in a store, when the holder of `by` writes `new`.
    #[must_use]
    pub fn replaced_by(&self, new: Self, by: Option<Lease>) -> Self {
        Self {
            owner: self.owner.clone(),
            agent: self.agent.clone(),
            key: self.key.clone(),
            // An end releases the claim, a revival sets it, and no other change touches it.
            holder: match (self.is_live(), new.is_live()) {
                (true, true) => self.holder,
                (false, true) => by,
                (_, false) => None,
            },
            last_used: self.last_used.max(new.last_used),
            revision: self.revision.next(),
            ..new
        }
    }

    /// Returns whether the session has not ended.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// Returns the time at which the session ends unless it is used again.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expiry.deadline(self.created, self.last_used)
    }

    /// Stores the attachment of `server`. If its generation is above the acknowledged one, this is
    /// a loss on this server and on no other one.
    pub fn attach(&mut self, server: &str, mut attachment: Attachment) {
        let before = self.attachments.get(server).map(|before| before.acknowledged);
        let began = attachment.generation.min(self.generation);
        attachment.acknowledged = before.unwrap_or(began).max(attachment.acknowledged);
        self.raise_generation(attachment.generation);
        self.attachments.insert(server.to_owned(), attachment);
    }

    /// Records that the client acknowledged the loss on `server` up to `generation`, and with it
    /// all earlier losses of the whole session.
    pub fn acknowledge_loss(&mut self, server: &str, generation: Generation) {
        self.raise_generation(generation);
        self.acknowledged = self.acknowledged.max(generation);
        if let Some(attachment) = self.attachments.get_mut(server) {
            attachment.acknowledged = attachment.acknowledged.max(generation);
        }
    }

    /// Raises the generation to that of a link. This alone is not a loss of the whole session.
    fn raise_generation(&mut self, generation: Generation) {
        let pending = self.unacknowledged_loss().is_some();
        self.generation = self.generation.max(generation);
        if !pending {
            self.acknowledged = self.acknowledged.max(self.generation);
        }
    }

    /// Returns the loss of the whole session that the client has not acknowledged.
    #[must_use]
    pub fn unacknowledged_loss(&self) -> Option<Generation> {
        (self.generation > self.acknowledged).then_some(self.generation)
    }

    /// Returns the loss that a call on `server` must report before it does anything else.
    #[must_use]
    pub fn unacknowledged_loss_on(&self, server: &str) -> Option<Generation> {
        let own = self.attachments.get(server).and_then(Attachment::unacknowledged_loss);
        self.unacknowledged_loss().max(own)
    }

    /// Returns whether the client acknowledged the loss on `server` up to `generation`.
    #[must_use]
    pub fn is_loss_acknowledged(&self, server: &str, generation: Generation) -> bool {
        self.attachments.get(server).is_some_and(|attachment| attachment.acknowledged >= generation)
    }

    /// Returns the latest loss that the client has not acknowledged, on any server.
    pub(crate) fn latest_unacknowledged_loss(&self) -> Option<Generation> {
        let attachments = self.attachments.values().filter_map(Attachment::unacknowledged_loss);
        attachments.max().max(self.unacknowledged_loss())
    }

    /// Makes the record due at once, so that the next sweep of any process ends the session. The
    /// expiry is kept for a revival.
    pub fn begin_end(&mut self) {
        let expiry = std::mem::replace(&mut self.expiry, ENDING);
        if expiry != ENDING {
            self.confirmed_expiry.get_or_insert(expiry.into());
        }
    }

    /// Turns the record into a tombstone. Attachments are dropped. The generation stays, so that
    /// the next session with this key reports a loss. A session whose end had begun counts as
    /// closed, also if another process completes the end.
    pub fn end(&mut self, mut reason: EndReason, now: Timestamp) {
        if self.expiry == ENDING
            && let Some(expiry) = self.confirmed_expiry.take()
        {
            self.expiry = *expiry;
            reason = EndReason::Closed;
        }
        self.ended = Some(SessionEnd { at: now, reason });
        self.attachments.clear();
        self.holder = None;
    }

    /// Turns a tombstone into a live record with the next generation: nothing of the old state is
    /// left.
    pub fn revive(&mut self, now: Timestamp) {
        self.ended = None;
        self.last_used = now;
        // The age restarts: otherwise the next sweep would end a session that had ended of age.
        self.created = now;
        self.generation = self.generation.next();
        self.incarnation = self.incarnation.saturating_add(1);
    }

    /// Marks all state of the session as lost, on every server. Attachments stay without their
    /// data: the next call of each server reports the loss, and none of them is resumed.
    pub fn lose_state(&mut self) {
        self.generation = self.generation.next();
        let servers: Vec<String> = self.attachments.keys().cloned().collect();
        for server in servers {
            if let Some(attachment) = self.attachments.get_mut(&server) {
                attachment.generation = self.generation;
                attachment.body.clear();
            }
        }
    }

    /// Encodes the fields that no store has to understand as one line of JSON: attachments,
    /// acknowledged losses, expiry after confirmation, incarnation, use of a handle.
    ///
    /// A store keeps the line as it is, so that a new field needs no new schema.
    #[must_use]
    pub fn detail(&self) -> String {
        let Self { attachments, acknowledged, confirmed_expiry, incarnation, handle_used, .. } =
            self.clone();
        // Maps with string keys and numbers can always be encoded.
        serde_json::to_string(&Detail {
            attachments,
            acknowledged,
            confirmed_expiry,
            incarnation,
            handle_used,
        })
        .unwrap_or_default()
    }

    /// Reads the fields from a line that [`Record::detail`] wrote.
    ///
    /// # Errors
    /// [`InvalidText`] if the line has another form. The error does not repeat it, because it may
    /// hold a secret.
    pub fn set_detail(&mut self, line: &str) -> Result<(), InvalidText> {
        let form = |_| InvalidText::form("the detail of a record", "JSON as it was written");
        let Detail { attachments, acknowledged, confirmed_expiry, incarnation, handle_used } =
            serde_json::from_str(line).map_err(form)?;
        (self.attachments, self.acknowledged, self.confirmed_expiry) =
            (attachments, acknowledged, confirmed_expiry);
        (self.incarnation, self.handle_used) = (incarnation, handle_used);
        Ok(())
    }

    /// Encodes the record as one line of JSON.
    #[must_use]
    pub fn encode(&self) -> String {
        // All map keys are strings and all values have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Decodes a line that [`Record::encode`] wrote.
    ///
    /// # Errors
    /// If the line has another form.
    pub fn decode(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }
}

/// Fields of [`Record::detail`].
#[derive(Serialize, Deserialize)]
struct Detail {
    #[serde(default, skip_serializing_if = "Attachments::is_empty")]
    attachments: Attachments,
    #[serde(default)]
    acknowledged: Generation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed_expiry: Option<Box<Expiry>>,
    #[serde(default)]
    incarnation: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    handle_used: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_as_written() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let owner = Owner::verified("https://i", "ann").unwrap();
        let mut record = Record::new(owner, Expiry::default(), now)
            .with_key(Agent::named("a").unwrap(), Key::named("k").unwrap());
        record.attach("browser", Attachment::new(Generation(3), "{}"));
        assert_eq!(record.generation, Generation(3));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        (record.acknowledged, record.confirmed_expiry) =
            (Generation(2), Some(Expiry::NEVER.into()));
        record.handle_used = true;
        let blank =
            Record { attachments: Attachments::new(), confirmed_expiry: None, ..record.clone() };
        let mut other = Record { handle_used: false, ..blank };
        other.set_detail(&record.detail()).unwrap();
        assert_eq!(other, record);
        assert!(
            other
                .set_detail("{\"acknowledged\":\"secret\"}")
                .is_err_and(|e| !e.to_string().contains("secret"))
        );
        record.end(EndReason::Idle, now.after(Duration::from_secs(1)));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        assert!(record.attachments.is_empty() && record.generation == Generation(3));
    }

    /// The process that began an end may die: the record is due then, and keeps its expiry for a revival.
    #[test]
    fn begun_end_is_due_and_keeps_the_expiry() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let expiry = Expiry::idle(Duration::from_secs(60));
        let mut record = Record::new(Owner::local(), expiry, now);
        record.attach("notes", Attachment::new(Generation(0), "{}"));
        record.begin_end();
        record.begin_end();
        assert_eq!((record.deadline(), record.is_live()), (Some(now), true));
        assert!(!record.attachments.is_empty());
        record.end(EndReason::Idle, now);
        assert_eq!((record.expiry, record.confirmed_expiry), (expiry, None));
    }

    /// Invariant 3: the loss of one server is reported once, on that server, and on no other one.
    #[test]
    fn loss_is_reported_on_its_server_only() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut record = Record::new(Owner::local(), Expiry::NEVER, now);
        let at = |generation| Attachment::new(Generation(generation), "");
        record.attach("a", at(0));
        record.attach("b", at(0));
        assert_eq!(
            (record.unacknowledged_loss_on("a"), record.latest_unacknowledged_loss()),
            (None, None)
        );
        record.attach("a", at(1));
        assert_eq!(
            (record.unacknowledged_loss_on("a"), record.unacknowledged_loss_on("b")),
            (Some(Generation(1)), None)
        );
        assert_eq!(
            (record.unacknowledged_loss_on("c"), record.latest_unacknowledged_loss()),
            (None, Some(Generation(1)))
        );
        // The first link of a server begins with the session's generation: nothing was lost there.
        record.attach("c", at(1));
        assert_eq!(record.unacknowledged_loss_on("c"), None);
        record.acknowledge_loss("a", Generation(1));
        assert_eq!(
            (record.unacknowledged_loss_on("a"), record.latest_unacknowledged_loss()),
            (None, None)
        );
        // Acknowledged before the next link was opened.
        record.acknowledge_loss("b", Generation(2));
        record.attach("b", at(2));
        assert_eq!(
            (record.unacknowledged_loss_on("b"), record.latest_unacknowledged_loss()),
            (None, None)
        );
        // A loss of the whole session is reported on every server, until it is acknowledged on one.
        record.revive(now);
        assert_eq!(record.unacknowledged_loss_on("a"), Some(Generation(3)));
        record.attach("a", at(3));
        assert_eq!(record.unacknowledged_loss_on("z"), Some(Generation(3)));
        record.acknowledge_loss("a", Generation(3));
        assert_eq!(
            (
                record.unacknowledged_loss_on("a"),
                record.unacknowledged_loss_on("z"),
                record.latest_unacknowledged_loss()
            ),
            (None, None, None)
        );
    }

    /// A loss of all state is reported by each server, also by one without an attachment.
    #[test]
    fn lost_state_is_reported_on_every_server() {
        let mut record = Record::new(Owner::local(), Expiry::NEVER, Timestamp::from_millis(1));
        record.attach("a", Attachment::new(Generation(0), "resume"));
        record.attach("b", Attachment::new(Generation(0), "resume"));
        record.lose_state();
        assert!(record.attachments.values().all(|it| it.body.is_empty()));
        for server in ["a", "b", "c"] {
            assert_eq!(record.unacknowledged_loss_on(server), Some(Generation(1)), "{server}");
        }
        record.acknowledge_loss("a", Generation(1));
        assert_eq!(record.unacknowledged_loss_on("a"), None);
        assert_eq!(record.unacknowledged_loss_on("b"), Some(Generation(1)));
    }

    #[test]
    fn malformed_record_is_refused() {
        let line = Record::new(Owner::local(), Expiry::NEVER, Timestamp::from_millis(1)).encode();
        assert!(Record::decode(&line.replace("\"local\"", "\"root\"")).is_err());
        assert!(Record::decode(&line.replace("\"owner\"", "\"ovner\"")).is_err());
        assert!(Record::decode(&line[..line.len() - 1]).is_err());
    }
}
