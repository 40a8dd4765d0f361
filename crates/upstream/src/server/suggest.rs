//! Suggestions for misspelt names.

/// Returns the known name with the smallest edit distance to `name`.
#[must_use]
pub fn nearest(name: &str, known: &[&'static str]) -> &'static str {
    known.iter().min_by_key(|known| distance(known, name)).copied().unwrap_or_default()
}

/// Returns the nearest known name if at most one letter differs, is missing or is extra.
#[must_use]
pub fn misspelt(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let nearest = nearest(name, known);
    (distance(nearest, name) <= 1).then_some(nearest)
}

/// Edit distance without regard to case, `-` and `_`. Only the first 64 characters are compared: the time grows
/// with the product of both lengths, and no known name is longer.
fn distance(known: &str, name: &str) -> usize {
    let name: String = name.chars().take(64).collect();
    let name = name.to_ascii_lowercase().replace('-', "_");
    strsim::levenshtein(&known.to_ascii_lowercase().replace('-', "_"), &name)
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
