//! Parser of environment files.

/// Returns the variables of `text`, or the number of the first invalid line.
///
/// Surrounding quotes are removed, and escapes are decoded between double quotes. Nothing else has a meaning, because
/// other programs do not agree on more.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, usize> {
    let mut found = Vec::new();
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or(at + 1)?;
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(at + 1);
        }
        found.push((name.to_owned(), unquote(value.trim()).ok_or(at + 1)?));
    }
    Ok(found)
}

fn unquote(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (inner, after) = rest.split_once('\'')?;
        return is_end(after).then(|| inner.to_owned());
    }
    let Some(rest) = value.strip_prefix('"') else {
        // A comment after a value starts with " #"; a # without space belongs to the value.
        let end = value.find(" #").unwrap_or(value.len());
        return Some(value[..end].trim_end().to_owned());
    };
    let mut inner = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return is_end(characters.as_str()).then_some(inner),
            '\\' => inner.push(match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            plain => inner.push(plain),
        }
    }
}

/// Returns whether only a comment follows.
fn is_end(after: &str) -> bool {
    let after = after.trim_start();
    after.is_empty() || after.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_variables() {
        let text = "\u{feff}# keys\n\nA=1\r\nexport B = two words # why\nC='#3 ${X}' # x\n\
                    D=\"a\\n\\\"b\\\"\"\nE=\nF=a#b=c\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "#3 ${X}"),
            ("D", "a\n\"b\""),
            ("E", ""),
            ("F", "a#b=c"),
        ];
        let found = parse(text).unwrap();
        let found: Vec<(&str, &str)> =
            found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_line_is_reported_by_number() {
        for text in ["A=1\nsecret", "A=1\n=x", "A=1\nA B=x", "A=1\nB='x", "A=1\nB=\"x\" y"] {
            assert_eq!(parse(text), Err(2), "{text}");
        }
    }
}
