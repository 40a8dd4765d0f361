//! The session in the path: `/mcp/{server}/~{key}`.

use stayput_core::{InvalidName, Name};
use stayput_wire::percent;

/// A path, and the key behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// The path without the key.
    pub(crate) path: &'a str,
    /// What the key says.
    pub(crate) key: Option<String>,
}

/// A key that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the session in this path cannot be read: behind `/~` there must be a name of 1 to 128 printable \
     bytes, or a session id, percent-encoded where a path cannot hold it"
)]
pub(crate) struct NoKey;

/// Splits the key off a path.
///
/// # Errors
/// If something stands where the key is that is none.
pub(crate) fn split(path: &str) -> Result<Split<'_>, NoKey> {
    let Some((path, key)) = path.split_once("/~") else { return Ok(Split { path, key: None }) };
    let key = percent::decode_text(key).ok_or(NoKey)?.into_owned();
    read(&key).map_err(|_| NoKey)?;
    Ok(Split { path, key: Some(key) })
}

/// The name that stands in a path: a name that somebody chose needs no `key:` there.
pub(super) fn read(key: &str) -> Result<Name, InvalidName> {
    Name::parse(key).unwrap_or_else(|| Name::key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_behind_the_server() {
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
    fn a_path_names_what_the_other_carriers_name() {
        let same = |path, text| read(path).unwrap().is_same(&Name::parse(text).unwrap().unwrap());
        assert!(same("chat", "key:chat") && same("key:chat", "key:chat"));
    }
}
