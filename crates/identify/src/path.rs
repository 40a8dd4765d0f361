//! Session key in the path: `/mcp/{server}/~{key}`.

use stayput_core::{InvalidName, Name};
use stayput_wire::percent;

/// Path, split from the key behind it.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitPath<'a> {
    /// Path without the key.
    pub path: &'a str,
    /// Decoded key.
    pub key: Option<String>,
}

/// Error of a key that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the session in this path cannot be read: behind `/~` there must be a name of 1 to 128 printable \
     bytes, or a session id, percent-encoded where a path cannot hold it"
)]
#[non_exhaustive]
pub struct InvalidPathKey;

impl<'a> SplitPath<'a> {
    /// Splits the key off a path.
    ///
    /// # Errors
    /// If the part after `/~` is not a valid key.
    pub fn parse(path: &'a str) -> Result<Self, InvalidPathKey> {
        let Some((path, key)) = path.split_once("/~") else { return Ok(Self::without_key(path)) };
        let key = percent::decode_text(key).ok_or(InvalidPathKey)?.into_owned();
        read(&key).map_err(|_| InvalidPathKey)?;
        Ok(Self { path, key: Some(key) })
    }

    /// Takes the whole path as it is, where this name source is disabled.
    #[must_use]
    pub fn without_key(path: &'a str) -> Self {
        Self { path, key: None }
    }
}

/// Parses the name in a path. A chosen name needs no `key:` prefix there.
pub(crate) fn read(key: &str) -> Result<Name, InvalidName> {
    Name::parse(key).unwrap_or_else(|| Name::key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_split_off_behind_the_server() {
        let key = |path| SplitPath::parse(path).map(|split| split.key);
        assert_eq!(SplitPath::parse("/mcp/notes"), Ok(SplitPath::without_key("/mcp/notes")));
        let both = SplitPath::parse("/mcp/notes/~chat-42").unwrap();
        assert_eq!((both.path, both.key.as_deref()), ("/mcp/notes", Some("chat-42")));
        assert_eq!(SplitPath::parse("/mcp/~all").unwrap().path, "/mcp");
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
            assert_eq!(key(path), Err(InvalidPathKey), "{path}");
        }
    }

    #[test]
    fn path_key_equals_the_prefixed_key() {
        let same = |path, text| read(path).unwrap().is_same(&Name::parse(text).unwrap().unwrap());
        assert!(same("chat", "key:chat") && same("key:chat", "key:chat"));
    }
}
