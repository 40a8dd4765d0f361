//! The trace that a call belongs to (W3C Trace Context).

use std::fmt::Write as _;

use http::HeaderMap;
use stayput_wire::{Message, meta};

/// A call in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) id: [u8; 16],
    /// The span of this call.
    pub(super) span: [u8; 8],
    /// The span that it is a part of.
    pub(super) parent: Option<[u8; 8]>,
    /// Whether whoever began the trace wants it to be collected.
    pub(super) sampled: bool,
}

impl Trace {
    /// The trace that a request names, by its `_meta` or by its header; else one that begins here.
    pub(super) fn of(message: &Message<'_>, headers: &HeaderMap) -> Self {
        let params = message.params();
        let said = params.and_then(|it| it.find(&[meta::META, meta::TRACEPARENT])?.text());
        let by_header = || headers.get(meta::TRACEPARENT)?.to_str().ok();
        let parent = said.as_deref().or_else(by_header).and_then(parse);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        // Without randomness traces would meet, which hurts nobody but who reads them.
        let _ = getrandom::fill(&mut trace);
        let _ = getrandom::fill(&mut span);
        match parent {
            Some((id, parent, sampled)) => Self { id, span, parent: Some(parent), sampled },
            None => Self { id: trace, span, parent: None, sampled: true },
        }
    }

    /// As the server is told it: the span of this call is the parent of what it does.
    pub(super) fn parent_of_next(&self) -> String {
        let flags = if self.sampled { "01" } else { "00" };
        format!("00-{}-{}-{flags}", hex(&self.id), hex(&self.span))
    }

    /// The message with this trace in its `_meta`; nothing if there is no place for it.
    pub(super) fn onto(&self, message: &Message<'_>) -> Option<String> {
        let mut edits = message.edit();
        edits.set_text(&["params", meta::META, meta::TRACEPARENT], &self.parent_of_next());
        edits.apply().ok().map(std::borrow::Cow::into_owned)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A text can always be written to.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The trace, the span and whether they are sampled. What is not understood names no trace.
fn parse(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace) = (parts.next()?, bytes::<16>(parts.next()?)?);
    let (span, flags) = (bytes::<8>(parts.next()?)?, bytes::<1>(parts.next()?)?);
    // A later version may have more behind it.
    let known = match bytes::<1>(version)? {
        [0] => parts.next().is_none(),
        [0xff] => false,
        _ => true,
    };
    let real = trace != [0; 16] && span != [0; 8];
    (known && real).then_some((trace, span, flags[0] & 1 == 1))
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut all = [0; N];
    for (place, byte) in all.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn trace(message: &str, header: Option<&str>) -> Trace {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert("traceparent", header.parse().unwrap());
        }
        Trace::of(&Message::parse(message.as_bytes()).unwrap(), &headers)
    }

    #[test]
    fn a_trace_goes_on_or_begins() {
        let plain = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        let begun = trace(plain, None);
        assert!(begun.parent.is_none() && begun.sampled && begun.id != [0; 16]);
        let by_header = trace(plain, Some(GOOD));
        assert_eq!(hex(&by_header.id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(hex(&by_header.parent.unwrap()), "b7ad6b7169203331");
        assert_ne!(Some(by_header.span), by_header.parent);
        let other = GOOD.replace("0af7", "1af7").replace("-01", "-00");
        let said = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"traceparent":"{other}"}}}}}}"#
        );
        // What stands in the message is nearer to it than what came around it.
        let by_meta = trace(&said, Some(GOOD));
        assert!(hex(&by_meta.id).starts_with("1af7") && !by_meta.sampled);
        let sent = by_meta.onto(&Message::parse(said.as_bytes()).unwrap()).unwrap();
        let sent = trace(&sent, None);
        assert_eq!((sent.id, sent.parent), (by_meta.id, Some(by_meta.span)));
        let added = by_header.onto(&Message::parse(plain.as_bytes()).unwrap()).unwrap();
        assert_eq!(trace(&added, None).parent, Some(by_header.span));
    }

    #[test]
    fn what_is_no_trace_names_none() {
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c8031-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(parse(GOOD).is_some());
        assert!(parse(&format!("01{}-more", &GOOD[2..])).is_some());
    }
}
