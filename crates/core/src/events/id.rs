//! Event ids that only work for the client they were sent to.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Owner, SessionId, Topic};

/// Converts positions in a topic to sealed ids for clients, and back.
///
/// An id holds the position and a MAC over owner, session, stream and number. A client that invents
/// an id, or shows one of another session or owner, gets [`UnknownEvent`].
///
/// ```
/// use stayput_core::{EventIds, Owner, SessionId, Timestamp, Topic};
///
/// let ids = EventIds::new(&[7; 32]);
/// let session = SessionId::generate(Timestamp::from_millis(0));
/// let topic = Topic { owner: Owner::anonymous(), session, stream: 3 };
/// let id = ids.seal(&topic, 41);
/// assert_eq!(ids.open(&topic.owner, session, &id), Ok((topic, 41)));
/// assert!(ids.open(&Owner::local(), session, &id).is_err());
/// ```
#[derive(Clone)]
pub struct EventIds(Hmac<Sha256>);

/// The event id was not issued for this owner and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such event")]
pub struct UnknownEvent;

/// 128 bits of the MAC suffice, because a guess can only be checked online.
const MAC_BYTES: usize = 16;

impl EventIds {
    /// Uses this secret. All processes on one store must share it.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        // HMAC pads a short key with zeros to one block of the hash.
        let mut block = [0; 64];
        block[..secret.len()].copy_from_slice(secret);
        Self(Hmac::new(&block.into()))
    }

    /// Returns the id of an event for the client of this topic.
    #[must_use]
    pub fn seal(&self, topic: &Topic, number: u64) -> String {
        let mac = self.mac(topic, number).finalize().into_bytes();
        let mut id = format!("{}-{number}-", topic.stream);
        for byte in &mac[..MAC_BYTES] {
            id.push_str(&format!("{byte:02x}"));
        }
        id
    }

    /// Returns the position behind an id.
    ///
    /// # Errors
    /// [`UnknownEvent`] if it was not sealed for this owner and session.
    pub fn open(
        &self,
        owner: &Owner,
        session: SessionId,
        id: &str,
    ) -> Result<(Topic, u64), UnknownEvent> {
        let mut parts = id.split('-');
        let mut part = || parts.next().ok_or(UnknownEvent);
        let (stream, number, mac) = (number(part()?)?, number(part()?)?, bytes(part()?)?);
        if parts.next().is_some() {
            return Err(UnknownEvent);
        }
        let topic = Topic { owner: owner.clone(), session, stream };
        match self.mac(&topic, number).verify_truncated_left(&mac) {
            Ok(()) => Ok((topic, number)),
            Err(_) => Err(UnknownEvent),
        }
    }

    fn mac(&self, topic: &Topic, number: u64) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        // The owner is the only part of variable length, so it comes last.
        mac.update(topic.session.as_uuid().as_bytes());
        mac.update(&topic.stream.to_be_bytes());
        mac.update(&number.to_be_bytes());
        mac.update(topic.owner.as_str().as_bytes());
        mac
    }
}

/// Parses a number and refuses a second spelling of it.
fn number(text: &str) -> Result<u64, UnknownEvent> {
    let value: u64 = text.parse().map_err(|_| UnknownEvent)?;
    if value.to_string() == text { Ok(value) } else { Err(UnknownEvent) }
}

fn bytes(text: &str) -> Result<[u8; MAC_BYTES], UnknownEvent> {
    let lower = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    if text.len() != MAC_BYTES * 2 || !text.bytes().all(lower) {
        return Err(UnknownEvent);
    }
    let mut bytes = [0; MAC_BYTES];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[n * 2..n * 2 + 2], 16).map_err(|_| UnknownEvent)?;
    }
    Ok(bytes)
}

impl fmt::Debug for EventIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventIds(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn id_opens_for_its_owner_session_and_position_only() {
        let ids = EventIds::new(&[1; 32]);
        let session = SessionId::generate(Timestamp::from_millis(1));
        let other = SessionId::generate(Timestamp::from_millis(1));
        let topic = Topic { owner: Owner::local(), session, stream: 2 };
        let id = ids.seal(&topic, 9);
        assert_eq!(ids.open(&Owner::local(), session, &id), Ok((topic, 9)));
        assert!(ids.open(&Owner::anonymous(), session, &id).is_err());
        assert!(ids.open(&Owner::local(), other, &id).is_err());
        assert!(EventIds::new(&[2; 32]).open(&Owner::local(), session, &id).is_err());
        for bad in [
            id.replacen("2-9", "2-8", 1),
            id.replacen("2-9", "3-9", 1),
            id.replacen("2-9", "02-9", 1),
            format!("{id}-"),
            id.to_uppercase().replace('A', "b"),
            id[..id.len() - 2].to_owned(),
            "2-9-".to_owned(),
            String::new(),
        ] {
            assert!(bad == id || ids.open(&Owner::local(), session, &bad).is_err(), "{bad}");
        }
    }
}
