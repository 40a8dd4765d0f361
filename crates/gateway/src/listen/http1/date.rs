//! `Date` header of every response.

use std::cell::RefCell;

use stayput_core::{Clock as _, SystemClock};

use crate::observe::time_format;

thread_local! {
    /// Header line that was formatted last, and the second that it is valid for.
    static LAST: RefCell<(u64, String)> = RefCell::default();
}

/// Writes the `Date` header. The line is formatted once per second.
pub(super) fn write(out: &mut Vec<u8>) {
    let now = SystemClock.now();
    let second = now.as_millis() / 1_000;
    LAST.with_borrow_mut(|(of, line)| {
        if *of != second {
            (*of, *line) = (second, format!("date: {}\r\n", time_format::http(now)));
        }
        out.extend_from_slice(line.as_bytes());
    });
}
