//! Lines that differ between two texts.

use std::fmt::Write as _;

/// Largest number of lines that are compared one by one. Of larger parts all lines are shown.
const MAX_COMPARED_LINES: usize = 2_000;

/// Keys of objects whose values are secrets.
const SECRET_KEYS: [&str; 4] = ["\"env\"", "\"environment\"", "\"headers\"", "env ="];

/// Largest number of bytes of a line that are shown.
const MAX_LINE_LEN: usize = 200;

/// Returns the removed and added lines in order, with the number of the line before each group. Lines around them are
/// not shown: they hold the tokens and passwords of other entries.
pub(super) fn between(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(one, two)| one == two).count();
    let (old, new) = (&old[same..], &new[same..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(one, two)| one == two).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut shown = Diff { text: String::new(), line: same, open: false };
    let common = match old.len().max(new.len()) <= MAX_COMPARED_LINES {
        true => common_lines(old, new),
        false => Vec::new(),
    };
    let (mut from, mut to) = (0, 0);
    for (at, other) in common.into_iter().chain([(old.len(), new.len())]) {
        old[from..at].iter().for_each(|line| shown.push('-', line));
        new[to..other].iter().for_each(|line| shown.push('+', line));
        (from, to) = (at + 1, other + 1);
        shown.line += 1;
        shown.open = false;
    }
    shown.text
}

struct Diff {
    text: String,
    /// Number of lines of the old text so far.
    line: usize,
    open: bool,
}

impl Diff {
    fn push(&mut self, sign: char, line: &str) {
        if !self.open {
            let _ = writeln!(self.text, "line {}:", self.line + 1);
            self.open = true;
        }
        self.line += usize::from(sign == '-');
        let shown = without_secrets(line);
        let rest = if shown.len() < line.len() { " …" } else { "" };
        let _ = writeln!(self.text, "{sign} {shown}{rest}");
    }
}

/// Returns the part of a line before variables or headers, whose values are secrets. A long line is a whole file.
fn without_secrets(line: &str) -> &str {
    let cut = SECRET_KEYS.iter().filter_map(|key| line.find(key)).min().unwrap_or(line.len());
    let limit = cut.min(MAX_LINE_LEN);
    let end = (0..=limit).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    line[..end].trim_end()
}

/// Returns the places of a longest common subsequence of lines.
fn common_lines(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    for at in (0..old.len()).rev() {
        for other in (0..new.len()).rev() {
            lengths[at * width + other] = match old[at] == new[other] {
                true => lengths[(at + 1) * width + other + 1] + 1,
                false => lengths[(at + 1) * width + other].max(lengths[at * width + other + 1]),
            };
        }
    }
    let (mut at, mut other, mut common) = (0, 0, Vec::new());
    while at < old.len() && other < new.len() {
        if old[at] == new[other] {
            common.push((at, other));
            (at, other) = (at + 1, other + 1);
        } else if lengths[(at + 1) * width + other] >= lengths[at * width + other + 1] {
            at += 1;
        } else {
            other += 1;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_differ_are_shown() {
        let (old, new) = ("a\nb\nc\nd\ne\nf", "a\nB\nc\nd\nx\ny\nf");
        assert_eq!(between(old, new), "line 2:\n- b\n+ B\nline 5:\n- e\n+ x\n+ y\n");
        assert_eq!(between(old, old), "");
        assert_eq!(between("a\n", "a\nb\n"), "line 2:\n+ b\n");
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let entry =
            |command: &str| format!(r#"{{"command": "{command}", "env": {{"T": "s3cr3t"}}}}"#);
        let shown = between(&entry("x"), &entry("y"));
        assert_eq!(shown, "line 1:\n- {\"command\": \"x\", …\n+ {\"command\": \"y\", …\n");
        assert!(between("a", &"b".repeat(1_000)).len() < 250);
    }
}
