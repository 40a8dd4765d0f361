//! Fast check whether a body can contain a session name.

/// Parts of which every session name in a body contains one.
const NAME_PARTS: [&str; 4] = ["ession", "onversation", "threadId", "baggage"];

/// Part of the member with the protocol version, which identifies a modern client.
const VERSION_PART: &str = "protocolVersion";

/// Bytes compared at once.
const BLOCK_BYTES: usize = 16;

/// Returns whether a body can contain a session name or, unless the headers have it, a protocol version. Most bodies
/// do not, and are not parsed for names: the server library forwards them unread. Without a backslash no name can be escaped, so a text search suffices.
#[must_use]
pub fn may_name_session(body: &[u8], modern: bool) -> bool {
    let contains_candidate =
        if modern { contains_candidate::<true> } else { contains_candidate::<false> };
    if !contains_candidate(body) {
        return false;
    }
    let Ok(text) = str::from_utf8(body) else { return true };
    text.contains('\\')
        || NAME_PARTS.iter().any(|part| text.contains(part))
        || (!modern && text.contains(VERSION_PART))
}

/// Returns whether the body contains a letter sequence that is typical of these names. All sequences are compared in
/// one pass without branches, block by block, so that the compiler vectorizes the loop.
fn contains_candidate<const MODERN: bool>(body: &[u8]) -> bool {
    let mut least = [u8::MAX; BLOCK_BYTES];
    let mut look = |[one, two, three]: [&[u8; BLOCK_BYTES]; 3]| {
        for place in 0..BLOCK_BYTES {
            let letters = [one[place], two[place], three[place]];
            least[place] = least[place].min(mismatch::<MODERN>(letters));
        }
    };
    let starts = [0, 1, 2];
    // No sequence starts at one of the last two bytes.
    let Some(last) = body.last_chunk::<{ BLOCK_BYTES + 2 }>() else { return true };
    let [Some(one), Some(two), Some(three)] = starts.map(|at| last[at..].first_chunk()) else {
        return true;
    };
    look([one, two, three]);
    let [one, two, three] = starts.map(|at| body[at..].as_chunks().0);
    for ((one, two), three) in one.iter().zip(two).zip(three) {
        look([one, two, three]);
    }
    least.contains(&0)
}

/// Returns 0 if the letters match one of the sequences.
fn mismatch<const MODERN: bool>([one, two, three]: [u8; 3]) -> u8 {
    let session = (one ^ b's') | (two ^ b's') | (three ^ b'i');
    let conversation = (one ^ b'n') | (two ^ b'v');
    let thread = (one ^ b'd') | (two ^ b'I');
    let baggage = (one ^ b'g') | (two ^ b'g');
    let version = if MODERN { u8::MAX } else { (one ^ b'l') | (two ^ b'V') };
    let names = session.min(conversation).min(thread.min(baggage)).min(version);
    names.min(one ^ b'\\')
}

#[cfg(test)]
mod tests {
    use stayput_wire::meta;

    use super::*;
    use crate::ArgumentName::{Plain, Prefixed};

    /// Every name is found at every position.
    #[test]
    fn every_name_is_found_at_every_position() {
        let hints = meta::CONVERSATION_HINTS.iter().map(|(_, hint)| *hint);
        let all = [Plain.as_str(), Prefixed.as_str(), meta::SESSION, meta::BAGGAGE];
        let assert_found = |name: &str, modern: bool| {
            for before in 0..70 {
                for after in [0, 1, 5, 40] {
                    let [before, after] = [before, after].map(|it| "x".repeat(it));
                    let body = format!(r#"{{"{before}":1,"{name}":"{after}"}}"#);
                    assert!(may_name_session(body.as_bytes(), modern), "{body}");
                }
            }
        };
        hints.chain(all).for_each(|name| assert_found(name, true));
        assert_found("se\\u0073sion_id", true);
        assert_found(meta::PROTOCOL_VERSION, false);
    }

    #[test]
    fn bodies_without_a_name_are_skipped() {
        for body in ["{}", r#"{"params":{"arguments":{"text":"what was said, and processed"}}}"#] {
            assert!(!may_name_session(body.as_bytes(), false), "{body}");
        }
        let modern = format!(r#"{{"_meta":{{"{}":"2026-07-28"}}}}"#, meta::PROTOCOL_VERSION);
        assert!(
            may_name_session(modern.as_bytes(), false)
                && !may_name_session(modern.as_bytes(), true)
        );
    }
}
