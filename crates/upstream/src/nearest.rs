//! The name that somebody meant.

/// The known name that takes the fewest changes to get to from `name`.
#[must_use]
pub fn nearest(name: &str, known: &[&'static str]) -> &'static str {
    let name = name.to_ascii_lowercase();
    known.iter().min_by_key(|known| changes(known, &name)).copied().unwrap_or_default()
}

/// The same if one letter is wrong, too many or too few.
#[must_use]
pub fn misspelt(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let nearest = nearest(name, known);
    (changes(nearest, &name.to_ascii_lowercase()) <= 1).then_some(nearest)
}

fn changes(known: &str, name: &str) -> usize {
    distance(&known.replace('-', "_"), &name.replace('-', "_"))
}

/// How many characters have to be added, removed or replaced to get from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    // A name of a thousand characters is like no other, which its beginning tells as well.
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
    fn the_nearest_name_is_the_one_that_was_meant() {
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
