//! Ids of the questions that servers ask a client.

use stayput_core::{HandleHash, HolderId};
use stayput_upstream::SealKey;
use stayput_wire::{Id, json};

/// Ids under which clients see the requests of servers.
///
/// Each gateway numbers them. In a cluster, the id also carries the replica that asked, sealed for the connection, so that
/// an answer that arrives at another replica is sent to that one.
#[derive(Debug, Default)]
pub(crate) struct QuestionIds(Option<(SealKey, HolderId)>);

/// Question that an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionId {
    /// Number of a question that was asked here.
    Own(u64),
    /// Question that this replica has asked.
    Of(HolderId),
}

impl QuestionIds {
    /// Ids of a replica. All replicas have the same key.
    pub(crate) fn of_replica(key: SealKey, own: HolderId) -> Self {
        Self(Some((key, own)))
    }

    /// Returns the id of a question as JSON; `None` if sealing fails on this machine.
    pub(crate) fn write(&self, connection: &HandleHash, number: u64) -> Option<String> {
        let Some((key, own)) = &self.0 else { return Some(number.to_string()) };
        let sealed = key.seal(&context(connection), format!("{own} {number}").as_bytes()).ok()?;
        Some(json::quote(&sealed))
    }

    /// Returns the question that a client of this connection has answered. `None` for an id that no replica has given it.
    pub(crate) fn read(&self, connection: &HandleHash, id: Id<'_>) -> Option<QuestionId> {
        let Some((key, own)) = &self.0 else { return id.number().map(QuestionId::Own) };
        let sealed = json::unquote(id.as_str())?;
        let plain = String::from_utf8(key.open(&context(connection), &sealed).ok()?).ok()?;
        let (replica, number) = plain.split_once(' ')?;
        match replica.parse().ok()? {
            replica if replica == *own => number.parse().ok().map(QuestionId::Own),
            replica => Some(QuestionId::Of(replica)),
        }
    }
}

fn context(connection: &HandleHash) -> String {
    format!("question {}", connection.to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stayput_core::{Handle, Owner};
    use stayput_wire::Message;

    fn read(ids: &QuestionIds, connection: &HandleHash, id: &str) -> Option<QuestionId> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        ids.read(connection, Message::parse(text.as_bytes()).unwrap().id()?)
    }

    #[test]
    fn id_leads_to_the_replica_that_asked_on_the_same_connection_only() {
        let key = SealKey::generate().unwrap();
        let (one, two) = (HolderId::generate(), HolderId::generate());
        let asks = QuestionIds::of_replica(key.clone(), one);
        let other = QuestionIds::of_replica(key, two);
        let hash = || Handle::generate().hash(&Owner::local());
        let (own, foreign) = (hash(), hash());
        let id = asks.write(&own, 7).unwrap();
        assert_eq!(read(&asks, &own, &id), Some(QuestionId::Own(7)));
        assert_eq!(read(&other, &own, &id), Some(QuestionId::Of(one)));
        assert_eq!(read(&other, &foreign, &id), None);
        assert_eq!(read(&asks, &own, "7"), None);
        let last = if id.ends_with("A\"") { "B\"" } else { "A\"" };
        let altered = format!("{}{last}", &id[..id.len() - 2]);
        assert_eq!(read(&asks, &own, &altered), None);
        let strangers = QuestionIds::of_replica(SealKey::generate().unwrap(), one);
        assert_eq!(read(&strangers, &own, &id), None);
    }

    #[test]
    fn gateway_without_a_cluster_counts() {
        let (ids, hash) = (QuestionIds::default(), Handle::generate().hash(&Owner::local()));
        assert_eq!(ids.write(&hash, 7).as_deref(), Some("7"));
        assert_eq!(read(&ids, &hash, "7"), Some(QuestionId::Own(7)));
        assert_eq!(read(&ids, &hash, "\"7\""), None);
    }
}
