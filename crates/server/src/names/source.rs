//! Session names in a request, and the session that they refer to.

use std::{borrow::Cow, sync::Arc};

use http::HeaderName;
use stayput_core::{Digest, Handle, HandleHash, Key, Name, Owner, conversation_key};
use stayput_wire::{header as mcp, meta, percent};

use super::{cookie, headers::RequestHeaders};
use crate::registry::TransportSession;

/// Parsed once instead of for each request.
static STAYPUT_SESSION: HeaderName = HeaderName::from_static(mcp::STAYPUT_SESSION);

/// Place where a request can name its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameSource {
    /// Argument `session_id` of a tool.
    Argument,
    /// `_meta["dev.stayput/session"]`.
    Meta,
    /// Header `Stayput-Session`.
    Header,
    /// Conversation id that the host sends in `_meta`: ChatGPT, VS Code, Codex, OpenCode, goose, or W3C Baggage.
    Hint,
    /// Connection of a legacy client: `Mcp-Session-Id`, or stdio.
    Connection,
    /// Cookie `mcp_session_id`.
    Cookie,
    /// Owner: one session for all requests of an owner that name none.
    Owner,
}

impl NameSource {
    /// Default sources in order of precedence.
    pub const DEFAULT: [Self; 5] =
        [Self::Argument, Self::Meta, Self::Header, Self::Hint, Self::Connection];

    /// Returns whether the client names a session by this source on purpose.
    fn is_explicit(self) -> bool {
        matches!(self, Self::Argument | Self::Meta | Self::Header)
    }

    fn description(self) -> &'static str {
        match self {
            Self::Argument => "the argument `session_id`",
            Self::Meta => "`_meta[\"dev.stayput/session\"]`",
            _ => "the header `Stayput-Session`",
        }
    }
}

/// Text members of `_meta` with their keys.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Session names found in a request.
#[derive(Default)]
pub(crate) struct RequestNames<'a> {
    /// Value of the session argument.
    pub(crate) argument: Option<Cow<'a, str>>,
    /// Members of `_meta` that can name a session.
    pub(crate) meta: Members<'a>,
    pub(crate) head: Option<&'a RequestHeaders<'a>>,
    /// Connection of the request. Modern clients have none.
    pub(crate) connection: Option<SessionRef>,
}

/// Session that a request refers to.
#[derive(Clone, Debug)]
pub(crate) enum SessionRef {
    /// Session of this handle.
    Handle(Handle),
    /// Session of this key. Created if there is none.
    Key(Key),
    /// Session attached to this connection.
    Connection(HandleHash),
    /// Session of a transport such as stdio.
    Transport(Arc<TransportSession>),
    /// Session of the cookie, or a new one.
    Cookie(Option<Handle>),
    /// Session of the owner.
    Owner,
    /// The request names no session.
    Missing,
    /// The names are malformed or contradict each other.
    Invalid(Cow<'static, str>),
}

impl SessionRef {
    /// Reads the sources in order of precedence.
    pub(crate) fn read(sources: &[NameSource], names: &RequestNames<'_>) -> Self {
        let explicit = match explicit(sources, names) {
            Ok(explicit) => explicit,
            Err(invalid) => return Self::Invalid(invalid),
        };
        for source in sources {
            let session_ref = match source {
                it if it.is_explicit() => explicit.clone().map(|name| match name {
                    Name::Handle(handle) => Self::Handle(handle),
                    Name::Key(key) => Self::Key(key),
                }),
                NameSource::Hint => match hinted_key(&names.meta) {
                    Ok(key) => key.map(Self::Key),
                    Err(invalid) => Some(Self::Invalid(invalid)),
                },
                it => Self::implicit(*it, names.head, names.connection.as_ref()),
            };
            if let Some(session_ref) = session_ref {
                return session_ref;
            }
        }
        Self::Missing
    }

    /// Does the same for a request without explicit name and without conversation hint, as most are.
    pub(crate) fn from_implicit(
        sources: &[NameSource],
        head: &RequestHeaders<'_>,
        connection: Option<&Self>,
    ) -> Self {
        let mut refs = sources.iter().filter_map(|it| Self::implicit(*it, Some(head), connection));
        refs.next().unwrap_or(Self::Missing)
    }

    /// Reads a source that the client does not set on purpose.
    fn implicit(
        source: NameSource,
        head: Option<&RequestHeaders<'_>>,
        connection: Option<&Self>,
    ) -> Option<Self> {
        match source {
            NameSource::Connection => connection.cloned(),
            NameSource::Cookie => head.map(|head| match cookie::read(head.headers) {
                None => Self::Cookie(None),
                Some(text) => match text.parse() {
                    Ok(handle) => Self::Cookie(Some(handle)),
                    // A malformed handle is treated like an unknown one.
                    Err(_) => Self::Cookie(Some(Handle::generate())),
                },
            }),
            NameSource::Owner => Some(Self::Owner),
            _ => None,
        }
    }
}

/// Reads the explicit sources, which must agree.
fn explicit(
    sources: &[NameSource],
    names: &RequestNames<'_>,
) -> Result<Option<Name>, Cow<'static, str>> {
    let mut first: Option<(Name, NameSource)> = None;
    for source in sources.iter().copied().filter(|source| source.is_explicit()) {
        for text in texts(source, names) {
            let text = text.ok_or_else(|| format!("{} cannot be read", source.description()))?;
            let name = match Name::parse(&text) {
                Some(Ok(name)) => name,
                Some(Err(invalid)) => {
                    return Err(format!("{} {invalid}", source.description()).into());
                }
                None => {
                    let invalid = "must be a session_id (`sp_…`), or `key:` and a name";
                    return Err(format!("{} {invalid}", source.description()).into());
                }
            };
            match &first {
                None => first = Some((name, source)),
                Some((known, _)) if known.is_same(&name) => {}
                Some((_, other)) => {
                    return Err(format!(
                        "{} and {} name two different sessions; leave one out",
                        other.description(),
                        source.description()
                    )
                    .into());
                }
            }
        }
    }
    Ok(first.map(|(name, _)| name))
}

/// Returns the values of a source; `None` for a value that is not readable.
fn texts<'s>(source: NameSource, names: &'s RequestNames<'_>) -> Vec<Option<Cow<'s, str>>> {
    match source {
        NameSource::Argument => {
            names.argument.iter().map(|text| Some(text.as_ref().into())).collect()
        }
        NameSource::Meta => {
            let values = names.meta.iter().filter(|(key, _)| key == meta::SESSION);
            values.map(|(_, text)| Some(text.as_ref().into())).collect()
        }
        _ => {
            let Some(head) = names.head else { return Vec::new() };
            let values = head.headers.get_all(&STAYPUT_SESSION).iter();
            let values = values.map(|value| mcp::decode(value.as_bytes()).ok());
            // An unfilled client template sends an empty header.
            values.filter(|value| value.as_deref() != Some("")).collect()
        }
    }
}

/// Hashes `Mcp-Session-Id` together with the owner, so that the id is useless to other owners.
pub(crate) fn connection_hash(owner: &Owner, id: &[u8]) -> HandleHash {
    let digest = Digest::of("connection", &[owner.as_str().as_bytes(), id]);
    HandleHash::from_bytes(*digest.as_bytes())
}

/// Returns whether a member of `_meta` can name a session.
pub(crate) fn is_session_member(key: &str) -> bool {
    key == meta::SESSION
        || key == meta::BAGGAGE
        || meta::CONVERSATION_HINTS.iter().any(|(_, hint)| *hint == key)
}

/// Returns the key of the conversation that the host names in `_meta`.
fn hinted_key(members: &[(Cow<'_, str>, Cow<'_, str>)]) -> Result<Option<Key>, Cow<'static, str>> {
    let mut first: Option<(&'static str, Cow<'_, str>)> = None;
    for (key, text) in members {
        let plain = meta::CONVERSATION_HINTS.iter().find(|(_, hint)| hint == key);
        let hint = match plain {
            Some((source, _)) => Some((*source, Cow::Borrowed(text.as_ref()))),
            None if key == meta::BAGGAGE => baggage(text).map(|id| ("otel", id)),
            None => None,
        };
        match (hint.filter(|(_, id)| !id.is_empty()), &first) {
            (None, _) => {}
            (Some(hint), None) => first = Some(hint),
            (Some((_, id)), Some((_, known))) if id == *known => {}
            (Some((source, _)), Some((other, _))) => {
                return Err(format!(
                    "`_meta` names two different conversations, as `{other}` and as `{source}`"
                )
                .into());
            }
        }
    }
    Ok(first.and_then(|(source, id)| conversation_key(source, &id)))
}

/// Reads the conversation id from W3C Baggage (`key=value;property,key=value`).
fn baggage(text: &str) -> Option<Cow<'_, str>> {
    let mut members = text.split(',').filter_map(|member| {
        let (key, value) = member.split(';').next()?.split_once('=')?;
        (key.trim() == meta::BAGGAGE_CONVERSATION).then(|| value.trim())
    });
    members.next_back().and_then(percent_decoded)
}

/// Decodes a percent-encoded text; `None` if the result is not UTF-8.
fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    match percent::decode(text) {
        Cow::Borrowed(_) => Some(text.into()),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn percent_decoding_requires_utf8() {
        for (text, plain) in
            [("a%20b", Some("a b")), ("%c3%bc", Some("ü")), ("%zz%", Some("%zz%")), ("%ff", None)]
        {
            assert_eq!(percent_decoded(text).as_deref(), plain, "{text}");
        }
    }

    fn read(sources: &[NameSource], names: &RequestNames<'_>) -> String {
        match SessionRef::read(sources, names) {
            SessionRef::Key(key) => key.as_str().to_owned(),
            SessionRef::Invalid(invalid) => format!("invalid: {invalid}"),
            SessionRef::Connection(_) => "connection".to_owned(),
            SessionRef::Cookie(None) => "cookie".to_owned(),
            SessionRef::Cookie(_) => "a cookie".to_owned(),
            SessionRef::Owner => "owner".to_owned(),
            SessionRef::Missing => "nothing".to_owned(),
            SessionRef::Handle(_) | SessionRef::Transport(_) => "other".to_owned(),
        }
    }

    fn meta<'a>(members: &[(&'a str, &'a str)]) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        members.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect()
    }

    /// R063, R168: explicit before hint before connection; the server can change the order.
    #[test]
    fn first_source_with_a_name_wins() {
        let mut headers = HeaderMap::new();
        let hints = meta(&[("openai/session", "v1/a"), ("other", "x")]);
        let head = RequestHeaders::read(&headers);
        let mut names = RequestNames { meta: hints, head: Some(&head), ..RequestNames::default() };
        assert_eq!(read(&NameSource::DEFAULT, &names), "openai:v1/a");
        assert_eq!(
            read(&[NameSource::Connection, NameSource::Owner, NameSource::Hint], &names),
            "owner"
        );
        assert_eq!(read(&[NameSource::Cookie, NameSource::Hint], &names), "cookie");
        names.argument = Some("key:b".into());
        assert_eq!(read(&NameSource::DEFAULT, &names), "name:b");
        assert_eq!(read(&[NameSource::Hint, NameSource::Argument], &names), "openai:v1/a");
        assert_eq!(read(&[NameSource::Meta], &names), "nothing");
        headers.insert(http::header::COOKIE, "mcp_session_id=x".parse().unwrap());
        let connection = Some(SessionRef::Connection(connection_hash(&Owner::anonymous(), b"7")));
        let head = RequestHeaders::read(&headers);
        let names = RequestNames { head: Some(&head), connection, ..RequestNames::default() };
        assert_eq!(read(&NameSource::DEFAULT, &names), "connection");
        assert_eq!(read(&[NameSource::Cookie], &names), "a cookie");
    }

    /// R161: names that disagree are an error.
    #[test]
    fn contradicting_names_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(mcp::STAYPUT_SESSION, "key:b".parse().unwrap());
        let head = RequestHeaders::read(&headers);
        let names = RequestNames {
            argument: Some("key:a".into()),
            meta: meta(&[("threadId", "c"), ("sessionID", "d")]),
            head: Some(&head),
            ..RequestNames::default()
        };
        let hint = read(&NameSource::DEFAULT, &names);
        assert!(
            hint.contains("argument") && hint.contains("header") && !hint.contains("key:a"),
            "{hint}"
        );
        assert_eq!(read(&[NameSource::Header], &names), "name:b");
        assert!(read(&[NameSource::Hint], &names).contains("`codex` and as `opencode`"));
        let same = meta(&[("threadId", "c"), ("baggage", "x=1, gen_ai.conversation.id = c ;p")]);
        let names = RequestNames { meta: same, ..RequestNames::default() };
        assert_eq!(read(&NameSource::DEFAULT, &names), "codex:c");
        let names = RequestNames { argument: Some("42".into()), ..RequestNames::default() };
        assert!(read(&NameSource::DEFAULT, &names).starts_with("invalid"));
    }

    /// E30, E31: the same id of two owners yields two connections.
    #[test]
    fn connection_hash_depends_on_the_owner() {
        let (ann, bob) =
            (Owner::verified("i", "ann").unwrap(), Owner::verified("i", "bob").unwrap());
        assert_ne!(connection_hash(&ann, b"7"), connection_hash(&bob, b"7"));
        assert_eq!(connection_hash(&ann, b"7"), connection_hash(&ann, b"7"));
    }
}
