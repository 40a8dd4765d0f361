//! Where a list of all servers goes on.

use serde::{Deserialize, Serialize};
use stayput_core::Owner;
use stayput_upstream::SealKey;

/// A place in the list of all servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// The server to go on with.
    pub(crate) server: String,
    /// Where to go on there; at its first page if nothing is said.
    pub(crate) inner: Option<String>,
}

impl Cursor {
    /// As clients get it: sealed, because what servers put into theirs is nobody else's. `None` if this
    /// machine cannot seal.
    pub(crate) fn seal(&self, key: &SealKey, owner: &Owner, method: &str) -> Option<String> {
        let plain = serde_json::to_vec(self).ok()?;
        key.seal(&context(owner, method), &plain).ok()
    }

    /// As it was sealed for this owner and this list. `None` for everything else.
    pub(crate) fn open(key: &SealKey, owner: &Owner, method: &str, sealed: &str) -> Option<Self> {
        let plain = key.open(&context(owner, method), sealed).ok()?;
        serde_json::from_slice(&plain).ok()
    }
}

fn context(owner: &Owner, method: &str) -> String {
    // The owner stands last: it can have anything in it.
    format!("cursor of {method} for {}", owner.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1: a cursor is good for its owner and its list.
    #[test]
    fn a_cursor_is_good_where_it_was_given_out() {
        let (key, owner) = (SealKey::from_bytes(&[1; 32]).unwrap(), Owner::anonymous());
        let cursor = Cursor { server: "notes".to_owned(), inner: Some("p2\"é".to_owned()) };
        let sealed = cursor.seal(&key, &owner, "tools/list").unwrap();
        assert!(!sealed.contains("notes"));
        let open = |key: &SealKey, owner: &Owner, method: &str, sealed: &str| {
            Cursor::open(key, owner, method, sealed)
        };
        assert_eq!(open(&key, &owner, "tools/list", &sealed), Some(cursor));
        assert_eq!(open(&key, &Owner::local(), "tools/list", &sealed), None);
        assert_eq!(open(&key, &owner, "prompts/list", &sealed), None);
        let other = SealKey::from_bytes(&[2; 32]).unwrap();
        assert_eq!(open(&other, &owner, "tools/list", &sealed), None);
        for garbled in ["", "2", "v1.", &sealed[1..], &format!("{sealed}A")] {
            assert_eq!(open(&key, &owner, "tools/list", garbled), None, "{garbled}");
        }
    }
}
