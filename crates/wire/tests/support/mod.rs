//! Random JSON documents, and a reference parser.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fmt;

use proptest::{collection::vec, prelude::*, sample::select};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// Optional white space between tokens.
fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(""), 1 => select(vec![" ", "\n  ", "\t", " \r\n "])]
}

/// Few names in several spellings, so that duplicates occur.
pub fn key() -> impl Strategy<Value = String> {
    let known = vec![
        r#""a""#,
        r#""\u0061""#,
        r#""b""#,
        r#""_meta""#,
        r#""_m\u0065ta""#,
        r#""params""#,
        r#""""#,
        r#""\"\\""#,
        r#""A""#,
        "\"ü 漢\"",
    ];
    prop_oneof![6 => select(known).prop_map(str::to_owned), 1 => ".{0,6}".prop_map(|s: String| text(&s))]
}

/// Decoded names for a path.
pub fn name() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "_meta", "params", "", "\"\\", "new"]).prop_map(str::to_owned)
}

fn text(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Scalars and empty containers, including ones that a re-encoder would change.
pub fn scalar() -> impl Strategy<Value = String> {
    let known = vec![
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.10",
        "1e400",
        "-1E-7",
        "123456789012345678901234567890",
        r#""\u00e4\/\ud83e\udd80""#,
        r#""a\"b""#,
        "\"},{\"",
        "\"漢\"",
        "{}",
        "[]",
        "{ }",
    ];
    prop_oneof![
        4 => select(known).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => ".{0,12}".prop_map(|s: String| text(&s)),
    ]
}

/// A JSON document.
pub fn document() -> impl Strategy<Value = String> {
    let value = scalar().prop_recursive(4, 48, 6, |inner| {
        let member = (space(), key(), space(), space(), inner.clone(), space())
            .prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"));
        let element = (space(), inner, space()).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        prop_oneof![
            3 => vec(member, 1..6).prop_map(|members| format!("{{{}}}", members.join(","))),
            1 => vec(element, 1..4).prop_map(|elements| format!("[{}]", elements.join(","))),
        ]
    });
    (space(), value, space()).prop_map(|(a, value, b)| format!("{a}{value}{b}"))
}

/// Document as parsed by serde_json, with order, duplicates and scalar texts preserved.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Scalar(String),
}

impl Node {
    pub fn read(json: &str) -> serde_json::Result<Self> {
        let raw: &RawValue = serde_json::from_str(json)?;
        let json = raw.get();
        match json.as_bytes()[0] {
            b'{' => {
                let Entries(entries) = serde_json::from_str(json)?;
                let read = |(key, raw): (String, &RawValue)| Ok((key, Self::read(raw.get())?));
                entries.into_iter().map(read).collect::<Result<_, _>>().map(Self::Object)
            }
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(json)?;
                let read = |raw: &RawValue| Self::read(raw.get());
                elements.into_iter().map(read).collect::<Result<_, _>>().map(Self::Array)
            }
            _ => Ok(Self::Scalar(json.to_owned())),
        }
    }
}

/// Members of an object in order, with their positions in the text.
pub struct Entries<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Visitor)
    }
}

/// Splits `bytes` at the given positions.
pub fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<_> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut chunks = Vec::new();
    let mut done = 0;
    for place in places {
        chunks.push(&bytes[done..place]);
        done = place;
    }
    chunks.push(&bytes[done..]);
    chunks
}
