//! Redaction of secrets and URLs.

use std::{borrow::Cow, path::Path};

use stayput_wire::{Raw, json};

/// Replacement of a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// Shortest secret, in bytes. Shorter values can be guessed anyway, and redacting `true` or `info` would make
/// texts unreadable.
pub(crate) const MIN_SECRET_LENGTH: usize = 6;

/// Redacts the secrets of one server in its output, because servers may repeat their configuration.
///
/// Secrets are the values of `env` and `headers`, the credentials and the query of the URL, and values from
/// `${env:NAME}`, `${file:PATH}` and `envFile`, if they have at least [`SHORTEST`] bytes and are not a path
/// of this machine.
#[derive(Default)]
pub(crate) struct Redactor {
    /// Longest first, because one may contain another.
    secrets: Vec<String>,
}

impl Redactor {
    /// Takes those of `values` that count as secrets. Each line of a value is a secret too, because logs are
    /// written in lines.
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut secrets: Vec<String> = Vec::new();
        for value in values {
            secrets.extend(value.lines().map(|line| line.trim().to_owned()));
            secrets.push(value);
        }
        secrets.retain(|secret| is_secret(secret));
        secrets.sort_by(|one, two| two.len().cmp(&one.len()).then_with(|| one.cmp(two)));
        secrets.dedup();
        Self { secrets }
    }

    /// Returns the text without secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in self.secrets.iter().filter(|secret| text.contains(&***secret)) {
            shown = shown.replace(&**secret, REDACTED).into();
        }
        shown
    }

    /// Redacts a JSON text, whose strings may contain escapes. Strings without a secret stay unchanged, byte
    /// for byte.
    pub(crate) fn redact_json<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let (mut shown, mut copied, mut at) = (String::new(), 0, 0);
        while let Some(begin) = text[at..].find('"').map(|found| at + found) {
            let end = end_of_string(text, begin);
            let it = Raw::parse(&text[begin..end]).ok().and_then(Raw::text);
            if let Some(Cow::Owned(hidden)) = it.as_deref().map(|it| self.redact(it)) {
                shown.push_str(&text[copied..begin]);
                shown.push_str(&json::quote(&hidden));
                copied = end;
            }
            at = end;
        }
        if copied == 0 {
            return text.into();
        }
        shown.push_str(&text[copied..]);
        shown.into()
    }
}

/// End of the string that starts with the quote at `begin`.
fn end_of_string(text: &str, begin: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(begin + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_secret(value: &str) -> bool {
    value.len() >= MIN_SECRET_LENGTH && !is_path(value)
}

/// Whether a value is the path of an existing file or directory, or next to one. A value that only looks like
/// a path may be a key.
fn is_path(value: &str) -> bool {
    let path = Path::new(value);
    let beside = || path.parent().is_some_and(|it| it != Path::new("/") && it.is_dir());
    ["./", "../", "~/"].iter().any(|begin| value.starts_with(begin))
        || path.is_absolute() && (path.exists() || beside())
}

/// Replaces each URL by its origin: paths, queries and credentials are for the operator.
pub(crate) fn hide_paths(text: &str) -> Cow<'_, str> {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let begin = at + "://".len();
        let url =
            rest[begin..].find(ends_url).map_or(&rest[begin..], |end| &rest[begin..begin + end]);
        let authority = url.find(['/', '?', '#']).map_or(url, |end| &url[..end]);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        shown.push_str(&rest[..begin]);
        shown.push_str(host);
        if authority.len() < url.len() {
            // Punctuation at the end belongs to the sentence.
            shown.push_str(&url[url.trim_end_matches([':', ';', ',', '.', ')']).len()..]);
        }
        rest = &rest[begin + url.len()..];
    }
    if shown.is_empty() {
        return text.into();
    }
    shown.push_str(rest);
    shown.into()
}

/// Whether this character ends a URL in a sentence.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(values: &[&str]) -> Redactor {
        Redactor::new(values.iter().map(|value| (*value).to_owned()))
    }

    #[test]
    fn secrets_are_redacted_in_every_position() {
        let redactor = redactor(&["s3cret-key", "s3cret-key-long", "one-line\ntwo-lines"]);
        assert_eq!(redactor.redact("s3cret-key-long, s3cret-key"), "[redacted], [redacted]");
        assert_eq!(redactor.redact("a\ntwo-lines\n"), "a\n[redacted]\n");
        assert!(matches!(redactor.redact("nothing"), Cow::Borrowed(_)));
    }

    #[test]
    fn short_values_and_paths_are_not_secrets() {
        let folder = std::env::temp_dir().join("not-yet-there");
        let folder = folder.to_str().unwrap();
        let redactor =
            redactor(&["true", "info", "", "/usr/bin", "./data/file", folder, "/AbC/d+key"]);
        assert_eq!(redactor.secrets, ["/AbC/d+key"]);
    }

    #[test]
    fn escaped_secret_in_json_is_redacted() {
        let redactor = redactor(&["s3cret\"key"]);
        let text = r#"{"message": "no \u00733cret\"key here", "data":{"s3cret\"key":[1.10,"s3cret\u0022key"]}}"#;
        let expected =
            r#"{"message": "no [redacted] here", "data":{"[redacted]":[1.10,"[redacted]"]}}"#;
        assert_eq!(redactor.redact_json(text), expected);
        for text in [r#"{"a" : "b\u0020c"}"#, r#"{"a":"\\"}"#, "\"", "{}", "\"\\"] {
            assert!(matches!(redactor.redact_json(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn hide_paths_keeps_only_the_origin() {
        for (text, expected) in [
            ("no URL", "no URL"),
            ("http://a.test:1/x?key=y#z broke", "http://a.test:1 broke"),
            ("at https://u:p@a.test/x; try", "at https://a.test; try"),
            ("(http://a.test/x) and 'https://b.test?q'", "(http://a.test) and 'https://b.test'"),
            ("http://a.test: no; http://[::1]:8/x", "http://a.test: no; http://[::1]:8"),
        ] {
            assert_eq!(hide_paths(text), expected);
        }
    }
}
