//! Differential tests against serde_json.

mod support;

use proptest::{collection::vec, prelude::*, sample::select};
use serde::de::IgnoredAny;
use stayput_wire::{Message, MessageProblem, Raw, json, span};
use support::{Node, document, name};

/// Asks serde_json. `IgnoredAny` checks the grammar only: a `Value` would refuse `1e400` and lone surrogates.
fn is_json(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in bytes {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Random sequences of JSON tokens and fragments.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<&[u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\"a\"",
        b"\\",
        b"\\u",
        b"\\ud800",
        b"00e4",
        b"n",
        b"null",
        b"true",
        b"fals",
        b"e",
        b"0",
        b"-",
        b"1",
        b".",
        b"E+",
        b" ",
        b"\n",
        b"\r",
        b"\t",
        b"\x0b",
        b"\0",
        b"\x1f",
        b"\x7f",
        b"\xc3\xa4",
        b"\xff",
        b"\xe2\x80\xa8",
        b"\xef\xbb\xbf",
        b"\"k\":1",
        b"[1,2]",
        b"1.10",
        b"1e400",
        b"//",
        b"'",
    ];
    vec(select(known), 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_pieces_agree_with_serde_json(bytes in pieces()) {
        prop_assert_eq!(json::check(&bytes).is_ok(), is_json(&bytes));
    }

    #[test]
    fn random_bytes_agree_with_serde_json(bytes in vec(any::<u8>(), 0..24)) {
        prop_assert_eq!(json::check(&bytes).is_ok(), is_json(&bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn documents_are_accepted(text in document()) {
        prop_assert!(is_json(text.as_bytes()));
        prop_assert_eq!(json::check(text.as_bytes()), Ok(text.as_str()));
    }

    /// Changes, removes or inserts one byte, or cuts the rest off.
    #[test]
    fn damaged_documents_agree_with_serde_json(
        text in document(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        how in 0..4,
    ) {
        let mut bytes = text.into_bytes();
        let place = place.index(bytes.len());
        match how {
            0 => bytes[place] = byte,
            1 => drop(bytes.remove(place)),
            2 => bytes.insert(place, byte),
            _ => bytes.truncate(place),
        }
        prop_assert!(depth(&bytes) < 128, "no document is so deep");
        let result = json::check(&bytes);
        prop_assert_eq!(result.is_ok(), is_json(&bytes));
        if let Err(error) = result {
            prop_assert!(error.at() <= bytes.len());
        }
    }

    /// Any input yields a message or an error whose answer is a valid message.
    #[test]
    fn every_error_answer_is_a_message(
        start in select(vec!["{", "{\"jsonrpc\":\"2.0\"", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\""]),
        bytes in pieces(),
    ) {
        let bytes = [start.as_bytes(), &bytes].concat();
        match Message::parse(&bytes) {
            Ok(message) => prop_assert_eq!(message.text().as_bytes(), &bytes[..]),
            Err(error) => {
                prop_assert_eq!(matches!(error.problem(), MessageProblem::Syntax(_)), !is_json(&bytes));
                prop_assert!(Message::parse(error.answer().as_bytes()).unwrap().error().is_some());
            }
        }
    }

    /// A member is found where serde_json finds it.
    #[test]
    fn members_are_found_like_in_serde_json(text in document(), path in vec(name(), 0..4)) {
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let mut node = Some(Node::read(&text).unwrap());
        for name in &path {
            node = match node {
                Some(Node::Object(members)) => {
                    members.into_iter().rfind(|(key, _)| key == name).map(|(_, value)| value)
                }
                _ => None,
            };
        }
        let found = span::find(&text, &path);
        let read = found.clone().map(|range| Node::read(&text[range]).unwrap());
        prop_assert_eq!(read, node);
        let raw = Raw::parse(&text).unwrap().find(&path);
        prop_assert_eq!(&raw.map(Raw::range), &found);
        if let Ok(Some(unique)) = span::find_unique(&text, &path) {
            prop_assert_eq!(Some(unique), found);
        }
    }

    /// Members and elements equal those of serde_json.
    #[test]
    fn members_and_elements_equal_serde_json(text in document()) {
        let whole = Raw::parse(&text).unwrap();
        let read = |raw: Raw<'_>| Node::read(raw.as_str()).unwrap();
        match Node::read(&text).unwrap() {
            Node::Object(members) => {
                let walked: Vec<_> = whole
                    .members()
                    .map(|(key, value)| (key.text().unwrap().into_owned(), read(value)))
                    .collect();
                prop_assert_eq!(walked, members);
            }
            Node::Array(elements) => {
                prop_assert_eq!(whole.elements().map(read).collect::<Vec<_>>(), elements);
            }
            Node::Scalar(scalar) => prop_assert_eq!(whole.as_str(), scalar),
        }
    }

    #[test]
    fn strings_decode_like_serde_json(text in any::<String>()) {
        let written = serde_json::to_string(&text).unwrap();
        let read = json::unquote(&written);
        prop_assert_eq!(read.as_deref(), Some(text.as_str()));
        let quoted = json::quote(&text);
        prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
    }

    /// Escapes in any order, including lone surrogates.
    #[test]
    fn escapes_decode_like_serde_json(
        parts in vec(select(vec!["a", "\\n", "\\u0041", "\\ud83e", "\\udd80", "\\uD83E", "ü", "\\\\", "\\u0000"]), 0..6),
    ) {
        let written = format!("\"{}\"", parts.concat());
        let expected = serde_json::from_str::<String>(&written).ok();
        let decoded = json::unquote(&written);
        prop_assert_eq!(decoded.as_deref(), expected.as_deref());
    }
}
