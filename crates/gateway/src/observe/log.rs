//! Lines for whoever runs the gateway.

use std::{borrow::Cow, io::Write as _};

use serde_json::{Map, Value};

/// Writes lines to standard error, for people or for programs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    /// One JSON object a line.
    pub(crate) json: bool,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
}

/// What happened, in a word and its circumstances: what programs look for.
pub(crate) type Fields<'a> = &'a [(&'static str, &'a str)];

impl Log {
    pub(crate) fn info(self, sentence: &str) {
        self.line(&self.text(Level::Info, sentence, &[]));
    }

    pub(crate) fn warn(self, sentence: &str) {
        self.line(&self.text(Level::Warn, sentence, &[]));
    }

    /// Something that has a name. People read the sentence, programs the fields as well.
    pub(crate) fn event(self, level: Level, sentence: &str, fields: Fields<'_>) {
        self.line(&self.text(level, sentence, fields));
    }

    /// A line as it is.
    pub(crate) fn line(self, line: &str) {
        // Who closed standard error does not want to hear.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    fn text(self, level: Level, sentence: &str, fields: Fields<'_>) -> String {
        if self.json {
            let level = if level == Level::Info { "info" } else { "warn" };
            let all = [("level", level), ("message", sentence)].into_iter();
            let all = all.chain(fields.iter().copied());
            let all = all.map(|(name, value)| (name.to_owned(), Value::from(value)));
            return Value::Object(all.collect::<Map<_, _>>()).to_string();
        }
        let sentence = tame(sentence);
        match level {
            Level::Info => sentence.into_owned(),
            Level::Warn => format!("warn: {sentence}"),
        }
    }
}

/// What cannot be taken for a line of ours, nor steer a terminal: servers write what they like.
fn tame(sentence: &str) -> Cow<'_, str> {
    if !sentence.contains(char::is_control) {
        return sentence.into();
    }
    let mut tamed = String::with_capacity(sentence.len() + 16);
    for c in sentence.chars() {
        match c {
            '\n' => tamed.push_str("\n  "),
            '\t' => tamed.push(c),
            '\r' => {}
            c if c.is_control() => tamed.extend(c.escape_default()),
            c => tamed.push(c),
        }
    }
    tamed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 8 and E36: what others say stays inside the line that tells of it.
    #[test]
    fn nobody_writes_a_line_of_ours() {
        let said = Log { json: false }.text(Level::Warn, "it said: a\r\nwarn: b\u{1b}[2J\tc", &[]);
        assert_eq!(said, "warn: it said: a\n  warn: b\\u{1b}[2J\tc");
    }

    #[test]
    fn people_read_a_sentence_and_programs_fields() {
        let fields = [("event", "x"), ("server", "a\"b")];
        let (people, programs) = (Log { json: false }, Log { json: true });
        assert_eq!(people.text(Level::Info, "It is so.", &fields), "It is so.");
        assert_eq!(people.text(Level::Warn, "It is so.", &[]), "warn: It is so.");
        let line = programs.text(Level::Warn, "It is so.", &fields);
        assert!(!line.contains('\n'), "{line}");
        let line: Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "level": "warn", "message": "It is so.", "event": "x", "server": "a\"b",
        });
        assert_eq!(line, expected);
    }
}
