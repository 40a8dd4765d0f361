//! Session id that a server assigned.

use std::fmt;

use http::HeaderValue;
use smallvec::SmallVec;

/// Length of common ids: a UUID, or a handle of another gateway.
const INLINE_ID_LENGTH: usize = 40;

/// Session id that a server assigned. It is a secret. An id of the common length is stored inline in the link:
/// every call sends it, and with very many sessions memory elsewhere would not be in the cache.
#[derive(Clone)]
pub(crate) struct ServerSession(SmallVec<[u8; INLINE_ID_LENGTH]>);

impl ServerSession {
    /// Returns the id if it is valid: visible ASCII, which fits a header as it is.
    pub(crate) fn new(id: &[u8]) -> Option<Self> {
        let usable = !id.is_empty() && id.iter().all(|byte| (0x21..=0x7e).contains(byte));
        usable.then(|| Self(SmallVec::from_slice(id)))
    }

    pub(crate) fn as_str(&self) -> &str {
        // A valid id is ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(super) fn header(&self) -> Option<HeaderValue> {
        let mut header = HeaderValue::from_bytes(&self.0).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSession(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_id_is_kept_unchanged() {
        for id in ["7", "1868a90c-0d4c-4d3c-9c5a-3c1b3e3b9c11", &"~".repeat(4_096)] {
            let kept = ServerSession::new(id.as_bytes()).unwrap();
            assert_eq!(kept.as_str(), id);
            let header = kept.header().unwrap();
            assert_eq!((header.as_bytes(), header.is_sensitive()), (id.as_bytes(), true));
            assert!(!format!("{kept:?}").contains(id));
        }
    }

    #[test]
    fn invisible_characters_are_refused() {
        for id in ["", " ", "a b", "a\tb", "a\r\nb: c", "ä", "\u{7f}"] {
            assert!(ServerSession::new(id.as_bytes()).is_none(), "{id:?}");
        }
    }
}
