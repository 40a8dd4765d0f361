//! Session names in a request, and the session that they refer to.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use stayput_core::{Digest, Handle, HandleHash, Key, Name, Owner};
use stayput_identify::{
    ArgumentName, ArgumentRule, ExplicitNames, HINT_SOURCES, MetaMembers, NameError,
    SessionArguments, read_cookie, read_hints,
};
use stayput_wire::Message;

use super::headers::RequestHeaders;
use crate::registry::TransportSession;

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
}

/// Session arguments of a tool call, and the rule for `session_id`; `None` if the tool has its own.
type CallArguments<'a> = (SessionArguments<'a>, Option<ArgumentRule>);

/// Session names found in a request.
#[derive(Default)]
pub(crate) struct RequestNames<'a> {
    pub(crate) explicit: ExplicitNames,
    /// First problem of an explicit name.
    error: Option<NameError>,
    /// Members of `_meta` that can name a session.
    members: MetaMembers<'a>,
}

impl<'a> RequestNames<'a> {
    /// Reads the names from the enabled sources.
    pub(crate) fn read(
        sources: &[NameSource],
        arguments: Option<CallArguments<'_>>,
        members: MetaMembers<'a>,
        head: Option<&RequestHeaders<'_>>,
    ) -> Self {
        let mut names = Self { members, ..Self::default() };
        names.error = names.read_explicit(sources, arguments, head).err();
        names
    }

    fn read_explicit(
        &mut self,
        sources: &[NameSource],
        arguments: Option<CallArguments<'_>>,
        head: Option<&RequestHeaders<'_>>,
    ) -> Result<(), NameError> {
        let (Self { explicit, members, .. }, is_on) = (self, |it| sources.contains(&it));
        if let Some((arguments, rule)) = arguments.filter(|_| is_on(NameSource::Argument)) {
            if let Some(rule) = rule {
                explicit.read_argument(arguments, ArgumentName::Plain, rule)?;
            }
            explicit.read_argument(arguments, ArgumentName::Prefixed, ArgumentRule::Owned)?;
        }
        if is_on(NameSource::Meta) {
            explicit.read_meta(members)?;
        }
        if let Some(head) = head.filter(|it| it.has_session_header && is_on(NameSource::Header)) {
            explicit.read_header(head.headers)?;
        }
        explicit.conflicts().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Removes the explicit names from their message; `None` if it stays unchanged.
    pub(crate) fn edit(&mut self, message: &Message<'_>) -> Option<Bytes> {
        match self.explicit.edit(message) {
            Ok(edit) => edit.map(|edit| edit.into_text().into()),
            Err(error) => {
                self.error.get_or_insert(error);
                None
            }
        }
    }
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
    /// Returns the session of the first source that has one, in order of precedence.
    pub(crate) fn read(
        sources: &[NameSource],
        names: &RequestNames<'_>,
        head: Option<&RequestHeaders<'_>>,
        connection: Option<&Self>,
    ) -> Self {
        if let Some(error) = &names.error {
            return Self::Invalid(error.to_string().into());
        }
        for source in sources {
            let session_ref = match source {
                it if it.is_explicit() => names.explicit.first().map(|name| match name {
                    Name::Handle(handle) => Self::Handle(handle.clone()),
                    Name::Key(key) => Self::Key(key.clone()),
                }),
                NameSource::Hint => match read_hints(&HINT_SOURCES, &names.members) {
                    Ok(key) => key.map(Self::Key),
                    Err(error) => Some(Self::Invalid(error.to_string().into())),
                },
                it => Self::implicit(*it, head, connection),
            };
            if let Some(session_ref) = session_ref {
                return session_ref;
            }
        }
        Self::Missing
    }

    /// Reads a source that the client does not set on purpose.
    fn implicit(
        source: NameSource,
        head: Option<&RequestHeaders<'_>>,
        connection: Option<&Self>,
    ) -> Option<Self> {
        match source {
            NameSource::Connection => connection.cloned(),
            NameSource::Cookie => head.map(|head| match read_cookie(head.headers) {
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

/// Hashes `Mcp-Session-Id` together with the owner, so that the id is useless to other owners.
pub(crate) fn connection_hash(owner: &Owner, id: &[u8]) -> HandleHash {
    let digest = Digest::compute("connection", &[owner.as_str().as_bytes(), id]);
    HandleHash::from_bytes(*digest.as_bytes())
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::{Value, json};
    use stayput_identify::JsonValue;

    use super::*;

    fn read(
        sources: &[NameSource],
        arguments: &Value,
        meta: &Value,
        headers: &HeaderMap,
    ) -> String {
        let head = RequestHeaders::read(headers);
        let connection = head.connection_id(false);
        let connection = connection
            .map(|id| SessionRef::Connection(connection_hash(&Owner::anonymous(), id.as_bytes())));
        let arguments = SessionArguments::from_object(JsonValue::Parsed(arguments));
        let arguments = arguments.map(|it| (it, Some(ArgumentRule::Owned)));
        let members = MetaMembers::from_object(JsonValue::Parsed(meta), &[]);
        let names = RequestNames::read(sources, arguments, members, Some(&head));
        match SessionRef::read(sources, &names, Some(&head), connection.as_ref()) {
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

    /// R063, R168: explicit before hint before connection; the server can change the order.
    #[test]
    fn first_source_with_a_name_wins() {
        let (mut headers, none) = (HeaderMap::new(), json!({}));
        let hint = json!({ "openai/session": "v1/a", "other": "x" });
        let hinted = |sources: &[NameSource]| read(sources, &none, &hint, &HeaderMap::new());
        assert_eq!(hinted(&NameSource::DEFAULT), "openai:v1/a");
        assert_eq!(hinted(&[NameSource::Connection, NameSource::Owner, NameSource::Hint]), "owner");
        assert_eq!(hinted(&[NameSource::Cookie, NameSource::Hint]), "cookie");
        let argument = json!({ "session_id": "key:b" });
        let both = |sources: &[NameSource]| read(sources, &argument, &hint, &HeaderMap::new());
        assert_eq!(both(&NameSource::DEFAULT), "name:b");
        assert_eq!(both(&[NameSource::Hint, NameSource::Argument]), "openai:v1/a");
        assert_eq!(both(&[NameSource::Meta]), "nothing");
        headers.insert(http::header::COOKIE, "mcp_session_id=x".parse().unwrap());
        headers.insert("mcp-session-id", "7".parse().unwrap());
        assert_eq!(read(&NameSource::DEFAULT, &none, &none, &headers), "connection");
        assert_eq!(read(&[NameSource::Cookie], &none, &none, &headers), "a cookie");
    }

    /// R161: names that disagree are an error.
    #[test]
    fn contradicting_names_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("stayput-session", "key:b".parse().unwrap());
        let argument = json!({ "session_id": "key:a" });
        let hints = json!({ "threadId": "c", "sessionID": "d" });
        let two = read(&NameSource::DEFAULT, &argument, &hints, &headers);
        assert!(
            two.contains("argument") && two.contains("header") && !two.contains("key:a"),
            "{two}"
        );
        assert_eq!(read(&[NameSource::Header], &argument, &hints, &headers), "name:b");
        let two = read(&[NameSource::Hint], &argument, &hints, &headers);
        assert!(two.contains("`codex` and as `opencode`"), "{two}");
        let (none, empty) = (json!({}), HeaderMap::new());
        let same = json!({ "threadId": "c", "baggage": "x=1, gen_ai.conversation.id = c ;p" });
        assert_eq!(read(&NameSource::DEFAULT, &none, &same, &empty), "codex:c");
        let foreign = json!({ "session_id": "42" });
        assert!(read(&NameSource::DEFAULT, &foreign, &none, &empty).starts_with("invalid"));
        let two = json!({ "session_id": "key:a", "stayput_session_id": "key:b" });
        let two = read(&NameSource::DEFAULT, &two, &none, &empty);
        assert!(two.contains("two different sessions"), "{two}");
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
