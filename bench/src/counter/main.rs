//! Counter server over stdio.
//!
//! A separate program, because it is started once for each session and a small program starts faster. So the
//! measurement covers the program that starts it.

#![allow(missing_docs)]

#[path = "../counter.rs"]
mod counter;

use std::{
    io::{BufRead, BufReader, Write, stdin, stdout},
    process::ExitCode,
};

use stayput_wire::Message;

use self::counter::answer;

/// Serves until its input ends.
fn main() -> ExitCode {
    let (mut lines, mut out) = (BufReader::new(stdin().lock()), stdout().lock());
    let mut line = Vec::new();
    let mut counted = 0;
    while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let Ok(message) = Message::parse(&line) else { return ExitCode::FAILURE };
        let count = || {
            counted += 1;
            counted
        };
        if let Some(mut answer) = answer(&message, count) {
            answer.push('\n');
            if out.write_all(answer.as_bytes()).and_then(|()| out.flush()).is_err() {
                break;
            }
        }
        line.clear();
    }
    ExitCode::SUCCESS
}
