//! Parser of the HTTP/1.1 request head: request line and headers.

use std::{borrow::Cow, mem::MaybeUninit, ops::Range};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header::HOST};

use crate::identify::header_names;

/// Largest number of headers.
const MAX_HEADERS: usize = 100;

/// Longest path and query, in bytes.
const TARGET: usize = 16 << 10;

/// Parsed head of a request.
#[derive(Debug)]
pub(in crate::listen) struct Head {
    pub(in crate::listen) method: Method,
    pub(in crate::listen) uri: Uri,
    pub(in crate::listen) headers: HeaderMap,
    pub(super) length: Length,
    /// Whether the client wants to use the connection again.
    pub(super) keep: bool,
    /// Whether the request is HTTP/1.1.
    pub(super) modern: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) expects: bool,
    /// Raw bytes, and the range of the digits of `Content-Length` in them. The range is empty and at the end if there
    /// are none.
    said: Bytes,
    digits: Range<usize>,
}

/// Length of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    /// The body uses the chunked transfer coding.
    Chunked,
}

/// Refusal of an invalid head: status and message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad(pub(super) StatusCode, pub(super) Cow<'static, str>);

fn too_large(limit: usize) -> Bad {
    let sentence = format!(
        "the headers have more than {limit} bytes, which is `limits.headers`, or are more than {MAX_HEADERS}"
    );
    Bad(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, sentence.into())
}

const TOO_LONG: Bad = Bad(
    StatusCode::URI_TOO_LONG,
    Cow::Borrowed("the path has more than 16384 bytes, which is the limit"),
);

fn bad(what: &'static str) -> Bad {
    Bad(StatusCode::BAD_REQUEST, Cow::Borrowed(what))
}

/// Largest head, in bytes, that is kept for the next request.
const MAX_CACHED_HEAD: usize = 4 << 10;

/// Does the same as [`read`], but reuses the `last` head of the connection. Most clients repeat the same head except
/// for the length, and such a head is not parsed again.
pub(super) fn read_next(
    bytes: &[u8],
    limit: usize,
    last: &mut Option<Box<Head>>,
) -> Result<Option<(Box<Head>, usize)>, Bad> {
    let repeated = last.as_ref().and_then(|last| last.repeated(bytes));
    if let Some((length, size)) = repeated.filter(|(_, size)| *size <= limit)
        && let Some(mut head) = last.take()
    {
        head.length = length;
        return Ok(Some((head, size)));
    }
    let read = read(bytes, limit)?;
    Ok(read.map(|(head, size)| (Box::new(head), size)))
}

impl Head {
    /// Whether the head is small enough to be kept for the next request.
    pub(super) fn is_small(&self) -> bool {
        self.said.len() <= MAX_CACHED_HEAD
    }

    /// Returns the length of the body and the size of the head, if `bytes` repeat this head except for
    /// `Content-Length`.
    fn repeated(&self, bytes: &[u8]) -> Option<(Length, usize)> {
        let Range { start, end } = self.digits;
        let (before, behind) = (self.said.get(..start)?, self.said.get(end..)?);
        let rest = bytes.strip_prefix(before)?;
        let fixed = self.digits.is_empty();
        let digits = rest.iter().take_while(|byte| !fixed && byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        let length = match fixed {
            true => self.length,
            false => Length::Known(str::from_utf8(number).ok()?.parse().ok()?),
        };
        rest.starts_with(behind).then_some((length, start + digits + behind.len()))
    }
}

/// Parses the head at the start of `bytes` and returns its size; `None` if it is incomplete. An ambiguous head is
/// refused, because a proxy in front of the gateway may read it differently (request smuggling).
fn read(bytes: &[u8], limit: usize) -> Result<Option<(Head, usize)>, Bad> {
    let mut buffer = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let size = match request.parse_with_uninit_headers(bytes, &mut buffer) {
        Ok(httparse::Status::Complete(size)) if size <= limit => size,
        Ok(httparse::Status::Partial) if bytes.len() < limit => return Ok(None),
        Ok(_) if request.path.is_none_or(|it| it.len() > TARGET) => return Err(TOO_LONG),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(too_large(limit)),
        Err(httparse::Error::Version) => return Err(bad("only HTTP/1.1 is spoken here")),
        Err(_) => return Err(bad("this is not HTTP/1.1")),
    };
    let whole = &bytes[..size];
    if has_half_break(whole) {
        return Err(bad("a line ends in half a line break"));
    }
    let path = request.path.unwrap_or_default();
    if path.len() > TARGET {
        return Err(TOO_LONG);
    }
    // One copy backs everything that outlives the read buffer.
    let copy = Copy { at: bytes.as_ptr() as usize, bytes: Bytes::copy_from_slice(whole) };
    let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes());
    let method = method.map_err(|_| bad("the method is none"))?;
    let uri = Uri::from_maybe_shared(copy.of(path.as_bytes()));
    let uri = uri.map_err(|_| bad("the path is none"))?;
    let (said, modern) = (Said(request.headers), request.version == Some(1));
    let length = length(&said, modern)?;
    let keep = stays_open(&said, modern);
    let mut expected = said.all(EXPECT).map(|it| it.eq_ignore_ascii_case(b"100-continue"));
    let expects = modern && expected.any(|it| it);
    let headers = said.rest(&copy)?;
    let digits = said.all(LENGTH).next().map_or(size..size, |digits| copy.place(digits));
    let said = copy.bytes;
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(bad("there is more than one Host"));
    }
    Ok(Some((Head { method, uri, headers, length, keep, modern, expects, said, digits }, size)))
}

/// Whether a line ends without its carriage return. The loop does not stop early, so that the compiler can use vector
/// comparisons.
fn has_half_break(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    let half = pairs.fold(0_u8, |half, (before, byte)| {
        half | u8::from(*byte == b'\n') & u8::from(*before != b'\r')
    });
    half != 0 || head.first() == Some(&b'\n')
}

/// Copy of the bytes that were parsed.
struct Copy {
    /// Address of the original bytes.
    at: usize,
    bytes: Bytes,
}

impl Copy {
    /// Returns the copy of a part of the original.
    fn of(&self, part: &[u8]) -> Bytes {
        if part.is_empty() {
            return Bytes::new();
        }
        self.bytes.slice(self.place(part))
    }

    /// Returns the range of a part of the original.
    fn place(&self, part: &[u8]) -> Range<usize> {
        let at = (part.as_ptr() as usize).saturating_sub(self.at);
        at..at + part.len()
    }
}

/// Headers that concern only this connection; they are not passed on.
const OURS: [&str; 4] = [LENGTH, CODING, CONNECTION, EXPECT];
const LENGTH: &str = "content-length";
const CODING: &str = "transfer-encoding";
const CONNECTION: &str = "connection";
const EXPECT: &str = "expect";

/// Headers of a request, borrowed from the read buffer.
struct Said<'a>(&'a [httparse::Header<'a>]);

impl<'a> Said<'a> {
    /// Returns all values of one header.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let named = move |header: &&httparse::Header<'_>| is(header, name);
        self.0.iter().filter(named).map(|header| header.value)
    }

    /// Returns the headers that are passed on.
    fn rest(&self, copy: &Copy) -> Result<HeaderMap, Bad> {
        let ours = |header: &&httparse::Header<'_>| !OURS.iter().any(|ours| is(header, ours));
        let mut headers = HeaderMap::with_capacity(self.0.len());
        for header in self.0.iter().filter(ours) {
            let name = name(header.name).ok_or_else(|| bad("a header has a name that is none"))?;
            let value = HeaderValue::from_maybe_shared(copy.of(header.value));
            headers.append(name, value.map_err(|_| bad("a header has a value that is none"))?);
        }
        Ok(headers)
    }
}

fn is(header: &httparse::Header<'_>, name: &str) -> bool {
    header.name.eq_ignore_ascii_case(name)
}

/// Parses a header name. The names that come with every call are not allocated.
fn name(said: &str) -> Option<HeaderName> {
    let own = [&header_names::SESSION_ID, &header_names::PROTOCOL_VERSION, &header_names::METHOD];
    match own.into_iter().find(|own| own.as_str().eq_ignore_ascii_case(said)) {
        Some(own) => Some(own.clone()),
        None => HeaderName::from_bytes(said.as_bytes()).ok(),
    }
}

/// Determines the framing of the body (RFC 9112, section 6.3, but stricter).
fn length(said: &Said<'_>, modern: bool) -> Result<Length, Bad> {
    let mut lengths = said.all(LENGTH);
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(bad("there is more than one Content-Length"));
    }
    let mut codings = said.all(CODING);
    let Some(coding) = codings.next() else {
        let Some(length) = length else { return Ok(Length::Known(0)) };
        let digits = Some(length).filter(|it| it.iter().all(u8::is_ascii_digit));
        let digits = digits.and_then(|it| str::from_utf8(it).ok()?.parse().ok());
        return digits.map(Length::Known).ok_or_else(|| bad("Content-Length is no number"));
    };
    if length.is_some() {
        return Err(bad("there are both Content-Length and Transfer-Encoding"));
    }
    let chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
    if !chunked || codings.next().is_some() || !modern {
        return Err(bad("only chunks of HTTP/1.1 are known here as a Transfer-Encoding"));
    }
    Ok(Length::Chunked)
}

/// Whether the client allows the connection to be used again.
fn stays_open(said: &Said<'_>, modern: bool) -> bool {
    let says = |what: &[u8]| {
        let mut all = said.all(CONNECTION).flat_map(|value| value.split(|byte| *byte == b','));
        all.any(|option| option.trim_ascii().eq_ignore_ascii_case(what))
    };
    !says(b"close") && (modern || says(b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stayput_wire::header as mcp;

    use super::*;

    /// Largest head in these tests.
    const LIMIT: usize = 64 << 10;

    fn whole(text: &str) -> Result<Head, Bad> {
        let request = format!("{text}\r\n\r\n");
        let (head, size) = read(request.as_bytes(), LIMIT)?.unwrap();
        assert_eq!(size, request.len());
        Ok(head)
    }

    #[test]
    fn head_determines_the_length_of_the_body() {
        for (said, length, keep) in [
            ("GET / HTTP/1.1", Length::Known(0), true),
            ("POST / HTTP/1.1\r\nContent-Length: 5", Length::Known(5), true),
            (
                "POST / HTTP/1.1\r\ncontent-length: 5\r\nconnection: x, Close",
                Length::Known(5),
                false,
            ),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked", Length::Chunked, true),
            ("GET / HTTP/1.0", Length::Known(0), false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive", Length::Known(0), true),
        ] {
            let head = whole(said).unwrap();
            assert_eq!((head.length, head.keep), (length, keep), "{said}");
        }
    }

    /// E40: a head that a proxy could read differently is refused.
    #[test]
    fn ambiguous_head_is_refused() {
        for said in [
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5",
            "POST / HTTP/1.1\r\nContent-Length: 5, 5",
            "POST / HTTP/1.1\r\nContent-Length: +5",
            "POST / HTTP/1.1\r\nContent-Length: -1",
            "POST / HTTP/1.1\r\nContent-Length: 0x5",
            "POST / HTTP/1.1\r\nContent-Length: ",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\nTransfer-Encoding: identity",
            "POST / HTTP/1.1\r\nTransfer-Encoding : chunked",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\nX: a\r\n b",
            "POST / HTTP/1.1\r\nX: a\nY: b",
            "POST / HTTP/1.1\nX: a",
            "POST / HTTP/1.1\r\nX: a\rY: b",
            "POST / HTTP/1.1\r\nHost: a\r\nHost: b",
            "POST / HTTP/1.1\r\nX: \0",
            "POST  / HTTP/1.1",
            "POST /\u{1} HTTP/1.1",
            "PRI * HTTP/2.0",
            "GET / HTTP/1.2",
            "GET /",
            "\u{1} / HTTP/1.1",
        ] {
            let refused = whole(said).map(|_| ()).unwrap_err();
            assert_eq!(refused.0, StatusCode::BAD_REQUEST, "{said}");
        }
    }

    /// E40: a line feed without a carriage return is found at every position, also at the start and at the end.
    #[test]
    fn bare_line_feed_is_found_at_every_position() {
        let whole = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Y: 0123456789\r\n\r\n";
        assert!(!has_half_break(whole) && !has_half_break(b""));
        assert!(has_half_break(b"\n") && !has_half_break(b"\r\n") && !has_half_break(b"\r"));
        for at in (0..whole.len()).filter(|at| !b"\r\n".contains(&whole[*at])) {
            let mut half = whole.to_vec();
            half[at] = b'\n';
            assert!(has_half_break(&half), "at {at}");
        }
    }

    #[test]
    fn oversized_head_is_refused_with_the_limit() {
        let long = "x".repeat(TARGET);
        assert_eq!(whole(&format!("GET /{long} HTTP/1.1")).unwrap_err(), TOO_LONG);
        let endless = "x".repeat(LIMIT);
        assert_eq!(read(format!("GET /{endless}").as_bytes(), LIMIT).unwrap_err(), TOO_LONG);
        let large = format!("GET / HTTP/1.1\r\nX: {endless}");
        assert_eq!(read(large.as_bytes(), LIMIT).unwrap_err(), too_large(LIMIT));
        assert_eq!(whole(&large).unwrap_err(), too_large(LIMIT));
        let many = "X: y\r\n".repeat(MAX_HEADERS + 1);
        assert_eq!(
            whole(&format!("GET / HTTP/1.1\r\n{}", many.trim_end())).unwrap_err(),
            too_large(LIMIT)
        );
    }

    #[test]
    fn request_target_is_parsed_in_every_form() {
        for (said, path) in [
            ("/mcp/a?b=c", "/mcp/a"),
            ("http://localhost:1/mcp/a", "/mcp/a"),
            ("*", "*"),
            ("localhost:1", ""),
        ] {
            let head = whole(&format!("POST {said} HTTP/1.1\r\nHost: localhost")).unwrap();
            assert_eq!(head.uri.path(), path);
        }
    }

    /// A repeated head gives the same result as a new one, whatever head came before.
    #[test]
    fn repeated_head_equals_a_parsed_head() {
        let heads = [
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 12345\r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5 \r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: z\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nX: 5\r\nContent-Length: 5\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: a\r\n\r\n55",
            "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            // These heads are invalid or incomplete.
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\nX: y\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\nContent-Length: 5\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\n",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5",
        ];
        let shown = |read: Result<Option<(Head, usize)>, Bad>| match read {
            Ok(Some((head, size))) => {
                let Head { method, uri, headers, length, keep, modern, expects, .. } = head;
                format!("{:?}", (method, uri, headers, length, keep, modern, expects, size))
            }
            other => format!("{other:?}"),
        };
        for before in heads {
            for next in heads {
                let known = read(before.as_bytes(), LIMIT).ok().flatten();
                let mut last = known.map(|(head, _)| Box::new(head));
                let read = read_next(next.as_bytes(), LIMIT, &mut last);
                let read = read.map(|read| read.map(|(head, size)| (*head, size)));
                assert_eq!(
                    shown(read),
                    shown(super::read(next.as_bytes(), LIMIT)),
                    "{before}{next}"
                );
            }
        }
        // The limit applies to a repeated head, too.
        let mut last = read(heads[0].as_bytes(), LIMIT).unwrap().map(|(head, _)| Box::new(head));
        let refused = read_next(heads[1].as_bytes(), heads[0].len() + 2, &mut last);
        assert_eq!(refused.unwrap_err(), too_large(heads[0].len() + 2));
    }

    const REQUEST: &str = "\r\nPOST /mcp/a?b=c HTTP/1.1\r\nHost: localhost\r\nMCP-Session-Id: s\r\nX-Y: \r\n\
                           Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}";

    proptest! {
        /// A head that arrives in parts parses to the same result, and only when it is complete.
        #[test]
        fn split_head_parses_only_when_complete(cut in 0..REQUEST.len()) {
            let size = REQUEST.len() - 2;
            let (head, used) = read(REQUEST.as_bytes(), LIMIT).unwrap().unwrap();
            prop_assert_eq!((used, head.headers.len(), head.expects), (size, 3, true));
            prop_assert_eq!(&head.headers[mcp::SESSION_ID], "s");
            prop_assert_eq!(read(&REQUEST.as_bytes()[..cut], LIMIT).unwrap().is_some(), cut >= size);
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, LIMIT);
        }
    }
}
