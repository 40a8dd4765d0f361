//! The date that every answer carries.

use std::cell::RefCell;

use stayput_core::{Clock as _, SystemClock};

use crate::observe::time_format;

thread_local! {
    /// The line as it was written last, and the second that it was written for.
    static LAST: RefCell<(u64, String)> = RefCell::default();
}

/// Writes the line with the date of now. It is made once a second.
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
