//! Tests that cannot run here.
//!
//! The test runners know no skipped test: one that returns early counts as passed. So it notes its name in the file that
//! `STAYPUT_TEST_SKIPS` names, and `make test` fails if there is any.

use std::{fs::OpenOptions, io::Write as _, path::Path};

/// Notes that the current test is skipped.
#[allow(clippy::print_stdout, reason = "it is for whoever reads the output of the test")]
pub fn note(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    println!("skipped: {test}: {reason}");
    if let Some(file) = std::env::var_os("STAYPUT_TEST_SKIPS") {
        note_in(Path::new(&file), test, reason);
    }
}

/// Returns whether this is a quick run, and notes that the current test is skipped if it is.
#[must_use]
pub fn is_quick_run() -> bool {
    let quick = std::env::var_os("STAYPUT_TEST_QUICK").is_some();
    if quick {
        note("it is too slow for a quick run");
    }
    quick
}

/// Appends one line in one write, because many tests do that at the same time.
fn note_in(file: &Path, test: &str, reason: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skip_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        for test in ["one", "two"] {
            note_in(&file, test, "no peer");
        }
        assert_eq!(std::fs::read_to_string(file).unwrap(), "one: no peer\ntwo: no peer\n");
    }
}
