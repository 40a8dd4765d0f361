//! A file of environment variables, one in each line.

/// The names and values of `text`, or the number of the first line that is neither empty, nor a
/// comment, nor a variable.
///
/// Values are taken as they are: quotes around one are taken off, and nothing in it has a meaning
/// but for the escapes between double quotes. Other programs that read such files agree on no more.
pub(crate) fn variables(text: &str) -> Result<Vec<(String, String)>, usize> {
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
        found.push((name.to_owned(), unquoted(value.trim()).ok_or(at + 1)?));
    }
    Ok(found)
}

fn unquoted(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (inner, after) = rest.split_once('\'')?;
        return is_over(after).then(|| inner.to_owned());
    }
    let Some(rest) = value.strip_prefix('"') else {
        // A comment behind a value begins with a space; a # inside of one is part of it.
        let end = value.find(" #").unwrap_or(value.len());
        return Some(value[..end].trim_end().to_owned());
    };
    let mut inner = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return is_over(characters.as_str()).then_some(inner),
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

/// Whether nothing but a comment follows.
fn is_over(after: &str) -> bool {
    let after = after.trim_start();
    after.is_empty() || after.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_variable() {
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
        let found = variables(text).unwrap();
        let found: Vec<(&str, &str)> =
            found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for text in ["A=1\nsecret", "A=1\n=x", "A=1\nA B=x", "A=1\nB='x", "A=1\nB=\"x\" y"] {
            assert_eq!(variables(text), Err(2), "{text}");
        }
    }
}
