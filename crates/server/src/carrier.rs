//! Where a request can name its session.

use std::{borrow::Cow, sync::Arc};

use http::HeaderName;
use stayput_core::{Digest, Handle, HandleHash, Key, Owner};
use stayput_wire::{header as mcp, meta};

use crate::{
    cookie,
    head::Head,
    line::Line,
    name::{self, Name},
};

/// So that its name is not read again for each request.
static STAYPUT_SESSION: HeaderName = HeaderName::from_static(mcp::STAYPUT_SESSION);

/// Where a request can name its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// The argument `session_id` of a tool.
    Argument,
    /// `_meta["dev.stayput/session"]`.
    Meta,
    /// The header `Stayput-Session`.
    Header,
    /// The conversation as its host calls it in `_meta`: ChatGPT, VS Code, Codex, OpenCode, goose, or the
    /// baggage of a trace.
    Hint,
    /// The connection of a client that shook hands: `Mcp-Session-Id`, or standard input and output.
    Connection,
    /// The cookie `mcp_session_id`.
    Cookie,
    /// Who it is: one session for all that an owner does without a name.
    Owner,
}

impl Carrier {
    /// The ones that count if nobody says otherwise, the first first.
    pub const DEFAULT: [Self; 5] =
        [Self::Argument, Self::Meta, Self::Header, Self::Hint, Self::Connection];

    /// Whether somebody names a session by it on purpose.
    fn is_explicit(self) -> bool {
        matches!(self, Self::Argument | Self::Meta | Self::Header)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Argument => "the argument `session_id`",
            Self::Meta => "`_meta[\"dev.stayput/session\"]`",
            _ => "the header `Stayput-Session`",
        }
    }
}

/// Members of `_meta` that are texts, each with its name.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// All that a request says about its session.
#[derive(Default)]
pub(crate) struct Said<'a> {
    /// The argument that is ours.
    pub(crate) argument: Option<Cow<'a, str>>,
    /// The texts of `_meta` that can tell something.
    pub(crate) meta: Members<'a>,
    pub(crate) head: Option<&'a Head<'a>>,
    /// The connection that it came on, if its client can have one.
    pub(crate) via: Option<Claim>,
}

/// What a request means by what it says.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// The session of this handle.
    Handle(Handle),
    /// The session of this key, found or made.
    Key(Key),
    /// The session that this connection leads to.
    Connection(HandleHash),
    /// The session of a client on standard input and output, or the like.
    Line(Arc<Line>),
    /// The session in its cookie, or a new one.
    Cookie(Option<Handle>),
    /// The one of its owner.
    Owner,
    /// Nothing was said.
    Nothing,
    /// What was said makes no sense.
    Wrong(Cow<'static, str>),
}

impl Claim {
    /// Reads the carriers that count, in their order.
    pub(crate) fn read(carriers: &[Carrier], said: &Said<'_>) -> Self {
        let explicit = match explicit(carriers, said) {
            Ok(explicit) => explicit,
            Err(wrong) => return Self::Wrong(wrong),
        };
        for carrier in carriers {
            let claim = match carrier {
                it if it.is_explicit() => explicit.clone().map(|name| match name {
                    Name::Handle(handle) => Self::Handle(handle),
                    Name::Key(key) => Self::Key(key),
                }),
                Carrier::Hint => match hint(&said.meta) {
                    Ok(key) => key.map(Self::Key),
                    Err(wrong) => Some(Self::Wrong(wrong)),
                },
                it => Self::unspoken(*it, said.head, said.via.as_ref()),
            };
            if let Some(claim) = claim {
                return claim;
            }
        }
        Self::Nothing
    }

    /// The same for a request that says nothing on purpose, nor what its host calls the conversation: most of them.
    pub(crate) fn quiet(carriers: &[Carrier], head: &Head<'_>, via: Option<&Self>) -> Self {
        let mut claims = carriers.iter().filter_map(|it| Self::unspoken(*it, Some(head), via));
        claims.next().unwrap_or(Self::Nothing)
    }

    /// What a carrier says without anybody's doing.
    fn unspoken(carrier: Carrier, head: Option<&Head<'_>>, via: Option<&Self>) -> Option<Self> {
        match carrier {
            Carrier::Connection => via.cloned(),
            Carrier::Cookie => head.map(|head| match cookie::read(head.headers) {
                None => Self::Cookie(None),
                Some(text) => match text.parse() {
                    Ok(handle) => Self::Cookie(Some(handle)),
                    // One that never was any leads to no session, like one that is unknown.
                    Err(_) => Self::Cookie(Some(Handle::generate())),
                },
            }),
            Carrier::Owner => Some(Self::Owner),
            _ => None,
        }
    }
}

/// The name that was given on purpose.
fn explicit(carriers: &[Carrier], said: &Said<'_>) -> Result<Option<Name>, Cow<'static, str>> {
    let mut first: Option<(Name, Carrier)> = None;
    for carrier in carriers.iter().copied().filter(|carrier| carrier.is_explicit()) {
        for text in texts(carrier, said) {
            let text = text.ok_or_else(|| format!("{} cannot be read", carrier.words()))?;
            let name = match Name::read(&text) {
                Some(Ok(name)) => name,
                Some(Err(wrong)) => return Err(format!("{} {wrong}", carrier.words()).into()),
                None => {
                    let wrong = "must be a session_id (`sp_…`), or `key:` and a name";
                    return Err(format!("{} {wrong}", carrier.words()).into());
                }
            };
            match &first {
                None => first = Some((name, carrier)),
                Some((known, _)) if known.is(&name) => {}
                Some((_, other)) => {
                    return Err(format!(
                        "{} and {} name two different sessions; leave one out",
                        other.words(),
                        carrier.words()
                    )
                    .into());
                }
            }
        }
    }
    Ok(first.map(|(name, _)| name))
}

/// What stands in a carrier; `None` for what cannot be read.
fn texts<'s>(carrier: Carrier, said: &'s Said<'_>) -> Vec<Option<Cow<'s, str>>> {
    match carrier {
        Carrier::Argument => said.argument.iter().map(|text| Some(text.as_ref().into())).collect(),
        Carrier::Meta => {
            let ours = said.meta.iter().filter(|(key, _)| key == meta::SESSION);
            ours.map(|(_, text)| Some(text.as_ref().into())).collect()
        }
        _ => {
            let Some(head) = said.head else { return Vec::new() };
            let values = head.headers.get_all(&STAYPUT_SESSION).iter();
            let values = values.map(|value| mcp::decode(value.as_bytes()).ok());
            // A template that had nothing to be filled with leaves an empty one.
            values.filter(|value| value.as_deref() != Some("")).collect()
        }
    }
}

/// What is kept of `Mcp-Session-Id`: a hash over the owner and the id together, so that it leads nobody else
/// anywhere.
pub(crate) fn connection_name(owner: &Owner, id: &[u8]) -> HandleHash {
    let digest = Digest::of("connection", &[owner.as_str().as_bytes(), id]);
    HandleHash::from_bytes(*digest.as_bytes())
}

/// Whether a member of `_meta` can tell something.
pub(crate) fn tells(key: &str) -> bool {
    key == meta::SESSION
        || key == meta::BAGGAGE
        || meta::CONVERSATION_HINTS.iter().any(|(_, hint)| *hint == key)
}

/// The conversation that a request belongs to, as its host calls it.
fn hint(members: &[(Cow<'_, str>, Cow<'_, str>)]) -> Result<Option<Key>, Cow<'static, str>> {
    let mut first: Option<(&'static str, Cow<'_, str>)> = None;
    for (key, text) in members {
        let plain = meta::CONVERSATION_HINTS.iter().find(|(_, hint)| hint == key);
        let told = match plain {
            Some((source, _)) => Some((*source, Cow::Borrowed(text.as_ref()))),
            None if key == meta::BAGGAGE => baggage(text).map(|id| ("otel", id)),
            None => None,
        };
        match (told.filter(|(_, id)| !id.is_empty()), &first) {
            (None, _) => {}
            (Some(told), None) => first = Some(told),
            (Some((_, id)), Some((_, known))) if id == *known => {}
            (Some((source, _)), Some((other, _))) => {
                return Err(format!(
                    "`_meta` tells two different conversations, as `{other}` and as `{source}`"
                )
                .into());
            }
        }
    }
    Ok(first.and_then(|(source, id)| name::conversation(source, &id)))
}

/// The conversation in the baggage of a trace (W3C Baggage: `key=value;property,key=value`).
fn baggage(text: &str) -> Option<Cow<'_, str>> {
    let mut members = text.split(',').filter_map(|member| {
        let (key, value) = member.split(';').next()?.split_once('=')?;
        (key.trim() == meta::BAGGAGE_CONVERSATION).then(|| value.trim())
    });
    members.next_back().and_then(name::decoded)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn read(carriers: &[Carrier], said: &Said<'_>) -> String {
        match Claim::read(carriers, said) {
            Claim::Key(key) => key.as_str().to_owned(),
            Claim::Wrong(wrong) => format!("wrong: {wrong}"),
            Claim::Connection(_) => "connection".to_owned(),
            Claim::Cookie(None) => "cookie".to_owned(),
            Claim::Cookie(_) => "a cookie".to_owned(),
            Claim::Owner => "owner".to_owned(),
            Claim::Nothing => "nothing".to_owned(),
            Claim::Handle(_) | Claim::Line(_) => "other".to_owned(),
        }
    }

    fn meta<'a>(members: &[(&'a str, &'a str)]) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        members.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect()
    }

    /// R063, R168: explicit before hint before connection, and the order is for the server to choose.
    #[test]
    fn the_first_carrier_that_says_something_counts() {
        let mut headers = HeaderMap::new();
        let hints = meta(&[("openai/session", "v1/a"), ("other", "x")]);
        let head = Head::read(&headers);
        let mut said = Said { meta: hints, head: Some(&head), ..Said::default() };
        assert_eq!(read(&Carrier::DEFAULT, &said), "openai:v1/a");
        assert_eq!(read(&[Carrier::Connection, Carrier::Owner, Carrier::Hint], &said), "owner");
        assert_eq!(read(&[Carrier::Cookie, Carrier::Hint], &said), "cookie");
        said.argument = Some("key:b".into());
        assert_eq!(read(&Carrier::DEFAULT, &said), "name:b");
        assert_eq!(read(&[Carrier::Hint, Carrier::Argument], &said), "openai:v1/a");
        assert_eq!(read(&[Carrier::Meta], &said), "nothing");
        headers.insert(http::header::COOKIE, "mcp_session_id=x".parse().unwrap());
        let via = Some(Claim::Connection(connection_name(&Owner::anonymous(), b"7")));
        let head = Head::read(&headers);
        let said = Said { head: Some(&head), via, ..Said::default() };
        assert_eq!(read(&Carrier::DEFAULT, &said), "connection");
        assert_eq!(read(&[Carrier::Cookie], &said), "a cookie");
    }

    /// R161: two that disagree are an error and never a guess.
    #[test]
    fn two_names_are_an_error() {
        let mut headers = HeaderMap::new();
        headers.insert(mcp::STAYPUT_SESSION, "key:b".parse().unwrap());
        let head = Head::read(&headers);
        let said = Said {
            argument: Some("key:a".into()),
            meta: meta(&[("threadId", "c"), ("sessionID", "d")]),
            head: Some(&head),
            ..Said::default()
        };
        let told = read(&Carrier::DEFAULT, &said);
        assert!(
            told.contains("argument") && told.contains("header") && !told.contains("key:a"),
            "{told}"
        );
        assert_eq!(read(&[Carrier::Header], &said), "name:b");
        assert!(read(&[Carrier::Hint], &said).contains("`codex` and as `opencode`"));
        let same = meta(&[("threadId", "c"), ("baggage", "x=1, gen_ai.conversation.id = c ;p")]);
        let said = Said { meta: same, ..Said::default() };
        assert_eq!(read(&Carrier::DEFAULT, &said), "codex:c");
        let said = Said { argument: Some("42".into()), ..Said::default() };
        assert!(read(&Carrier::DEFAULT, &said).starts_with("wrong"));
    }

    /// E30, E31: the same id of two owners leads to two connections.
    #[test]
    fn a_connection_belongs_to_its_owner() {
        let (ann, bob) =
            (Owner::verified("i", "ann").unwrap(), Owner::verified("i", "bob").unwrap());
        assert_ne!(connection_name(&ann, b"7"), connection_name(&bob, b"7"));
        assert_eq!(connection_name(&ann, b"7"), connection_name(&ann, b"7"));
    }
}
