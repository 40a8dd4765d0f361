//! Log for the operator.

use std::{borrow::Cow, io::Write as _};

use serde_json::{Map, Value};

/// Writes lines to stderr, as text or as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    /// Whether each line is a JSON object.
    pub(crate) json: bool,
}

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
}

/// Fields of an event, for log processors.
pub(crate) type Fields<'a> = &'a [(&'static str, &'a str)];

impl Log {
    pub(crate) fn info(self, sentence: &str) {
        self.line(&self.text(Level::Info, sentence, &[]));
    }

    pub(crate) fn warn(self, sentence: &str) {
        self.line(&self.text(Level::Warn, sentence, &[]));
    }

    /// Logs an event. The text format has the sentence, the JSON format also the fields.
    pub(crate) fn event(self, level: Level, sentence: &str, fields: Fields<'_>) {
        self.line(&self.text(level, sentence, fields));
    }

    /// Writes a line as it is.
    pub(crate) fn line(self, line: &str) {
        // An error is ignored: a closed stderr has no reader.
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

/// Escapes control characters and indents further lines, so that text of a server cannot look like another log line or
/// control a terminal.
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

    /// Invariant 8 and E36: foreign text stays inside its log line.
    #[test]
    fn foreign_text_cannot_forge_a_log_line() {
        let said = Log { json: false }.text(Level::Warn, "it said: a\r\nwarn: b\u{1b}[2J\tc", &[]);
        assert_eq!(said, "warn: it said: a\n  warn: b\\u{1b}[2J\tc");
    }

    #[test]
    fn text_format_has_the_sentence_and_json_the_fields() {
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
