//! Tokens of Rust code, as far as paths and calls need them.

/// Token of a source file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Identifier or keyword.
    Word(String),
    /// `::`
    PathSeparator,
    /// `{`
    Open,
    /// `}`
    Close,
    /// Any other character.
    Other(char),
}

/// Reads the tokens of a file up to its unit tests. Comments, strings and characters are left out.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut rest = without_unit_tests(text);
    let mut tokens = Vec::new();
    while let Some(next) = rest.chars().next() {
        let (token, length) = if let Some(length) = skipped(rest) {
            (None, length)
        } else if next.is_alphabetic() || next == '_' {
            let length =
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Some(Token::Word(rest[..length].to_owned())), length)
        } else if rest.starts_with("::") {
            (Some(Token::PathSeparator), 2)
        } else {
            let token = match next {
                '{' => Some(Token::Open),
                '}' => Some(Token::Close),
                other => (!other.is_whitespace()).then_some(Token::Other(other)),
            };
            (token, next.len_utf8())
        };
        tokens.extend(token);
        rest = &rest[length..];
    }
    tokens
}

/// Returns the part before the module with the unit tests; `mod tests;` has them in another file.
pub(super) fn without_unit_tests(text: &str) -> &str {
    let modules = text.match_indices("\n#[cfg(test)]\nmod ");
    let inline = |(at, begin): &(usize, &str)| {
        let behind = &text[at + begin.len()..];
        behind.find(['{', ';']).is_some_and(|end| behind[end..].starts_with('{'))
    };
    modules.into_iter().find(inline).map_or(text, |(at, _)| &text[..at])
}

/// Returns the length of the comment, string or character that a text begins with.
fn skipped(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if let Some(inner) = text.strip_prefix("/*") {
        return Some(inner.find("*/").map_or(text.len(), |at| at + 4));
    }
    if let Some(raw) = text.strip_prefix('r')
        && raw.trim_start_matches('#').starts_with('"')
    {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let body = 2 + hashes;
        return Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()));
    }
    if let Some(body) = text.strip_prefix('"') {
        return Some(1 + quoted(body, '"'));
    }
    // A quote with a second one behind one character or one escape is a character; else it is a lifetime.
    let body = text.strip_prefix('\'')?;
    let mut chars = body.chars();
    let is_char = match chars.next()? {
        '\\' => true,
        _ => chars.next() == Some('\''),
    };
    Some(if is_char { 1 + quoted(body, '\'') } else { 1 })
}

/// Returns the length of a quoted text up to and with its closing quote.
fn quoted(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    body.len()
}
