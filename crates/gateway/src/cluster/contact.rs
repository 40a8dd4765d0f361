//! Contact between replicas: whether they reach each other, and whether their clocks agree.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use stayput_core::{Clock as _, Holder, HolderId, SystemClock};
use stayput_sync::Mutex;
use tokio::time::Instant;

use super::{Cluster, ForwardOutcome, ForwardedRequest, registry::internal_owner};
use crate::{
    auth::{Claims, Principal},
    reply::Reply,
};

/// Start of the path at which a replica asks another one for its time. Its own id follows.
pub(crate) const HELLO: &str = "/cluster/hello/";

/// Interval at which each replica is asked.
const INTERVAL: Duration = Duration::from_secs(10);

/// Longest time for an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Difference of two clocks that is too much, in milliseconds.
const MAX_CLOCK_DIFFERENCE: i64 = 1_000;

/// Answer of a replica.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContactReply {
    /// Its time, in milliseconds since 1970.
    time: u64,
    /// Reason why it does not reach the replica that asks.
    #[serde(default)]
    unreached: Option<String>,
}

/// Knowledge about the contact with another replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Contact {
    /// Reason why this replica does not reach the other one.
    pub(crate) unreached: Option<String>,
    /// Reason why the other one does not reach this one.
    pub(crate) unreached_by: Option<String>,
    /// Milliseconds by which the clock of the other one is ahead, as far as the duration of the request does not explain
    /// the difference.
    pub(crate) clock_ahead_ms: i64,
}

/// Contacts of this replica, each with the time at which the other one was asked.
#[derive(Default)]
pub(super) struct Contacts(Mutex<HashMap<HolderId, (Contact, Instant)>>);

impl Contacts {
    fn get(&self, id: HolderId) -> Option<Contact> {
        let all = self.0.lock();
        all.get(&id).map(|(contact, _)| contact.clone())
    }

    /// Whether a replica is due to be asked.
    fn is_due(&self, id: HolderId) -> bool {
        let all = self.0.lock();
        all.get(&id).is_none_or(|(_, at)| at.elapsed() > INTERVAL)
    }

    /// Sets a contact, and returns the one before.
    fn set(&self, id: HolderId, contact: Contact) -> Contact {
        let mut all = self.0.lock();
        all.insert(id, (contact, Instant::now())).map(|(before, _)| before).unwrap_or_default()
    }

    /// Removes the contacts with other replicas than these.
    pub(super) fn retain(&self, live: &[HolderId]) {
        let mut all = self.0.lock();
        all.retain(|id, _| live.contains(id));
    }
}

impl Cluster {
    /// Returns the live replicas besides this one, with what is known of the contact with them.
    pub(crate) fn contacts(&self) -> Vec<(Holder, Contact)> {
        let all = self.live_peers().into_iter();
        all.map(|peer| (self.contacts.get(peer.id).unwrap_or_default(), peer))
            .map(|(contact, peer)| (peer, contact))
            .collect()
    }

    /// Asks the replicas that are due, and logs what an operator has to mend.
    pub(crate) async fn greet_replicas(self: &Arc<Self>) {
        let due = self.live_peers().into_iter().filter(|peer| self.contacts.is_due(peer.id));
        join_all(due.map(|peer| async move {
            let contact = self.greet(&peer).await;
            let before = self.contacts.set(peer.id, contact.clone());
            self.log_change(&peer.address, &before, &contact);
        }))
        .await;
    }

    /// Answers a replica that asks for the time.
    pub(crate) fn hello(&self, from: &str) -> ContactReply {
        let contact = from.parse().ok().and_then(|id| self.contacts.get(id));
        let unreached = contact.and_then(|it| it.unreached);
        ContactReply { time: SystemClock.now().as_millis(), unreached }
    }

    async fn greet(self: &Arc<Self>, peer: &Holder) -> Contact {
        let Some(owner) = internal_owner("replica") else { return Contact::default() };
        let principal = Principal::forwarded(owner, Claims::default(), false);
        let request = ForwardedRequest {
            method: &Method::GET,
            path: &format!("{HELLO}{}", self.own().id),
            headers: &HeaderMap::new(),
            body: Bytes::new(),
            principal: &principal,
        };
        let sent = SystemClock.now().as_millis();
        let asked = tokio::time::timeout(TIMEOUT, self.forward(peer, request)).await;
        let received = SystemClock.now().as_millis();
        let unreached = match asked {
            Ok(ForwardOutcome::Answered(answer)) => match answer.body() {
                Reply::Whole(text, _) => match serde_json::from_slice::<ContactReply>(text) {
                    Ok(ContactReply { time, unreached }) => {
                        let clock_ahead_ms = clock_difference(time, (sent, received));
                        return Contact {
                            unreached: None,
                            unreached_by: unreached,
                            clock_ahead_ms,
                        };
                    }
                    Err(_) => format!("it answered with HTTP status {}", answer.status()),
                },
                _ => "it answered with a stream".to_owned(),
            },
            // It stops, or was started anew under this address.
            Ok(ForwardOutcome::NotHeld) => return Contact::default(),
            Ok(ForwardOutcome::NotSent(reason) | ForwardOutcome::Unknown(reason)) => reason,
            Ok(ForwardOutcome::Rejected(text)) => {
                format!("it refuses requests of this gateway: {text}")
            }
            Err(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        };
        Contact { unreached: Some(unreached), ..Contact::default() }
    }

    /// Logs what has become wrong with a contact, or right again.
    fn log_change(&self, address: &str, before: &Contact, now: &Contact) {
        match (&before.unreached, &now.unreached) {
            (None, Some(reason)) => tracing::warn!(
                "the gateway at {address} cannot be reached from here ({reason}), so requests for its sessions fail: \
                 `cluster.advertise` of that gateway must be a URL to which this machine can connect"
            ),
            (Some(_), None) => tracing::info!("the gateway at {address} can be reached again"),
            _ => {}
        }
        if let (None, Some(reason)) = (&before.unreached_by, &now.unreached_by) {
            tracing::warn!(
                "the gateway at {address} cannot reach this one under {} ({reason}): `cluster.advertise` must be a URL to \
                 which the other gateways can connect",
                self.own().address
            );
        }
        let is_far = |contact: &Contact| contact.clock_ahead_ms.abs() > MAX_CLOCK_DIFFERENCE;
        if is_far(now) && !is_far(before) {
            tracing::warn!(
                "the clock of the gateway at {address} differs from the one of this gateway by {} ms: set both by NTP; \
                 requests between them are refused when the difference is 30 s",
                now.clock_ahead_ms
            );
        }
    }
}

/// Returns the milliseconds by which another clock is ahead, if it showed `time` between the sending of a request and the
/// arrival of its answer.
fn clock_difference(time: u64, (sent, received): (u64, u64)) -> i64 {
    let signed = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
    if time > received { signed(time - received) } else { -signed(sent.saturating_sub(time)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_of_a_request_is_no_difference_of_clocks() {
        assert_eq!(clock_difference(1_000, (900, 4_000)), 0);
        assert_eq!(clock_difference(6_000, (900, 4_000)), 2_000);
        assert_eq!(clock_difference(500, (900, 4_000)), -400);
    }
}
