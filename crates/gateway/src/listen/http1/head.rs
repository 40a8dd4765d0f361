//! The head of a request.

use std::{borrow::Cow, mem::MaybeUninit, ops::Range};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header::HOST};

use crate::identify::header_names;

/// The most headers.
const MOST: usize = 100;

/// The longest path and query.
const TARGET: usize = 16 << 10;

/// The head of a request.
#[derive(Debug)]
pub(in crate::listen) struct Head {
    pub(in crate::listen) method: Method,
    pub(in crate::listen) uri: Uri,
    pub(in crate::listen) headers: HeaderMap,
    pub(super) length: Length,
    /// Whether the client wants to use the connection again.
    pub(super) keep: bool,
    /// Whether it is of HTTP/1.1.
    pub(super) modern: bool,
    /// Whether the client waits for a word before it sends the body.
    pub(super) expects: bool,
    /// As it came, and where the digits of its length stand in it; at its end if there are none.
    said: Bytes,
    digits: Range<usize>,
}

/// How long the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    /// It comes in chunks.
    Chunked,
}

/// Why there is no request: what is answered, and a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad(pub(super) StatusCode, pub(super) Cow<'static, str>);

fn too_large(limit: usize) -> Bad {
    let sentence = format!(
        "the headers have more than {limit} bytes, which is `limits.headers`, or are more than {MOST}"
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

/// A larger head is not kept for the next request.
const KEPT: usize = 4 << 10;

/// The same as [`read`] of a client whose `last` head is known: most say the same each time but for the length, and
/// such a one is not read once more.
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
    /// Whether it is worth to be kept for the next request.
    pub(super) fn is_small(&self) -> bool {
        self.said.len() <= KEPT
    }

    /// How long the body is and how many bytes the head has, if `bytes` begin with this one but for its length.
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

/// The head that `bytes` begin with, and how many bytes it has; nothing if it is not whole yet. What could
/// be read in two ways is refused: whoever stands between the client and us may read it in the other.
fn read(bytes: &[u8], limit: usize) -> Result<Option<(Head, usize)>, Bad> {
    let mut room = [const { MaybeUninit::uninit() }; MOST];
    let mut request = httparse::Request::new(&mut []);
    let size = match request.parse_with_uninit_headers(bytes, &mut room) {
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
    // One copy for all that outlives what was read.
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

/// Whether a line ends without its carriage return. It looks at all of them whatever it finds: so it is a few wide
/// comparisons.
fn has_half_break(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    let half = pairs.fold(0_u8, |half, (before, byte)| {
        half | u8::from(*byte == b'\n') & u8::from(*before != b'\r')
    });
    half != 0 || head.first() == Some(&b'\n')
}

/// What was read, in memory of its own.
struct Copy {
    /// Where it was.
    at: usize,
    bytes: Bytes,
}

impl Copy {
    /// A part of it.
    fn of(&self, part: &[u8]) -> Bytes {
        if part.is_empty() {
            return Bytes::new();
        }
        self.bytes.slice(self.place(part))
    }

    /// Where a part of it stands.
    fn place(&self, part: &[u8]) -> Range<usize> {
        let at = (part.as_ptr() as usize).saturating_sub(self.at);
        at..at + part.len()
    }
}

/// What concerns the connection alone: nobody behind it is told of it.
const OURS: [&str; 4] = [LENGTH, CODING, CONNECTION, EXPECT];
const LENGTH: &str = "content-length";
const CODING: &str = "transfer-encoding";
const CONNECTION: &str = "connection";
const EXPECT: &str = "expect";

/// The headers of a request, where they were read.
struct Said<'a>(&'a [httparse::Header<'a>]);

impl<'a> Said<'a> {
    /// All values of one header.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let named = move |header: &&httparse::Header<'_>| is(header, name);
        self.0.iter().filter(named).map(|header| header.value)
    }

    /// Those that are for whoever answers.
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

/// Those that come with every call take no memory.
fn name(said: &str) -> Option<HeaderName> {
    let own = [&header_names::SESSION_ID, &header_names::PROTOCOL_VERSION, &header_names::METHOD];
    match own.into_iter().find(|own| own.as_str().eq_ignore_ascii_case(said)) {
        Some(own) => Some(own.clone()),
        None => HeaderName::from_bytes(said.as_bytes()).ok(),
    }
}

/// Where the body ends (RFC 9112, section 6.3, and stricter).
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

/// Whether the client lets the connection be used again.
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

    /// The largest head here.
    const LIMIT: usize = 64 << 10;

    fn whole(text: &str) -> Result<Head, Bad> {
        let said = format!("{text}\r\n\r\n");
        let (head, size) = read(said.as_bytes(), LIMIT)?.unwrap();
        assert_eq!(size, said.len());
        Ok(head)
    }

    #[test]
    fn a_body_ends_where_the_head_says() {
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

    /// E40: what somebody in between could read in another way than we do is not read at all.
    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
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

    /// E40: wherever half a line break stands, also at the beginning and at the end.
    #[test]
    fn half_a_line_break_is_seen_anywhere() {
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
    fn what_is_too_much_is_said_to_be() {
        let long = "x".repeat(TARGET);
        assert_eq!(whole(&format!("GET /{long} HTTP/1.1")).unwrap_err(), TOO_LONG);
        let endless = "x".repeat(LIMIT);
        assert_eq!(read(format!("GET /{endless}").as_bytes(), LIMIT).unwrap_err(), TOO_LONG);
        let large = format!("GET / HTTP/1.1\r\nX: {endless}");
        assert_eq!(read(large.as_bytes(), LIMIT).unwrap_err(), too_large(LIMIT));
        assert_eq!(whole(&large).unwrap_err(), too_large(LIMIT));
        let many = "X: y\r\n".repeat(MOST + 1);
        assert_eq!(
            whole(&format!("GET / HTTP/1.1\r\n{}", many.trim_end())).unwrap_err(),
            too_large(LIMIT)
        );
    }

    #[test]
    fn paths_come_in_several_forms() {
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

    /// What a client says once more is read as what it says for the first time, whatever came before.
    #[test]
    fn a_head_that_is_known_is_read_as_any_other() {
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
            // These are none, or not whole.
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
        // The limit holds for what is known, too.
        let mut last = read(heads[0].as_bytes(), LIMIT).unwrap().map(|(head, _)| Box::new(head));
        let refused = read_next(heads[1].as_bytes(), heads[0].len() + 2, &mut last);
        assert_eq!(refused.unwrap_err(), too_large(heads[0].len() + 2));
    }

    const REQUEST: &str = "\r\nPOST /mcp/a?b=c HTTP/1.1\r\nHost: localhost\r\nMCP-Session-Id: s\r\nX-Y: \r\n\
                           Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}";

    proptest! {
        /// However a head is cut on its way, it is the same, and not before it is whole.
        #[test]
        fn a_cut_changes_nothing(cut in 0..REQUEST.len()) {
            let size = REQUEST.len() - 2;
            let (head, used) = read(REQUEST.as_bytes(), LIMIT).unwrap().unwrap();
            prop_assert_eq!((used, head.headers.len(), head.expects), (size, 3, true));
            prop_assert_eq!(&head.headers[mcp::SESSION_ID], "s");
            prop_assert_eq!(read(&REQUEST.as_bytes()[..cut], LIMIT).unwrap().is_some(), cut >= size);
        }

        #[test]
        fn rubbish_is_refused_or_waited_for(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, LIMIT);
        }
    }
}
