//! What is JSON here is JSON elsewhere, and the other way round.

mod support;

use proptest::{collection::vec, prelude::*, sample::select};
use serde::de::IgnoredAny;
use stayput_wire::{Message, Problem, Raw, json, span};
use support::{Node, document, name};

/// serde_json's opinion. `IgnoredAny` asks for the grammar alone, as we do: a `Value` would also
/// refuse `1e400` and halves of surrogate pairs.
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

/// Pieces that JSON is made of, in no order.
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
    fn random_pieces_are_judged_alike(bytes in pieces()) {
        prop_assert_eq!(json::check(&bytes).is_ok(), is_json(&bytes));
    }

    #[test]
    fn random_bytes_are_judged_alike(bytes in vec(any::<u8>(), 0..24)) {
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

    /// One byte changed, taken out, doubled, or everything behind it cut off.
    #[test]
    fn damaged_documents_are_judged_alike(
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
        let judged = json::check(&bytes);
        prop_assert_eq!(judged.is_ok(), is_json(&bytes));
        if let Err(error) = judged {
            prop_assert!(error.at() <= bytes.len());
        }
    }

    /// Whatever comes: an answer, no panic, and an error that can itself be read.
    #[test]
    fn every_answer_to_a_message_is_a_message(
        start in select(vec!["{", "{\"jsonrpc\":\"2.0\"", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\""]),
        bytes in pieces(),
    ) {
        let bytes = [start.as_bytes(), &bytes].concat();
        match Message::parse(&bytes) {
            Ok(message) => prop_assert_eq!(message.text().as_bytes(), &bytes[..]),
            Err(error) => {
                prop_assert_eq!(matches!(error.problem(), Problem::Syntax(_)), !is_json(&bytes));
                prop_assert!(Message::parse(error.answer().as_bytes()).unwrap().error().is_some());
            }
        }
    }

    /// The place of a member is where another reader finds its value.
    #[test]
    fn members_are_found_where_they_are(text in document(), path in vec(name(), 0..4)) {
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

    /// Members and elements are walked as another reader lists them.
    #[test]
    fn members_and_elements_are_all_there(text in document()) {
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
    fn strings_are_read_as_elsewhere(said in any::<String>()) {
        let written = serde_json::to_string(&said).unwrap();
        let read = json::unquote(&written);
        prop_assert_eq!(read.as_deref(), Some(said.as_str()));
        let quoted = json::quote(&said);
        prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), said);
    }

    /// Escapes in any order, halves of surrogate pairs among them.
    #[test]
    fn escapes_are_read_as_elsewhere(
        parts in vec(select(vec!["a", "\\n", "\\u0041", "\\ud83e", "\\udd80", "\\uD83E", "ü", "\\\\", "\\u0000"]), 0..6),
    ) {
        let written = format!("\"{}\"", parts.concat());
        let elsewhere = serde_json::from_str::<String>(&written).ok();
        let here = json::unquote(&written);
        prop_assert_eq!(here.as_deref(), elsewhere.as_deref());
    }
}
