//! Recording of one scenario, and its comparison with the golden file.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use crate::{cells::Cell, redact::Redactor, server::Scripted};

/// Environment variable that makes the tests write the golden files.
const UPDATE: &str = "STAYPUT_UPDATE_TRANSCRIPTS";

/// One line of a recording, before redaction.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Direction (`>` sent, `<` received) or indentation.
    pub(crate) mark: &'static str,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// Meaning of a line, which decides how ids in it are redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Header, status or remark.
    Plain,
    /// Message of the client.
    Sent,
    /// Message to the client.
    Received,
    /// `id:` of an event.
    EventId,
    /// `last-event-id:` of a request.
    LastEventId,
    /// Message to the process of a server.
    ToServer,
}

/// Messages that the client sent and received, one block per exchange: streams that run beside each
/// other keep their own order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript(Arc<Mutex<Vec<Block>>>);

#[derive(Debug)]
struct Block {
    title: String,
    lines: Vec<Line>,
}

impl Transcript {
    /// Begins a block; returns its number.
    pub(crate) fn begin(&self, title: impl Into<String>) -> usize {
        let mut blocks = self.0.lock().unwrap();
        blocks.push(Block { title: title.into(), lines: Vec::new() });
        blocks.len() - 1
    }

    pub(crate) fn add(&self, block: usize, mark: &'static str, kind: Kind, text: &str) {
        let line = Line { mark, kind, text: text.to_owned() };
        self.0.lock().unwrap()[block].lines.push(line);
    }

    pub(crate) fn plain(&self, block: usize, mark: &'static str, text: &str) {
        self.add(block, mark, Kind::Plain, text);
    }

    /// Writes the whole recording, redacted.
    pub(crate) fn render(&self, cell: Cell, servers: &[Scripted], folder: &Path) -> String {
        let mut redactor = Redactor::new(folder);
        let mut text = format!("# {cell}\n");
        for block in &*self.0.lock().unwrap() {
            let _ = write!(text, "\n== client: {} ==\n", redactor.patterns(&block.title));
            for line in &block.lines {
                text.push_str(&redactor.line(line));
            }
        }
        for server in servers {
            for (number, process) in server.processes().iter().enumerate() {
                let _ = write!(text, "\n== server {}: process {} ==\n", server.name, number + 1);
                redactor.next_process();
                for line in process {
                    text.push_str(&redactor.line(line));
                }
            }
        }
        text
    }
}

/// Folder of the golden files.
pub(crate) fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/golden")
}

/// Compares a recording with its golden file, or writes the file if that was asked for.
pub(crate) fn compare(cell: Cell, recorded: &str) {
    let path = golden_folder().join(cell.to_string());
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, recorded).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; {UPDATE}=1 records it", path.display());
    });
    if golden != recorded {
        panic!(
            "{} differs; {UPDATE}=1 records it anew\n{}",
            path.display(),
            diff(&golden, recorded)
        );
    }
}

/// Shows the lines between the common beginning and the common end.
pub(crate) fn diff(golden: &str, recorded: &str) -> String {
    const CONTEXT: usize = 3;
    let (before, after) =
        (golden.lines().collect::<Vec<_>>(), recorded.lines().collect::<Vec<_>>());
    let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let ends = (before[same..].iter().rev().zip(after[same..].iter().rev()))
        .take_while(|(one, other)| one == other)
        .count();
    let mut text = format!("first difference in line {}:\n", same + 1);
    let mut show = |mark: &str, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(text, "{mark} {line}");
        }
    };
    show(" ", &before[same.saturating_sub(CONTEXT)..same]);
    show("-", &before[same..before.len() - ends]);
    show("+", &after[same..after.len() - ends]);
    show(" ", &after[after.len() - ends..(after.len() - ends + CONTEXT).min(after.len())]);
    text
}

#[test]
fn difference_is_shown_with_its_line_and_context() {
    let shown = diff("a\nb\nc\nd\n", "a\nb\nx\nd\n");
    assert_eq!(shown, "first difference in line 3:\n  a\n  b\n- c\n+ x\n  d\n");
    assert_eq!(diff("a\n", "a\nb\n"), "first difference in line 2:\n  a\n+ b\n");
}
