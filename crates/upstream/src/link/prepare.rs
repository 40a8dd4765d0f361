//! Preparation of a request: sets our id, our progress token and the fields of the era.

use bytes::Bytes;
use stayput_wire::{Era, Message, MessageKind, Raw, end_line, header, json, meta};

use super::{CallError, NegotiatedProtocol};

/// Request as it is sent to the server.
#[derive(Debug)]
pub(crate) struct PreparedMessage {
    pub(crate) text: Bytes,
    /// Progress token of the caller, as it was written.
    pub(crate) token: Option<Box<str>>,
    /// Whether the answer may name the session.
    pub(crate) handshake: bool,
    /// Values for the headers of the modern era.
    pub(crate) routing: Option<Box<Routing>>,
}

/// Values that the headers of a modern request repeat.
#[derive(Debug, Clone)]
pub(crate) struct Routing {
    pub(crate) method: Box<str>,
    /// Name of the tool, prompt or resource, encoded for a header.
    pub(crate) name: Option<Box<str>>,
    pub(crate) params: Vec<(String, String)>,
}

/// Replaces the id of the request, and its progress token if it has one, by our number.
pub(crate) fn request(
    message: &Message<'_>,
    number: u64,
    protocol: Option<&NegotiatedProtocol>,
) -> Result<PreparedMessage, CallError> {
    let MessageKind::Request { id, method, params } = message.kind() else {
        return Err(CallError::Invalid("only a request can be called".into()));
    };
    let token = message.meta().and_then(|it| it.find(&[meta::PROGRESS_TOKEN]));
    let modern = protocol.filter(|protocol| protocol.era() == Era::Modern);
    if token.is_none() && modern.is_none() {
        let text = line(message.text(), id.raw(), number);
        return Ok(PreparedMessage { text, token: None, handshake: false, routing: None });
    }
    let number = number.to_string();
    let mut edits = message.edit();
    edits.replace(id.raw(), &number);
    if let Some(token) = token {
        edits.replace(token, &number);
    }
    let routing = match modern {
        Some(protocol) => {
            // A client of the modern era decides itself whether it sends its client info.
            let own = message.meta().and_then(|it| it.find(&[meta::PROTOCOL_VERSION]));
            let unsaid = |key| own.is_some() && key == meta::CLIENT_INFO;
            for (key, json) in protocol.meta().filter(|(key, _)| !unsaid(*key)) {
                match params {
                    None => {
                        edits.set(&["params", meta::META, key], json);
                    }
                    Some(params) => match message.meta().and_then(|it| it.find(&[key])) {
                        None => {
                            edits.set_in(*params, &[meta::META, key], json);
                        }
                        // The body has to match the header, which carries the negotiated version.
                        Some(value) if key == meta::PROTOCOL_VERSION => {
                            edits.replace(value, json);
                        }
                        Some(_) => {}
                    },
                }
            }
            Some(Box::new(routing(method, *params, protocol)?))
        }
        None => None,
    };
    let text = edits.apply().map_err(|error| CallError::Invalid(error.to_string().into()))?;
    let text = one_line(&text);
    let token = token.map(|token| token.as_str().into());
    Ok(PreparedMessage { text, token, handshake: false, routing })
}

fn routing(
    method: &str,
    params: Option<Raw<'_>>,
    protocol: &NegotiatedProtocol,
) -> Result<Routing, CallError> {
    let source = header::name_member(method);
    let name = source.and_then(|source| params?.find(&[source])?.text());
    let marks = name.as_deref().filter(|_| method == "tools/call");
    let marks = marks.and_then(|tool| protocol.param_headers(tool));
    let params = match marks {
        Some(marks) => marks.values(params.and_then(|params| params.find(&["arguments"]))),
        None => Ok(Vec::new()),
    };
    let params = params.map_err(|error| CallError::Invalid(error.to_string().into()))?;
    let name = name.map(|name| header::encode(&name).into());
    Ok(Routing { method: method.into(), name, params })
}

/// Builds a request directly from its parts, if only the id has to be set: for a legacy server, without a
/// progress token, and with an object as parameters. `None` otherwise.
pub(crate) fn plain(
    method: &str,
    params: Option<&str>,
    number: u64,
    protocol: Option<&NegotiatedProtocol>,
) -> Option<PreparedMessage> {
    if protocol.is_some_and(|protocol| protocol.era() == Era::Modern) {
        return None;
    }
    let special = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
    if method.bytes().any(special) {
        return None;
    }
    if let Some(params) = params {
        let (_, meta) = Raw::parse_with(params, meta::META)?;
        if meta.is_some_and(|meta| meta.find(&[meta::PROGRESS_TOKEN]).is_some()) {
            return None;
        }
    }
    let (params, name) = match params {
        Some(params) => (params, r#","params":"#),
        None => ("", ""),
    };
    let parts = [r#","method":""#, method, r#"""#, name, params, "}"];
    let head = br#"{"jsonrpc":"2.0","id":"#;
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut line = Vec::with_capacity(head.len() + digits(number) + length + 1);
    line.extend_from_slice(head);
    json::push_number(&mut line, number);
    parts.iter().for_each(|part| line.extend_from_slice(part.as_bytes()));
    end_line(&mut line);
    Some(PreparedMessage { text: line.into(), token: None, handshake: false, routing: None })
}

/// Number of decimal digits. Buffers get the exact size: `Bytes` needs an extra allocation for a `Vec` with
/// spare capacity.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Replaces the id and terminates the text as one line. Nearly every call takes this path.
fn line(text: &str, id: Raw<'_>, number: u64) -> Bytes {
    let id = id.range();
    let mut line = Vec::with_capacity(text.len() - id.len() + digits(number) + 1);
    line.extend_from_slice(&text.as_bytes()[..id.start]);
    json::push_number(&mut line, number);
    line.extend_from_slice(&text.as_bytes()[id.end..]);
    end_line(&mut line);
    line.into()
}

/// Terminates the text as one line.
pub(crate) fn one_line(text: &str) -> Bytes {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    end_line(&mut line);
    line.into()
}

/// Builds a request from its parts, with a placeholder id.
pub(crate) fn compose(method: &str, params: Option<&str>) -> String {
    let method = json::quote(method);
    match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","id":0,"method":{method},"params":{params}}}"#)
        }
        None => format!(r#"{{"jsonrpc":"2.0","id":0,"method":{method}}}"#),
    }
}

/// Builds a notification from its parts, as one line.
pub(crate) fn notification(method: &str, params: Option<&str>) -> Bytes {
    let method = json::quote(method);
    let text = match params {
        Some(params) => format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#),
        None => format!(r#"{{"jsonrpc":"2.0","method":{method}}}"#),
    };
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(text: &str, protocol: Option<&NegotiatedProtocol>) -> PreparedMessage {
        request(&Message::parse(text.as_bytes()).unwrap(), 17, protocol).unwrap()
    }

    #[test]
    fn request_changes_only_the_id() {
        let text = r#"{ "id" : "a", "x":1.10, "method":"tools/call","params":{"name":"t"},"jsonrpc":"2.0"}"#;
        let output = prepared(text, None);
        assert_eq!(output.text, text.replace("\"a\"", "17") + "\n");
        assert!(output.token.is_none() && output.routing.is_none());
    }

    #[test]
    fn every_number_is_written_with_all_digits() {
        for number in [0, 1, 9, 10, 17, 99, 100, 1_234_567_890, u64::MAX - 1, u64::MAX] {
            let mut line = b"n".to_vec();
            json::push_number(&mut line, number);
            assert_eq!(line, format!("n{number}").as_bytes());
            assert_eq!(digits(number), line.len() - 1);
        }
    }

    /// The direct path and the path through a parsed message give the same text.
    #[test]
    fn plain_request_equals_the_parsed_one() {
        let legacy =
            NegotiatedProtocol::new(stayput_wire::Version::LATEST_LEGACY, &Default::default());
        for params in [None, Some("{}"), Some("{\"a\":\n[1.10]}"), Some(r#"{"_meta":{"x":1}}"#)] {
            let quick = plain("tools/call", params, 17, Some(&legacy)).unwrap();
            let text = compose("tools/call", params);
            assert_eq!(quick.text, prepared(&text, Some(&legacy)).text);
        }
        let modern = NegotiatedProtocol::new(stayput_wire::Version::LATEST, &Default::default());
        assert!(plain("ping", None, 17, Some(&modern)).is_none());
        assert!(plain("pi\"ng", None, 17, None).is_none());
        for params in ["{", "[]", "null", "{} {}", r#"{"_meta":{"progressToken":1}}"#] {
            assert!(plain("ping", Some(params), 17, None).is_none(), "{params}");
        }
    }

    #[test]
    fn multi_line_message_becomes_one_line() {
        let output = prepared("{\"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"method\":\"ping\"}", None);
        assert_eq!(output.text, "{\"jsonrpc\":\"2.0\",   \"id\":17, \"method\":\"ping\"}\n");
    }

    /// A modern client without a client info does not get that of another client.
    #[test]
    fn meta_of_a_modern_client_stays_unchanged() {
        let protocol = NegotiatedProtocol::new(
            stayput_wire::Version::LATEST,
            &crate::ClientInfo::named("first", "1"),
        );
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"x":1.0}}}}"#;
        let output = prepared(text, Some(&protocol));
        assert_eq!(output.text, text.replace("\"id\":1", "\"id\":17") + "\n");
        let output = prepared(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, Some(&protocol));
        assert!(str::from_utf8(&output.text).unwrap().contains("first"));
    }

    #[test]
    fn progress_token_is_replaced_upstream() {
        let output = prepared(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t\u00e4","x":1}}}"#,
            None,
        );
        assert_eq!(output.token.as_deref(), Some(r#""t\u00e4""#));
        assert_eq!(
            output.text,
            "{\"jsonrpc\":\"2.0\",\"id\":17,\"method\":\"m\",\"params\":{\"_meta\":{\"progressToken\":17,\"x\":1}}}\n"
        );
    }
}
