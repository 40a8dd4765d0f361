//! Log for the operator: the subscriber that writes events and spans of all crates to the standard error.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write as _},
};

use stayput_core::{Clock as _, SystemClock, is_unprintable};
use tracing::field::{Field, Visit};
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    filter::LevelFilter,
    fmt::{FormatFields, SubscriberBuilder, format::Writer, time::FormatTime},
};

/// Variable with directives for single crates and modules, such as `stayput_upstream=debug`.
const DIRECTIVES: &str = "RUST_LOG";

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON elsewhere
    #[default]
    Auto,
    /// Text for people
    Text,
    /// JSON for programs, one object per line
    Json,
}

/// Levels by their names.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Parses a level of the command line.
///
/// # Errors
/// If there is no such level.
pub(crate) fn level(text: &str) -> Result<LevelFilter, &'static str> {
    let found = LEVELS.iter().find(|(name, _)| *name == text);
    found.map(|(_, level)| *level).ok_or(
        "the level is off, error, warn, info, debug or trace; RUST_LOG sets the level of one crate, such as \
         RUST_LOG=stayput_upstream=debug",
    )
}

/// Installs the log of this process. A level of the command line comes before `RUST_LOG`. Only the first call has an
/// effect.
pub(crate) fn install(level: Option<LevelFilter>, format: LogFormat) {
    let directives = std::env::var(DIRECTIVES).ok().filter(|it| !it.is_empty());
    let (filter, problem) = filter(level, directives.as_deref());
    let terminal = io::stderr().is_terminal();
    // The module that wrote a line helps those who look for a cause.
    let is_detailed = filter.max_level_hint().is_none_or(|level| level > LevelFilter::INFO);
    let builder = SubscriberBuilder::default()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // An error is ignored: a closed stderr has no reader.
        .log_internal_errors(false);
    let _ = if format == LogFormat::Json || (format == LogFormat::Auto && !terminal) {
        let builder = builder.json().flatten_event(true).with_current_span(false);
        tracing::subscriber::set_global_default(builder.finish())
    } else {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        let builder = builder.with_ansi(terminal && !plain).fmt_fields(TextFields);
        let builder = builder.with_target(is_detailed).with_timer(Milliseconds);
        tracing::subscriber::set_global_default(builder.finish())
    };
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
}

/// Returns the filter, and a warning if the directives cannot be read. Other crates log from `warn` on.
fn filter(level: Option<LevelFilter>, directives: Option<&str>) -> (EnvFilter, Option<String>) {
    let of_level = |level: LevelFilter| match level {
        LevelFilter::OFF => EnvFilter::new("off"),
        level => EnvFilter::new(format!("warn,stayput={level}")),
    };
    match (level, directives) {
        (Some(level), _) => (of_level(level), None),
        (None, None) => (of_level(LevelFilter::INFO), None),
        (None, Some(directives)) => match EnvFilter::try_new(directives) {
            Ok(filter) => (filter, None),
            Err(error) => {
                let problem = format!(
                    "{DIRECTIVES} cannot be read, and the level is info: {error}; write directives such as \
                     debug or info,stayput_upstream=debug"
                );
                (of_level(LevelFilter::INFO), Some(problem))
            }
        },
    }
}

/// Prints the error that ends the program.
pub(crate) fn print_error(error: &dyn fmt::Display) {
    // An error is ignored: a closed stderr has no reader.
    let _ = writeln!(io::stderr().lock(), "stayput: {}", plain(&error.to_string()));
}

/// Replaces control characters of foreign text, which could move the cursor of the terminal or turn the text around.
pub(crate) fn plain(text: &str) -> String {
    let shown =
        |it: char| if is_unprintable(it) && !matches!(it, '\n' | '\t') { '\u{fffd}' } else { it };
    text.chars().map(shown).collect()
}

/// Time of a line of text: UTC, to the millisecond.
struct Milliseconds;

impl FormatTime for Milliseconds {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&SystemClock.now().to_rfc3339_millis())
    }
}

/// Formats the fields of events and spans as text. An event with the field `event` has a sentence that contains its
/// other fields, so they are left out.
struct TextFields;

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor =
            TextVisitor { writer, is_first: true, is_complete: false, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

/// Writer of the fields of one event or span.
struct TextVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    /// Whether the sentence contains the remaining fields.
    is_complete: bool,
    result: fmt::Result,
}

impl Visit for TextVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.is_complete |= field.name() == "event";
        if self.is_complete || self.result.is_err() {
            return;
        }
        let gap = if std::mem::take(&mut self.is_first) { "" } else { " " };
        let value = escape(&format!("{value:?}"));
        self.result = match field.name() {
            "message" => write!(self.writer, "{gap}{value}"),
            name => write!(self.writer, "{gap}{name}={value}"),
        };
    }
}

/// Escapes control characters and indents further lines, so that text of a server cannot look like another log line or
/// control a terminal.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\n  "),
            '\t' => escaped.push(c),
            '\r' => {}
            c if is_unprintable(c) => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use stayput_testkit::LogLines;

    use super::*;

    fn text_of(log: impl FnOnce()) -> String {
        let lines = LogLines::default();
        let builder = SubscriberBuilder::default().with_writer(lines.clone()).with_ansi(false);
        let builder = builder.without_time().with_target(false).fmt_fields(TextFields);
        tracing::subscriber::with_default(builder.finish(), log);
        lines.text()
    }

    /// Invariant 8 and E36: foreign text stays inside its log line, in the sentence and in fields.
    #[test]
    fn foreign_text_cannot_forge_a_log_line() {
        let foreign = "a\r\nwarn: b\u{1b}[2J\tc";
        let said = text_of(|| tracing::warn!("it said: {foreign}"));
        assert_eq!(said, " WARN it said: a\n  warn: b\\u{1b}[2J\tc\n");
        let said = text_of(|| tracing::warn!(text = %foreign, name = foreign, "x"));
        assert_eq!(
            said,
            " WARN x text=a\n  warn: b\\u{1b}[2J\tc name=\"a\\r\\nwarn: b\\u{1b}[2J\\tc\"\n"
        );
    }

    #[test]
    fn sentence_of_a_named_event_stands_alone() {
        let said = text_of(|| tracing::info!(event = "x", server = "a", "It is so."));
        assert_eq!(said, " INFO It is so.\n");
        let said = text_of(|| tracing::info!(server = "a", count = 2, "It is so."));
        assert_eq!(said, " INFO It is so. server=\"a\" count=2\n");
    }

    #[test]
    fn filter_prefers_the_command_line() {
        let shown = |level, directives| filter(level, directives).0.to_string();
        assert_eq!(shown(None, None), "stayput=info,warn");
        assert_eq!(shown(Some(LevelFilter::DEBUG), Some("error")), "stayput=debug,warn");
        assert_eq!(shown(Some(LevelFilter::OFF), None), "off");
        assert_eq!(shown(None, Some("stayput_upstream=trace")), "stayput_upstream=trace");
        let (unread, problem) = filter(None, Some("stayput=loud"));
        assert_eq!(unread.to_string(), "stayput=info,warn");
        assert!(problem.unwrap().starts_with("RUST_LOG cannot be read"));
    }

    #[test]
    fn json_line_has_the_fields() {
        let lines = LogLines::default();
        let builder = SubscriberBuilder::default().with_writer(lines.clone());
        let builder = builder.json().flatten_event(true).with_current_span(false);
        tracing::subscriber::with_default(builder.finish(), || {
            let _span = tracing::info_span!("session", id = "1").entered();
            tracing::warn!(event = "x", server = "a\"b", "It is so.");
        });
        let line: Value = serde_json::from_str(&lines.text()).unwrap();
        assert_eq!((&line["level"], &line["event"]), (&"WARN".into(), &"x".into()));
        assert_eq!((&line["message"], &line["server"]), (&"It is so.".into(), &"a\"b".into()));
        assert_eq!(line["spans"], serde_json::json!([{ "name": "session", "id": "1" }]));
    }
}
