//! Heads of requests and responses.

use std::{io, mem::MaybeUninit};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{AUTHORIZATION, HOST},
};
use stayput_wire::{header::JSON, json};

use super::{copy, framing::Framing, invalid_response};
use crate::Request;

/// Maximum number of headers of a response.
const MAX_HEADERS: usize = 100;

/// Head of a response.
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the connection can be used again.
    pub(super) keep: bool,
}

/// Builds the head of a request, with capacity for a body that goes out with it.
pub(super) fn write(request: &Request, more: &[(HeaderName, HeaderValue)]) -> Vec<u8> {
    let (uri, own) = (request.url.uri(), &request.headers);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut out = Vec::with_capacity(512 + path.len() + request.body.len().min(16 << 10));
    for part in [request.method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let given = |name: &HeaderName| more.iter().any(|(known, _)| known == name);
    let is_missing = |name: &HeaderName| !own.contains_key(name) && !given(name);
    if is_missing(&HOST) {
        let host = uri.authority().map_or("", |host| host.as_str());
        line(&mut out, HOST.as_str(), host.as_bytes());
    }
    // Headers in `more` override those of the request, and the last of several in `more` counts.
    for (name, value) in own.iter().filter(|(name, _)| !given(name)) {
        line(&mut out, name.as_str(), value.as_bytes());
    }
    for (at, (name, value)) in more.iter().enumerate() {
        if !more[at + 1..].iter().any(|(later, _)| later == name) {
            line(&mut out, name.as_str(), value.as_bytes());
        }
    }
    if let Some(authorization) = request.url.authorization().filter(|_| is_missing(&AUTHORIZATION))
    {
        line(&mut out, AUTHORIZATION.as_str(), authorization.as_bytes());
    }
    if request.says_length() {
        out.extend_from_slice(b"content-length: ");
        json::push_number(&mut out, request.body.len() as u64);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Reads the head of a response at the start of `bytes`, after heads that only announce it (1xx). Also returns
/// the number of bytes that were used.
pub(super) fn read_last(bytes: &[u8], method: &Method) -> io::Result<(Option<Head>, usize)> {
    let mut used = 0;
    while let Some((head, length)) = read(&bytes[used..], method)? {
        used += length;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(invalid_response(
                "it changes to another protocol, which was not requested",
            ));
        }
        if !head.status.is_informational() {
            return Ok((Some(head), used));
        }
    }
    Ok((None, used))
}

fn read(bytes: &[u8], method: &Method) -> io::Result<Option<(Head, usize)>> {
    let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut answer = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut answer, bytes, &mut room);
    let length = match parsed.map_err(|error| invalid_response(&error.to_string()))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = StatusCode::from_u16(answer.code.unwrap_or_default());
    let status = status.map_err(|_| invalid_response("its status is none"))?;
    let (fields, modern) = (HeaderFields(answer.headers), answer.version == Some(1));
    let framing = framing(&fields, status, method, modern)?;
    let both = fields.has(CODING) && fields.has(LENGTH);
    // A server that sends both may mean another end of the body than we do.
    let keep = stays_open(&fields, modern) && framing != Framing::Close && !both;
    let headers = fields.rest(&bytes[..length])?;
    Ok(Some((Head { status, headers, framing, keep }, length)))
}

/// Headers that concern only the connection, or are of no use. The reader of the response does not get them.
const OURS: [&str; 4] = [LENGTH, CODING, CONNECTION, "date"];
const LENGTH: &str = "content-length";
const CODING: &str = "transfer-encoding";
const CONNECTION: &str = "connection";

/// Headers of a response, in the buffer they were read into.
struct HeaderFields<'a>(&'a [httparse::Header<'a>]);

impl<'a> HeaderFields<'a> {
    /// Returns all values of one header.
    fn all(&self, name: &'static str) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a> {
        let named = move |header: &&httparse::Header<'_>| is(header, name);
        self.0.iter().filter(named).map(|header| header.value)
    }

    fn has(&self, name: &'static str) -> bool {
        self.all(name).next().is_some()
    }

    /// Returns the headers for the reader of the response.
    fn rest(&self, head: &[u8]) -> io::Result<HeaderMap> {
        let ours = |header: &&httparse::Header<'_>| !OURS.iter().any(|ours| is(header, ours));
        let mut headers = HeaderMap::with_capacity(self.0.iter().filter(ours).count());
        // One copy for all values, which outlive the buffer.
        let mut copied = None;
        for header in self.0.iter().filter(ours) {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let name = name.map_err(|_| invalid_response("a header has a name that is none"))?;
            let value = match header.value {
                // Nearly every response has this value.
                value if value == JSON.as_bytes() => Ok(HeaderValue::from_static(JSON)),
                [] => Ok(HeaderValue::from_static("")),
                value => {
                    let at = (value.as_ptr() as usize).saturating_sub(head.as_ptr() as usize);
                    let copied = copied.get_or_insert_with(|| copy(head));
                    HeaderValue::from_maybe_shared(copied.slice(at..at + value.len()))
                }
            };
            headers.append(
                name,
                value.map_err(|_| invalid_response("a header has a value that is none"))?,
            );
        }
        Ok(headers)
    }
}

fn is(header: &httparse::Header<'_>, name: &str) -> bool {
    header.name.eq_ignore_ascii_case(name)
}

/// Determines where the body ends (RFC 9112, section 6.3).
fn framing(
    fields: &HeaderFields<'_>,
    status: StatusCode,
    method: &Method,
    modern: bool,
) -> io::Result<Framing> {
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless || status.is_informational() || method == Method::HEAD {
        return Ok(Framing::Length(0));
    }
    if let Some(last) = fields.all(CODING).next_back() {
        if !modern {
            return Err(invalid_response("HTTP/1.0 knows no chunks"));
        }
        let last = last.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        let chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return Ok(if chunked { Framing::chunked() } else { Framing::Close });
    }
    let mut length = None;
    for fields in fields.all(LENGTH) {
        for fields in fields.split(|byte| *byte == b',') {
            let fields = number(fields.trim_ascii());
            let fields =
                fields.ok_or_else(|| invalid_response("the length of its answer is no number"))?;
            if length.is_some_and(|length| length != fields) {
                return Err(invalid_response("it names two lengths of its answer"));
            }
            length = Some(fields);
        }
    }
    Ok(length.map_or(Framing::Close, Framing::Length))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns whether the server lets the connection be used again.
fn stays_open(fields: &HeaderFields<'_>, modern: bool) -> bool {
    let says = |what: &[u8]| {
        let mut all = fields.all(CONNECTION).flat_map(|value| value.split(|byte| *byte == b','));
        all.any(|option| option.trim_ascii().eq_ignore_ascii_case(what))
    };
    !says(b"close") && (modern || says(b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> io::Result<Option<Head>> {
        Ok(read_last(text.as_bytes(), &Method::POST)?.0)
    }

    fn whole(text: &str) -> (Framing, bool) {
        let head = head(&format!("{text}\r\n\r\n")).unwrap().unwrap();
        (head.framing, head.keep)
    }

    #[test]
    fn body_ends_where_the_head_says() {
        for (fields, framing, keep) in [
            ("HTTP/1.1 200 OK", Framing::Close, false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5", Framing::Length(5), true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5", Framing::Length(5), true),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: Close",
                Framing::Length(5),
                false,
            ),
            ("HTTP/1.1 204 No\r\nContent-Length: 5", Framing::Length(0), true),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5", Framing::Length(5), false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: x, keep-alive",
                Framing::Length(5),
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", Framing::chunked(), true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip", Framing::Close, false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
                Framing::chunked(),
                false,
            ),
        ] {
            assert_eq!(whole(fields), (framing, keep), "{fields}");
        }
    }

    #[test]
    fn ambiguous_head_is_refused() {
        for fields in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
            "HTTP/1.1 200 OK\r\nContent-Length: +5",
            "HTTP/1.1 200 OK\r\nContent-Length: ",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
            "HTTP/1.1 101 Switching Protocols",
            "HTTP/2 200 OK",
            "SSH-2.0-OpenSSH_9.2",
        ] {
            assert!(head(&format!("{fields}\r\n\r\n")).is_err(), "{fields}");
        }
        assert!(head("SSH-2.0-OpenSSH_9.2\r\n").is_err(), "there is nothing to wait for");
    }

    #[test]
    fn informational_heads_are_skipped() {
        let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
        let fields = format!("{early}{last}x");
        let (head, used) = read_last(fields.as_bytes(), &Method::POST).unwrap();
        assert_eq!((head.unwrap().status, used), (StatusCode::OK, fields.len() - 1));
        let (head, used) = read_last(&fields.as_bytes()[..early.len() + 9], &Method::POST).unwrap();
        assert_eq!((head.is_none(), used), (true, early.len()));
    }

    #[test]
    fn response_to_head_has_no_body() {
        let fields = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let head = read_last(fields, &Method::HEAD).unwrap().0.unwrap();
        assert_eq!(head.framing, Framing::Length(0));
    }
}
