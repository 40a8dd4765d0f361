use super::*;
use crate::Code;

fn problem(text: &str) -> MessageProblem {
    Message::parse(text.as_bytes()).unwrap_err().problem().clone()
}

#[test]
fn four_message_kinds_are_distinguished() {
    let parse = |text: &'static str| Message::parse(text.as_bytes()).unwrap();
    let request =
        parse(r#" {"jsonrpc":"2.0","method":"tools/call","x":[],"params":{"a":1.10},"id":7} "#);
    assert_eq!(request.method(), Some("tools/call"));
    assert_eq!(request.params().unwrap().as_str(), r#"{"a":1.10}"#);
    assert_eq!(request.id().unwrap().number(), Some(7));
    assert_eq!(&request.text()[request.id().unwrap().raw().range()], "7");

    let notification = parse(r#"{"jsonrpc":"2.0","method":"a\/b","params":null}"#);
    assert!(matches!(notification.kind(), MessageKind::Notification { params: None, .. }));
    assert_eq!(notification.method(), Some("a/b"));
    assert!(notification.id().is_none());

    let response = parse(r#"{"jsonrpc":"2.0","id":"x","result":{"ok":true}}"#);
    assert_eq!(response.result().unwrap().as_str(), r#"{"ok":true}"#);
    assert_eq!(response.id().unwrap().as_str(), "\"x\"");

    let error = parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}"#);
    assert!(matches!(error.kind(), MessageKind::Error { id: None, .. }));
    assert_eq!(error.error().unwrap().find(&["code"]).unwrap().integer(), Some(-1));
    let error = parse(r#"{"jsonrpc":"2.0","error":{}}"#);
    assert!(matches!(error.kind(), MessageKind::Error { id: None, .. }));
    assert!(error.method().is_none() && error.params().is_none() && error.result().is_none());
}

/// Stayput and the server must see the same message.
#[test]
fn ambiguous_envelope_is_refused() {
    for (text, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#, MessageProblem::Twice("method")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#,
            MessageProblem::Twice("method"),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","id":2}"#, MessageProblem::Twice("id")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#,
            MessageProblem::Twice("params"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}"#,
            MessageProblem::Lookalike("method"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"reſult":{},"method":"b"}"#,
            MessageProblem::Lookalike("result"),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#, MessageProblem::Mixed),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, MessageProblem::Mixed),
    ] {
        assert_eq!(problem(text), expected, "{text}");
    }
    // Members inside the parameters are not checked.
    let inside = r#"{"jsonrpc":"2.0","method":"a","params":{"a":1,"a":2,"Method":3}}"#;
    assert!(Message::parse(inside.as_bytes()).is_ok());
}

#[test]
fn invalid_message_is_reported_with_position_and_code() {
    for (text, expected, at) in [
        ("{\"jsonrpc\":\"2.0\",", MessageProblem::Syntax(SyntaxKind::End), 17),
        ("[]", MessageProblem::Batch, 0),
        (" 7", MessageProblem::NotAnObject, 1),
        ("{} {}", MessageProblem::Syntax(SyntaxKind::Trailing), 3),
        (r#"{"id":1,"method":"a"}"#, MessageProblem::NoVersion, 0),
        (r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#, MessageProblem::NoVersion, 11),
        (r#"{"jsonrpc":"2.0","id":1}"#, MessageProblem::Nothing, 0),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, MessageProblem::Method, 33),
        (r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, MessageProblem::Method, 33),
        (r#"{"jsonrpc":"2.0","method":"a","params":"b"}"#, MessageProblem::Params, 39),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, MessageProblem::Id(InvalidId::Null), 22),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, MessageProblem::Id(InvalidId::Fraction), 22),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, MessageProblem::Id(InvalidId::Kind), 22),
        (r#"{"jsonrpc":"2.0","result":1}"#, MessageProblem::NoId, 0),
        (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, MessageProblem::Error, 32),
    ] {
        let error = Message::parse(text.as_bytes()).unwrap_err();
        assert_eq!((error.problem(), error.at()), (&expected, at), "{text}");
        let broken = matches!(expected, MessageProblem::Syntax(_));
        let code = if broken { Code::PARSE_ERROR } else { Code::INVALID_REQUEST };
        assert_eq!(error.code(), code, "{text}");
        assert!(Message::parse(error.answer().as_bytes()).unwrap().error().is_some());
    }
}

/// The sender gets a response, wherever the id is.
#[test]
fn error_carries_the_readable_id() {
    let id = |text: &str| {
        Message::parse(text.as_bytes()).unwrap_err().id().map(|id| id.as_str().to_owned())
    };
    assert_eq!(id(r#"{"method":7,"id":"\u0061"}"#).as_deref(), Some(r#""\u0061""#));
    assert_eq!(id(r#"{"jsonrpc":"2.0","method":"a","method":"b","id":3}"#).as_deref(), Some("3"));
    assert_eq!(id(r#"{"jsonrpc":"2.0","method":"a","id":3,"id":4}"#), None);
    assert_eq!(id(r#"{"jsonrpc":"2.0","method":"a","id":3,"ID":4}"#), None);
    assert_eq!(id(r#"{"jsonrpc":"2.0","method":"a","id":3"#), None, "not JSON, so nobody's");
}

#[test]
fn size_and_depth_are_bounded() {
    let text = br#"{"jsonrpc":"2.0","method":"a"}"#;
    assert!(Message::parse_within(text, text.len()).is_ok());
    let error = Message::parse_within(text, text.len() - 1).unwrap_err();
    assert_eq!(error.problem(), &MessageProblem::TooLarge { size: 30, limit: 29 });

    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","method":"a","params":{open}{close}}}"#)
    };
    assert!(Message::parse(nested(127).as_bytes()).is_ok());
    assert_eq!(problem(&nested(128)), MessageProblem::TooDeep);
    assert_eq!(problem(&nested(1 << 20)), MessageProblem::TooDeep);

    let asked = nested(128).replace(r#""method""#, r#""id":5,"method""#);
    let error = Message::parse(asked.as_bytes()).unwrap_err();
    assert_eq!(error.id().map(|id| id.as_str()), Some("5"), "somebody waits");
}

/// Invariant 8: content may be secret.
#[test]
fn debug_and_errors_show_no_content() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"handle":"sp_secret"}}"#;
    let shown = format!("{:?}", Message::parse(text.as_bytes()).unwrap());
    assert!(!shown.contains("secret"), "{shown}");
    let error = Message::parse(&text.as_bytes()[..60]).unwrap_err();
    assert!(!format!("{error:?} {error}").contains("secret"));
}
