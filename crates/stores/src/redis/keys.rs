//! Layout of the keys.
//!
//! | key | holds |
//! |---|---|
//! | `P:{ID}:r` | the record of a session, a hash, with the seal and the counters of its state |
//! | `P:{ID}:h` | its handles, a list of hashes, oldest first |
//! | `P:{ID}:c` | its connections, a hash of bodies by name |
//! | `P:{ID}:u` | times of last use of the connections, a sorted set |
//! | `P:{ID}:s` | its state, a hash with two fields for each value: `r` + key has the revision, `v` + key the bytes |
//! | `P:{ID}:x` | the row of a removed session, until its index entries are deleted |
//! | `P:k:DIGEST` | `ID:FLOOR:TIME`, the current or last session with a key |
//! | `P:n:HASH` | `ID`, the session of a handle or a connection |
//! | `P:o:DIGEST`, `P:all` | live sessions of an owner and of all, sorted sets in the order of their ids |
//! | `P:due`, `P:ended` | live sessions by deadline, tombstones by their end, sorted sets |
//! | `P:{leases}:…` | expiry times, holders and the last epoch |
//! | `P:{DIGEST}:n`, `P:{DIGEST}:e` | last numbers and events of one owner's session |
//! | `P:schema` | the number of this layout |
//!
//! `P` is the prefix. The text in braces is the hash tag of a cluster: all keys of one session are
//! in one slot, so that one script can change them together. No other keys are assumed to share a
//! slot.

use stayput_core::{Digest, HandleHash, Owner, Record, SessionId};

#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    fn tagged(&self, tag: impl std::fmt::Display, part: &str) -> String {
        format!("{}:{{{tag}}}:{part}", self.prefix)
    }

    pub(super) fn row(&self, id: SessionId) -> String {
        self.tagged(id, "r")
    }

    pub(super) fn handles(&self, id: SessionId) -> String {
        self.tagged(id, "h")
    }

    pub(super) fn connections(&self, id: SessionId) -> String {
        self.tagged(id, "c")
    }

    pub(super) fn uses(&self, id: SessionId) -> String {
        self.tagged(id, "u")
    }

    pub(super) fn state(&self, id: SessionId) -> String {
        self.tagged(id, "s")
    }

    pub(super) fn removed_row(&self, id: SessionId) -> String {
        self.tagged(id, "x")
    }

    pub(super) fn key(&self, digest: Digest) -> String {
        format!("{}:k:{}", self.prefix, digest.to_hex())
    }

    /// Returns the index key of a record's key, if it has one.
    pub(super) fn key_of(&self, record: &Record) -> Option<String> {
        let key = record.key.as_ref()?;
        Some(self.key(key.digest(&record.owner, &record.agent)))
    }

    pub(super) fn name(&self, hash: HandleHash) -> String {
        format!("{}:n:{}", self.prefix, hash.to_hex())
    }

    pub(super) fn owner(&self, owner: &Owner) -> String {
        let digest = Digest::compute("owner", &[owner.as_str().as_bytes()]);
        format!("{}:o:{}", self.prefix, digest.to_hex())
    }

    pub(super) fn all(&self) -> String {
        format!("{}:all", self.prefix)
    }

    pub(super) fn due(&self) -> String {
        format!("{}:due", self.prefix)
    }

    pub(super) fn ended(&self) -> String {
        format!("{}:ended", self.prefix)
    }

    /// Returns the keys of the expiry times of leases, their holders, and the last epoch.
    pub(super) fn leases(&self) -> [String; 3] {
        ["ends", "holders", "epoch"].map(|part| self.tagged("leases", part))
    }

    /// Returns the keys of the last numbers of a session's topics, and of the events.
    pub(super) fn events(&self, owner: &Owner, session: SessionId) -> [String; 2] {
        let id = session.as_uuid();
        let digest =
            Digest::compute("events", &[owner.as_str().as_bytes(), id.as_bytes()]).to_hex();
        ["n", "e"].map(|part| self.tagged(&digest, part))
    }

    pub(super) fn schema(&self) -> String {
        format!("{}:schema", self.prefix)
    }
}
