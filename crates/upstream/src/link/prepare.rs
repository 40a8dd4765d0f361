//! A request on its way out: our id, our progress token, and what its era wants in it.

use bytes::Bytes;
use stayput_wire::{Era, Kind, Message, Raw, header, meta};

use super::{CallError, Terms};

/// A request as it goes to the server.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) text: Bytes,
    /// The caller's progress token, as it was written.
    pub(crate) token: Option<Box<str>>,
    /// Whether its answer may name the session.
    pub(crate) handshake: bool,
    /// What the modern era wants to see in headers.
    pub(crate) routing: Option<Routing>,
}

/// What the headers of a modern request repeat.
#[derive(Debug, Clone)]
pub(crate) struct Routing {
    pub(crate) method: Box<str>,
    /// The tool, prompt or resource, ready to stand in a header.
    pub(crate) name: Option<Box<str>>,
    pub(crate) params: Vec<(String, String)>,
}

/// Gives the request our number as its id and as its progress token, if it has one.
pub(crate) fn request(
    message: &Message<'_>,
    number: u64,
    terms: Option<&Terms>,
) -> Result<Prepared, CallError> {
    let Kind::Request { id, method, params } = message.kind() else {
        return Err(CallError::Invalid("only a request can be called".into()));
    };
    let token = params.and_then(|it| it.find(&[meta::META, meta::PROGRESS_TOKEN]));
    let modern = terms.filter(|terms| terms.era == Era::Modern);
    if token.is_none() && modern.is_none() {
        let text = line(message.text(), id.raw(), number);
        return Ok(Prepared { text, token: None, handshake: false, routing: None });
    }
    let number = number.to_string();
    let mut edits = message.edit();
    edits.replace(id.raw(), &number);
    if let Some(token) = token {
        edits.replace(token, &number);
    }
    let routing = match modern {
        Some(terms) => {
            // Who speaks the modern era says of its client what it wants to say.
            let own = params.and_then(|it| it.find(&[meta::META, meta::PROTOCOL_VERSION]));
            let unsaid = |key| own.is_some() && key == meta::CLIENT_INFO;
            for (key, json) in terms.meta().filter(|(key, _)| !unsaid(*key)) {
                match params {
                    None => {
                        edits.set(&["params", meta::META, key], json);
                    }
                    Some(params) => match params.find(&[meta::META, key]) {
                        None => {
                            edits.set_in(*params, &[meta::META, key], json);
                        }
                        // The header says what was agreed on, and both have to be the same.
                        Some(said) if key == meta::PROTOCOL_VERSION => {
                            edits.replace(said, json);
                        }
                        Some(_) => {}
                    },
                }
            }
            Some(routing(method, *params, terms)?)
        }
        None => None,
    };
    let text = edits.apply().map_err(|error| CallError::Invalid(error.to_string().into()))?;
    let text = one_line(&text);
    let token = token.map(|token| token.as_str().into());
    Ok(Prepared { text, token, handshake: false, routing })
}

fn routing(method: &str, params: Option<Raw<'_>>, terms: &Terms) -> Result<Routing, CallError> {
    let source = header::name_source(method);
    let name = source.and_then(|source| params?.find(&[source])?.text());
    let marks = name.as_deref().filter(|_| method == "tools/call");
    let marks = marks.and_then(|tool| terms.param_headers(tool));
    let params = match marks {
        Some(marks) => marks.values(params.and_then(|params| params.find(&["arguments"]))),
        None => Ok(Vec::new()),
    };
    let params = params.map_err(|error| CallError::Invalid(error.to_string().into()))?;
    let name = name.map(|name| header::encode(&name).into());
    Ok(Routing { method: method.into(), name, params })
}

/// The text with another id, as one line. This is the way of nearly every call.
fn line(text: &str, id: Raw<'_>, number: u64) -> Bytes {
    let id = id.range();
    let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    // Exactly as much as it takes: what is longer than it has to be is shared at a price.
    let mut line = Vec::with_capacity(text.len() - id.len() + digits + 1);
    line.extend_from_slice(&text.as_bytes()[..id.start]);
    // Writing to a vector does not fail.
    let _ = std::io::Write::write_fmt(&mut line, format_args!("{number}"));
    line.extend_from_slice(&text.as_bytes()[id.end..]);
    end_line(&mut line);
    line.into()
}

/// The text as one line.
pub(crate) fn one_line(text: &str) -> Bytes {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    end_line(&mut line);
    line.into()
}

/// A line break between the values of a JSON text is as good as a space; inside a string it cannot
/// stand. On stdio it would cut the message in two.
fn end_line(line: &mut Vec<u8>) {
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.push(b'\n');
}

/// A request made from its parts. It has no id of its own.
pub(crate) fn compose(method: &str, params: Option<&str>) -> String {
    let method = stayput_wire::json::quote(method);
    match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","id":0,"method":{method},"params":{params}}}"#)
        }
        None => format!(r#"{{"jsonrpc":"2.0","id":0,"method":{method}}}"#),
    }
}

/// A notification made from its parts, as one line.
pub(crate) fn notification(method: &str, params: Option<&str>) -> Bytes {
    let method = stayput_wire::json::quote(method);
    let text = match params {
        Some(params) => format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#),
        None => format!(r#"{{"jsonrpc":"2.0","method":{method}}}"#),
    };
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(text: &str, terms: Option<&Terms>) -> Prepared {
        request(&Message::parse(text.as_bytes()).unwrap(), 17, terms).unwrap()
    }

    #[test]
    fn only_the_id_changes() {
        let said = r#"{ "id" : "a", "x":1.10, "method":"tools/call","params":{"name":"t"},"jsonrpc":"2.0"}"#;
        let made = prepared(said, None);
        assert_eq!(made.text, said.replace("\"a\"", "17") + "\n");
        assert!(made.token.is_none() && made.routing.is_none());
    }

    #[test]
    fn a_message_over_several_lines_becomes_one() {
        let made = prepared("{\"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"method\":\"ping\"}", None);
        assert_eq!(made.text, "{\"jsonrpc\":\"2.0\",   \"id\":17, \"method\":\"ping\"}\n");
    }

    /// A modern client that does not tell its name is not given that of another.
    #[test]
    fn what_a_modern_client_says_of_itself_stays_as_it_is() {
        let terms = Terms::new(stayput_wire::Version::LATEST, &crate::Hello::named("first", "1"));
        let said = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"x":1.0}}}}"#;
        let made = prepared(said, Some(&terms));
        assert_eq!(made.text, said.replace("\"id\":1", "\"id\":17") + "\n");
        let made = prepared(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, Some(&terms));
        assert!(str::from_utf8(&made.text).unwrap().contains("first"));
    }

    #[test]
    fn a_progress_token_is_ours_upstream() {
        let made = prepared(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t\u00e4","x":1}}}"#,
            None,
        );
        assert_eq!(made.token.as_deref(), Some(r#""t\u00e4""#));
        assert_eq!(
            made.text,
            "{\"jsonrpc\":\"2.0\",\"id\":17,\"method\":\"m\",\"params\":{\"_meta\":{\"progressToken\":17,\"x\":1}}}\n"
        );
    }
}
