//! Conversation id at a place that the operator configured.

use http::HeaderName;
use stayput_core::{InvalidName, Name, conversation_key};

/// Maximum length in bytes of the name behind the colon.
const MAX_NAME_BYTES: usize = 64;

/// Configured source of a conversation id. A chat product can template its conversation id into a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomSource {
    /// Header of the request.
    Header(HeaderName),
    /// Member of `_meta`.
    Meta(String),
    /// Claim of the caller's token. Without authentication there are no claims.
    Claim(String),
}

impl CustomSource {
    /// Parses `header:NAME`, `meta:NAME` or `claim:NAME`, with a name of at most 64 bytes.
    ///
    /// ```
    /// use stayput_identify::CustomSource;
    ///
    /// assert_eq!(CustomSource::parse("meta:chat"), Some(CustomSource::Meta("chat".to_owned())));
    /// assert_eq!(CustomSource::parse("cookie:chat"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return None;
        }
        match kind {
            "header" => name.parse().ok().map(Self::Header),
            "meta" => Some(Self::Meta(name.to_owned())),
            "claim" => Some(Self::Claim(name.to_owned())),
            _ => None,
        }
    }

    /// Describes the place for error messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Header(name) => format!("the header {name}"),
            Self::Meta(key) => format!("`_meta[\"{key}\"]`"),
            Self::Claim(name) => format!("the claim `{name}` of the token"),
        }
    }

    /// Turns an id into a name; `None` if it is empty. The id becomes a key whose source is its place, so that equal
    /// ids at different places differ. A handle or a `key:` name is the same at every place.
    pub(crate) fn name(&self, id: &str) -> Option<Result<Name, InvalidName>> {
        let (source, name) = match self {
            Self::Header(name) => ("header", name.as_str()),
            Self::Meta(key) => ("meta", key.as_str()),
            Self::Claim(name) => ("claim", name.as_str()),
        };
        let key = || conversation_key(source, &format!("{name}:{id}")).map(|it| Ok(Name::Key(it)));
        if id.is_empty() { None } else { Name::parse(id).or_else(key) }
    }
}
