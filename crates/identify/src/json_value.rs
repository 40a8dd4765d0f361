//! JSON value of a request: as written, or parsed.

use std::borrow::Cow;

use serde_json::{Map, Value};
use stayput_wire::Raw;

/// JSON value of a request. The gateway reads the bytes of a message, the server library also reads messages that rmcp
/// has parsed; the rules for both are the same.
#[derive(Clone, Copy, Debug)]
pub enum JsonValue<'a> {
    /// Bytes of a message.
    Raw(Raw<'a>),
    /// Parsed value.
    Parsed(&'a Value),
    /// Parsed object.
    Object(&'a Map<String, Value>),
}

impl<'a> JsonValue<'a> {
    /// Returns a string; `None` for other values.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Raw(raw) => raw.text(),
            Self::Parsed(value) => value.as_str().map(Cow::Borrowed),
            Self::Object(_) => None,
        }
    }

    pub(crate) fn is_null(self) -> bool {
        match self {
            Self::Raw(raw) => raw.is_null(),
            Self::Parsed(value) => value.is_null(),
            Self::Object(_) => false,
        }
    }

    pub(crate) fn is_object(self) -> bool {
        match self {
            Self::Raw(raw) => raw.is_object(),
            Self::Parsed(value) => value.is_object(),
            Self::Object(_) => true,
        }
    }

    /// Returns a member of an object. The last of duplicate members counts.
    pub(crate) fn get(self, name: &str) -> Option<Self> {
        match self {
            Self::Raw(raw) => raw.find(&[name]).map(Self::Raw),
            Self::Parsed(value) => value.get(name).map(Self::Parsed),
            Self::Object(object) => object.get(name).map(Self::Parsed),
        }
    }

    /// Iterates over the members of an object, in the order of the text. Members with an unreadable name are left out.
    pub(crate) fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        let (raw, object) = match self {
            Self::Raw(raw) => (Some(raw), None),
            Self::Parsed(value) => (None, value.as_object()),
            Self::Object(object) => (None, Some(object)),
        };
        let raw = raw.into_iter().flat_map(Raw::members);
        let raw = raw.filter_map(|(name, value)| Some((name.text()?, Self::Raw(value))));
        let object = object.into_iter().flatten();
        raw.chain(object.map(|(name, value)| (name.as_str().into(), Self::Parsed(value))))
    }
}
