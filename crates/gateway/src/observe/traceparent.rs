//! Trace context of a call (W3C Trace Context).

use std::fmt::Write as _;

use http::HeaderMap;
use stayput_wire::{Message, meta};

/// Trace context of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) id: [u8; 16],
    /// Span id of this call.
    pub(super) span: [u8; 8],
    /// Span id of the parent.
    pub(super) parent: Option<[u8; 8]>,
    /// Whether the trace is sampled, as its first participant decided.
    pub(super) sampled: bool,
}

impl Trace {
    /// Reads the trace context of a request, from its `_meta` or its header. Starts a new trace if it has none.
    pub(super) fn from_request(message: &Message<'_>, headers: &HeaderMap) -> Self {
        let params = message.params();
        let said = params.and_then(|it| it.find(&[meta::META, meta::TRACEPARENT])?.text());
        let by_header = || headers.get(meta::TRACEPARENT)?.to_str().ok();
        let parent = said.as_deref().or_else(by_header).and_then(parse);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        // Without randomness ids of traces could collide, which only affects people who read them.
        let _ = getrandom::fill(&mut trace);
        let _ = getrandom::fill(&mut span);
        match parent {
            Some((id, parent, sampled)) => Self { id, span, parent: Some(parent), sampled },
            None => Self { id: trace, span, parent: None, sampled: true },
        }
    }

    /// Returns the `traceparent` for the server: the span of this call is the parent of its spans.
    pub(super) fn parent_of_next(&self) -> String {
        let flags = if self.sampled { "01" } else { "00" };
        format!("00-{}-{}-{flags}", hex(&self.id), hex(&self.span))
    }

    /// Returns the message with this trace context in its `_meta`, or `None` if it has no place for it.
    pub(super) fn onto(&self, message: &Message<'_>) -> Option<String> {
        let mut edits = message.edit();
        edits.set_text(&["params", meta::META, meta::TRACEPARENT], &self.parent_of_next());
        edits.apply().ok().map(std::borrow::Cow::into_owned)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses a `traceparent`: trace id, span id, and the sampled flag. An invalid value counts as no trace.
fn parse(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace) = (parts.next()?, bytes::<16>(parts.next()?)?);
    let (span, flags) = (bytes::<8>(parts.next()?)?, bytes::<1>(parts.next()?)?);
    // A later version may have more fields.
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
        Trace::from_request(&Message::parse(message.as_bytes()).unwrap(), &headers)
    }

    #[test]
    fn trace_continues_or_starts() {
        let plain = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        let started = trace(plain, None);
        assert!(started.parent.is_none() && started.sampled && started.id != [0; 16]);
        let by_header = trace(plain, Some(GOOD));
        assert_eq!(hex(&by_header.id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(hex(&by_header.parent.unwrap()), "b7ad6b7169203331");
        assert_ne!(Some(by_header.span), by_header.parent);
        let other = GOOD.replace("0af7", "1af7").replace("-01", "-00");
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"traceparent":"{other}"}}}}}}"#
        );
        // The value in `_meta` wins over the header, because it belongs to this message.
        let by_meta = trace(&message, Some(GOOD));
        assert!(hex(&by_meta.id).starts_with("1af7") && !by_meta.sampled);
        let sent = by_meta.onto(&Message::parse(message.as_bytes()).unwrap()).unwrap();
        let sent = trace(&sent, None);
        assert_eq!((sent.id, sent.parent), (by_meta.id, Some(by_meta.span)));
        let added = by_header.onto(&Message::parse(plain.as_bytes()).unwrap()).unwrap();
        assert_eq!(trace(&added, None).parent, Some(by_header.span));
    }

    #[test]
    fn invalid_traceparent_is_ignored() {
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
