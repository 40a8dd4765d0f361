//! Lines for whoever runs the gateway.

use std::io::Write as _;

/// Writes lines to standard error, for people or for programs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    /// One JSON object a line.
    pub(crate) json: bool,
}

impl Log {
    pub(crate) fn info(self, sentence: &str) {
        self.say("info", sentence);
    }

    pub(crate) fn warn(self, sentence: &str) {
        self.say("warn", sentence);
    }

    /// A line as it is.
    pub(crate) fn line(self, line: &str) {
        // Who closed standard error does not want to hear.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    fn say(self, level: &str, sentence: &str) {
        let line = if self.json {
            let message = stayput_wire::json::quote(sentence);
            format!(r#"{{"level":"{level}","message":{message}}}"#)
        } else if level == "info" {
            sentence.to_owned()
        } else {
            format!("{level}: {sentence}")
        };
        self.line(&line);
    }
}
