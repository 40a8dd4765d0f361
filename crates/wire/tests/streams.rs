//! Decoding does not depend on how a stream is split into chunks.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, sample::select};
use stayput_wire::{
    LineSplitter, LineTooLong,
    sse::{Decoder, Event, EventTooLarge, KEEP_ALIVE},
};
use support::cut;

fn event() -> impl Strategy<Value = Event> {
    let data = prop_oneof![
        vec(
            select(vec![
                &b"a"[..],
                b"\n",
                b"\r",
                b" ",
                b":",
                b"data: ",
                b"\xff",
                b"\0",
                "ü".as_bytes()
            ]),
            0..8
        )
        .prop_map(|pieces| pieces.concat()),
        vec(any::<u8>(), 0..20),
    ];
    let line = "[^\r\n\0]{1,8}";
    (data, option::of(line), option::of(line), option::of(any::<u64>())).prop_map(
        |(data, name, id, retry)| {
            let mut event = Event::new(data);
            if let Some(name) = name {
                event = event.with_name(&name).unwrap();
            }
            if let Some(id) = id {
                event = event.with_id(&id).unwrap();
            }
            if let Some(millis) = retry {
                event = event.with_retry(Duration::from_millis(millis));
            }
            event
        },
    )
}

fn decode(limit: usize, chunks: &[&[u8]]) -> (Vec<Result<Event, EventTooLarge>>, Option<String>) {
    let mut decoder = Decoder::new(limit);
    let mut events = Vec::new();
    for mut chunk in chunks.iter().copied() {
        while let Some(event) = decoder.next_event(&mut chunk) {
            events.push(event);
        }
    }
    (events, decoder.last_id().map(str::to_owned))
}

/// Lines, and the unterminated rest.
type Lines<E> = (Vec<Result<Vec<u8>, E>>, Option<Vec<u8>>);

fn split(limit: usize, chunks: &[&[u8]]) -> Lines<LineTooLong> {
    let mut splitter = LineSplitter::new(limit);
    let mut lines = Vec::new();
    for mut chunk in chunks.iter().copied() {
        while let Some(line) = splitter.next_line(&mut chunk) {
            lines.push(line.map(|line| line.into_owned()));
        }
    }
    (lines, splitter.finish())
}

/// Splits `bytes` into lines in the simplest way.
fn lines(limit: usize, bytes: &[u8]) -> Lines<()> {
    let bare = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
    let is_line = |line: &Vec<u8>| !line.iter().all(u8::is_ascii_whitespace) || line.len() > limit;
    let mut all: Vec<_> = bytes.split(|byte| *byte == b'\n').map(bare).collect();
    let last = all.pop().filter(is_line);
    let check = |line: Vec<u8>| if line.len() > limit { Err(()) } else { Ok(line) };
    let mut lines: Vec<_> = all.into_iter().filter(is_line).map(check).collect();
    let too_long = last.as_ref().is_some_and(|line| line.len() > limit);
    if too_long {
        lines.push(Err(()));
    }
    (lines, last.filter(|_| !too_long))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn events_round_trip(
        events in vec(event(), 0..5),
        alive in any::<bool>(),
        places in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        for event in &events {
            event.encode_into(&mut bytes);
            if alive {
                bytes.extend_from_slice(KEEP_ALIVE);
            }
        }
        let (read, last_id) = decode(1 << 16, &cut(&bytes, &places));
        let expected: Vec<_> = events.iter().cloned().map(Ok).collect();
        prop_assert_eq!(read, expected);
        let id = events.iter().rev().find_map(|event| event.id().map(str::to_owned));
        prop_assert_eq!(last_id, id);
    }

    /// Any bytes and limit: at once, byte by byte, and in random chunks.
    #[test]
    fn decoding_does_not_depend_on_chunks(
        pieces in vec(select(vec![
            &b"data"[..], b"id", b"event", b"retry", b":", b": ", b"\n", b"\r", b"\r\n", b"x", b"12",
            b"\xef\xbb\xbf", b"\0", b"data: a\n\n", b": ping\n", b"longer than that",
        ]), 0..24),
        limit in 1usize..40,
        places in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = pieces.concat();
        let whole = decode(limit, &[&bytes]);
        prop_assert_eq!(&decode(limit, &cut(&bytes, &places)), &whole);
        prop_assert_eq!(&decode(limit, &bytes.chunks(1).collect::<Vec<_>>()), &whole);
    }

    #[test]
    fn lines_do_not_depend_on_chunks(
        pieces in vec(select(vec![&b"{}"[..], b"\n", b"\r\n", b"\r", b" ", b"x", b"longer"]), 0..24),
        limit in 1usize..12,
        places in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = pieces.concat();
        let (expected, rest) = lines(limit, &bytes);
        for chunks in [vec![&bytes[..]], cut(&bytes, &places), bytes.chunks(1).collect()] {
            let (found, left) = split(limit, &chunks);
            let found: Vec<_> = found.into_iter().map(|line| line.map_err(|_| ())).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(&left, &rest);
        }
    }
}
