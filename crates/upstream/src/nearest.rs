//! Suggestions for misspelt names.

/// Returns the known name with the smallest edit distance to `name`.
#[must_use]
pub fn nearest(name: &str, known: &[&'static str]) -> &'static str {
    let name = name.to_ascii_lowercase();
    known.iter().min_by_key(|known| changes(known, &name)).copied().unwrap_or_default()
}

/// Returns the nearest known name if at most one letter differs, is missing or is extra.
#[must_use]
pub fn misspelt(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let nearest = nearest(name, known);
    (changes(nearest, &name.to_ascii_lowercase()) <= 1).then_some(nearest)
}

fn changes(known: &str, name: &str) -> usize {
    distance(&known.replace('-', "_"), &name.replace('-', "_"))
}

/// Edit distance of two texts.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    // Longer names match no known one, and 64 bytes suffice to see that.
    for (down, wanted) in to.bytes().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = down + 1;
        for (across, had) in from.bytes().enumerate() {
            let replaced = diagonal + usize::from(had != wanted);
            diagonal = row[across + 1];
            row[across + 1] = replaced.min(diagonal + 1).min(row[across] + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_the_intended_name() {
        let known = ["isolation", "on_loss", "startup_timeout", "timeout"];
        for (written, meant) in [
            ("isolaton", "isolation"),
            ("onLoss", "on_loss"),
            ("on-loss", "on_loss"),
            ("startupTimeout", "startup_timeout"),
            ("TIMEOUTS", "timeout"),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
        assert_eq!(nearest("x", &[]), "");
        let known = ["command", "url"];
        for (written, meant) in [
            ("comand", Some("command")),
            ("Command", Some("command")),
            ("uri", Some("url")),
            ("id", None),
            ("comment", None),
        ] {
            assert_eq!(misspelt(written, &known), meant, "{written}");
        }
    }
}
