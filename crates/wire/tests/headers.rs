//! Header encoding round-trips.

use proptest::{collection::vec, prelude::*, sample::select};
use stayput_wire::{ParamHeaders, Raw, header, json};

fn value() -> impl Strategy<Value = String> {
    let pieces = vec!["a", " ", "\t", "\n", "=?base64?", "?=", "ü", "\u{7f}", "\0", "Zg==", "\r\n"];
    prop_oneof![vec(select(pieces), 0..6).prop_map(|p| p.concat()), any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn header_values_round_trip(value in value()) {
        let sent = header::encode(&value);
        prop_assert!(sent.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')), "{}", sent);
        prop_assert_eq!(sent.trim(), sent.as_ref(), "no proxy may trim it");
        prop_assert_eq!(header::decode(sent.as_bytes()).unwrap(), value.as_str());
    }

    /// A decoded value has one encoding, or needs none.
    #[test]
    fn any_bytes_decode_or_fail(bytes in vec(any::<u8>(), 0..16), marked in any::<bool>()) {
        let bytes = if marked { [b"=?base64?", &bytes[..], b"?="].concat() } else { bytes };
        if let Ok(value) = header::decode(&bytes) {
            let again = header::encode(&value).into_owned();
            prop_assert_eq!(header::decode(again.as_bytes()).unwrap(), value);
        }
    }

    /// Headers made from arguments match these arguments.
    #[test]
    fn param_headers_match_their_arguments(
        text in value(),
        number in -9007199254740991i64..=9007199254740991,
        truth in any::<bool>(),
    ) {
        let schema = r#"{"properties":{
            "t":{"type":"string","x-mcp-header":"T"},
            "o":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "b":{"type":"boolean","x-mcp-header":"B"}}}"#;
        let headers = ParamHeaders::from_schema(Raw::parse(schema).unwrap()).unwrap();
        let quoted = json::quote(&text);
        let arguments = format!(r#"{{"t":{quoted},"o":{{"n":{number}}},"b":{truth}}}"#);
        let arguments = Some(Raw::parse(&arguments).unwrap());
        let sent = headers.values(arguments).unwrap();
        prop_assert_eq!(sent.len(), 3);
        let get = |name: &str| {
            sent.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes())
        };
        prop_assert_eq!(headers.check(arguments, get), Ok(()));
        prop_assert!(headers.check(None, get).is_err());
        prop_assert!(headers.check(arguments, |_| None).is_err());
    }
}
