//! Text for terminals: tables, durations, sizes, colours.

use std::io::IsTerminal as _;

pub(crate) use crate::observe::log::plain;

/// Formats rows under headings. Each column is as wide as its longest cell.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(headings.get(column).map(|it| it.len())).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = line(&mut headings.iter().copied());
    let rows = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}

/// Formats a duration, in at most two units.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// Formats an amount of memory.
pub(crate) fn memory(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mebibytes @ 1..10_240 => format!("{mebibytes} MiB"),
        mebibytes => format!("{} GiB", mebibytes >> 10),
    }
}

/// Whether to use colours: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// Formats a text in bold.
pub(crate) fn strong(text: &str, coloured: bool) -> String {
    if coloured { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_longest_cell() {
        let rows = [vec!["a".to_owned(), "ü".to_owned()], vec!["long".to_owned(), String::new()]];
        assert_eq!(table(&["X", "NAME"], &rows), "X     NAME\na     ü\nlong");
    }

    #[test]
    fn durations_and_sizes_are_short() {
        let spans = [(59, "59s"), (61, "1m01s"), (7_260, "2h01m"), (180_000, "2d02h")];
        assert!(spans.iter().all(|(seconds, text)| span(*seconds) == *text));
        let sizes = [(5 << 10, "5 KiB"), (300 << 20, "300 MiB"), (20 << 30, "20 GiB")];
        assert!(sizes.iter().all(|(bytes, text)| memory(*bytes) == *text));
        assert_eq!(plain("a\u{1b}[31m\nb\u{202e}c"), "a\u{fffd}[31m\nb\u{fffd}c");
    }
}
