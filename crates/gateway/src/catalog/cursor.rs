//! Cursor of a list of all servers.

use serde::{Deserialize, Serialize};
use stayput_core::Owner;
use stayput_upstream::SealKey;

/// Position in the list of all servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Server to continue with.
    pub(crate) server: String,
    /// Cursor of that server; `None` for its first page.
    pub(crate) inner: Option<String>,
}

impl Cursor {
    /// Seals the cursor for a client, because cursors of servers may hold data that clients must not read. `None` if
    /// sealing fails on this machine.
    pub(crate) fn seal(&self, key: &SealKey, owner: &Owner, method: &str) -> Option<String> {
        let plain = serde_json::to_vec(self).ok()?;
        key.seal(&context(owner, method), &plain).ok()
    }

    /// Opens a cursor that was sealed for this owner and this list. `None` for any other.
    pub(crate) fn open(key: &SealKey, owner: &Owner, method: &str, sealed: &str) -> Option<Self> {
        let plain = key.open(&context(owner, method), sealed).ok()?;
        serde_json::from_slice(&plain).ok()
    }
}

fn context(owner: &Owner, method: &str) -> String {
    // The owner is last, because it can hold any characters.
    format!("cursor of {method} for {}", owner.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1: a cursor is valid only for its owner and its list.
    #[test]
    fn cursor_is_valid_only_for_its_owner_and_list() {
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
