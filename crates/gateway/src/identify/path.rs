//! Session key in the path: `/mcp/{server}/~{key}`.

use stayput_core::{InvalidName, Name};
use stayput_wire::percent;

/// Path, split from the key behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// Path without the key.
    pub(crate) path: &'a str,
    /// Decoded key.
    pub(crate) key: Option<String>,
}

/// Error for a key that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the session in this path cannot be read: behind `/~` there must be a name of 1 to 128 printable \
     bytes, or a session id, percent-encoded where a path cannot hold it"
)]
pub(crate) struct NoKey;

/// Splits the key off a path.
///
/// # Errors
/// If the part after `/~` is not a valid key.
pub(crate) fn split(path: &str) -> Result<Split<'_>, NoKey> {
    let Some((path, key)) = path.split_once("/~") else { return Ok(Split { path, key: None }) };
    let key = percent::decode_text(key).ok_or(NoKey)?.into_owned();
    read(&key).map_err(|_| NoKey)?;
    Ok(Split { path, key: Some(key) })
}

/// Parses the name in a path. A chosen name needs no `key:` prefix there.
pub(super) fn read(key: &str) -> Result<Name, InvalidName> {
    Name::parse(key).unwrap_or_else(|| Name::key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_split_off_behind_the_server() {
        let key = |path| split(path).map(|split| split.key);
        assert_eq!(split("/mcp/notes"), Ok(Split { path: "/mcp/notes", key: None }));
        let both = split("/mcp/notes/~chat-42").unwrap();
        assert_eq!((both.path, both.key.as_deref()), ("/mcp/notes", Some("chat-42")));
        assert_eq!(split("/mcp/~all").unwrap().path, "/mcp");
        assert_eq!(key("/mcp/n/~my%20chat%2f%C3%BC"), Ok(Some("my chat/ü".into())));
        assert_eq!(key("/mcp/n/~a/~b"), Ok(Some("a/~b".into())));
        let long = format!("/mcp/n/~{}", "x".repeat(129));
        for path in [
            "/mcp/n/~",
            "/mcp/n/~%2",
            "/mcp/n/~%zz",
            "/mcp/n/~%ff",
            "/mcp/n/~a%0Ab",
            "/mcp/n/~sp_x",
            &long,
        ] {
            assert_eq!(key(path), Err(NoKey), "{path}");
        }
    }

    #[test]
    fn path_key_equals_the_prefixed_key() {
        let same = |path, text| read(path).unwrap().is_same(&Name::parse(text).unwrap().unwrap());
        assert!(same("chat", "key:chat") && same("key:chat", "key:chat"));
    }
}
