//! Texts of servers and about servers, without what must not be shown.

use std::{borrow::Cow, path::Path};

use stayput_wire::{Raw, json};

/// What stands where a secret was.
pub(crate) const HIDDEN: &str = "[redacted]";

/// The fewest bytes of a secret. A shorter value can be guessed anyway, and to hide `true` or `info` would
/// leave holes in every sentence.
pub(crate) const SHORTEST: usize = 6;

/// Hides the secrets of one server in what the server writes: servers repeat what they were given.
///
/// The values of `env` and `headers`, the credentials and the query of the URL, and whatever
/// `${env:NAME}`, `${file:PATH}` and `envFile` filled in count as secrets, if they are at least
/// [`SHORTEST`] bytes long and do not name a file or a folder of this machine.
#[derive(Default)]
pub(crate) struct Redactor {
    /// The longest first: one may be a part of another.
    secrets: Vec<String>,
}

impl Redactor {
    /// Hides those of `values` that count as secrets. Each line of a value is hidden by itself, too,
    /// because logs are written in lines.
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

    /// The text without secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in self.secrets.iter().filter(|secret| text.contains(&***secret)) {
            shown = shown.replace(&**secret, HIDDEN).into();
        }
        shown
    }

    /// The same for a text of JSON, in whose strings a letter can be written as an escape. What has no
    /// secret in it stays as it was written, byte for byte.
    pub(crate) fn redact_json<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let (mut shown, mut copied, mut at) = (String::new(), 0, 0);
        while let Some(begin) = text[at..].find('"').map(|found| at + found) {
            let end = end_of_string(text, begin);
            let said = Raw::parse(&text[begin..end]).ok().and_then(Raw::text);
            if let Some(Cow::Owned(hidden)) = said.as_deref().map(|said| self.redact(said)) {
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

/// Where the string ends that begins with the quote at `begin`.
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
    value.len() >= SHORTEST && !is_path(value)
}

/// Whether a value names a file or a folder. What only looks like a path can be a key.
fn is_path(value: &str) -> bool {
    let path = Path::new(value);
    let beside = || path.parent().is_some_and(|it| it != Path::new("/") && it.is_dir());
    ["./", "../", "~/"].iter().any(|begin| value.starts_with(begin))
        || path.is_absolute() && (path.exists() || beside())
}

/// The text with the origin of each URL in place of the URL: paths, queries and credentials are for whoever
/// runs the server.
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
            // What ends the clause is not a part of the URL.
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

/// Whether a URL in a sentence cannot have this character in it.
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
    fn secrets_are_hidden_wherever_they_stand() {
        let redactor = redactor(&["s3cret-key", "s3cret-key-long", "one-line\ntwo-lines"]);
        assert_eq!(redactor.redact("s3cret-key-long, s3cret-key"), "[redacted], [redacted]");
        assert_eq!(redactor.redact("a\ntwo-lines\n"), "a\n[redacted]\n");
        assert!(matches!(redactor.redact("nothing"), Cow::Borrowed(_)));
    }

    #[test]
    fn values_that_are_no_secrets_stay() {
        let folder = std::env::temp_dir().join("not-yet-there");
        let folder = folder.to_str().unwrap();
        let redactor =
            redactor(&["true", "info", "", "/usr/bin", "./data/file", folder, "/AbC/d+key"]);
        assert_eq!(redactor.secrets, ["/AbC/d+key"]);
    }

    #[test]
    fn an_escape_hides_no_secret_in_json() {
        let redactor = redactor(&["s3cret\"key"]);
        let said = r#"{"message": "no \u00733cret\"key here", "data":{"s3cret\"key":[1.10,"s3cret\u0022key"]}}"#;
        let expected =
            r#"{"message": "no [redacted] here", "data":{"[redacted]":[1.10,"[redacted]"]}}"#;
        assert_eq!(redactor.redact_json(said), expected);
        for said in [r#"{"a" : "b\u0020c"}"#, r#"{"a":"\\"}"#, "\"", "{}", "\"\\"] {
            assert!(matches!(redactor.redact_json(said), Cow::Borrowed(_)), "{said}");
        }
    }

    #[test]
    fn nothing_of_a_url_is_shown_but_its_origin() {
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
