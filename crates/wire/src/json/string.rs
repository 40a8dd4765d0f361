//! JSON strings.

use std::borrow::Cow;

/// Encodes `text` as a JSON string with quotes.
///
/// ```
/// assert_eq!(stayput_wire::json::quote("a \"b\"\n"), r#""a \"b\"\n""#);
/// ```
#[must_use]
pub fn quote(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..='\x1f' => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => json.push(letter),
        }
    }
    json.push('"');
    json
}

/// Decodes a JSON string with quotes.
///
/// Returns `None` if it is no string, or has a lone surrogate, which is valid JSON but no text.
///
/// ```
/// use stayput_wire::json::unquote;
///
/// assert_eq!(unquote(r#""n\u0061me""#).as_deref(), Some("name"));
/// assert_eq!(unquote(r#""\ud83e\udd80""#).as_deref(), Some("🦀"));
/// assert_eq!(unquote(r#""\ud83e""#), None);
/// assert_eq!(unquote("7"), None);
/// ```
#[must_use]
pub fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    let Some(first) = inner.find('\\') else { return Some(Cow::Borrowed(inner)) };
    let mut text = String::with_capacity(inner.len());
    let (plain, mut rest) = inner.split_at(first);
    text.push_str(plain);
    while let Some(escape) = rest.strip_prefix('\\') {
        let (letter, behind) = unescape(escape)?;
        let next = behind.find('\\').unwrap_or(behind.len());
        text.push(letter);
        text.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    Some(Cow::Owned(text))
}

/// Returns the character of an escape, and the rest.
fn unescape(escape: &str) -> Option<(char, &str)> {
    let (kind, rest) = escape.split_at_checked(1)?;
    let letter = match kind {
        "\"" | "\\" | "/" => kind.chars().next()?,
        "b" => '\x08',
        "f" => '\x0c',
        "n" => '\n',
        "r" => '\r',
        "t" => '\t',
        "u" => return unescape_code(rest),
        _ => return None,
    };
    Some((letter, rest))
}

fn unescape_code(digits: &str) -> Option<(char, &str)> {
    let (high, rest) = code(digits)?;
    if let Some(letter) = char::from_u32(high) {
        return Some((letter, rest));
    }
    let (low, rest) = code(rest.strip_prefix("\\u")?)?;
    if !(0xD800..0xDC00).contains(&high) || !(0xDC00..0xE000).contains(&low) {
        return None;
    }
    let letter = char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?;
    Some((letter, rest))
}

fn code(digits: &str) -> Option<(u32, &str)> {
    let (digits, rest) = digits.split_at_checked(4)?;
    // `from_str_radix` would also accept a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(digits, 16).ok().filter(|_| plain)?;
    Some((code, rest))
}

/// Returns whether the JSON string `json` decodes to `text`.
pub(crate) fn is_text(json: &str, text: &str) -> bool {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        // An escape is longer than its character.
        Some(inner) if inner.len() <= text.len() => inner == text && !inner.contains('\\'),
        _ => unquote(json).is_some_and(|decoded| decoded == text),
    }
}

/// Returns whether a case-insensitive reader takes two names for the same.
///
/// Go's `encoding/json` is such a reader. It also takes `ſ` for `s`, and the Kelvin sign for `k`.
pub(crate) fn eq_ignore_case(one: &str, other: &str) -> bool {
    let fold = |letter: char| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        _ => letter.to_ascii_lowercase(),
    };
    one.chars().map(fold).eq(other.chars().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_is_decoded() {
        let json = r#""\"\\\/\b\f\n\r\t\u00e4\ud834\udd1e!""#;
        assert_eq!(unquote(json).as_deref(), Some("\"\\/\x08\x0c\n\r\tä𝄞!"));
    }

    #[test]
    fn invalid_string_is_not_decoded() {
        for json in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\u0041""#,
            r#""\udc00\ud800""#,
            r#""\u+041""#,
            r#""\u12""#,
            r#""\x""#,
            "\"",
            "",
            "null",
        ] {
            assert_eq!(unquote(json), None, "{json}");
        }
    }

    #[test]
    fn quoted_text_round_trips() {
        let all: String = ('\0'..'\u{300}').chain(['漢', '🦀', '\u{2028}']).collect();
        assert_eq!(unquote(&quote(&all)).as_deref(), Some(all.as_str()));
        assert_eq!(serde_json::from_str::<String>(&quote(&all)).unwrap(), all);
    }

    #[test]
    fn names_compare_exactly_or_without_case() {
        assert!(is_text(r#""\u006dethod""#, "method"));
        assert!(!is_text(r#""Method""#, "method"));
        assert!(!is_text(r#""x\n""#, r"x\n") && is_text(r#""x\\n""#, r"x\n"));
        assert!(!is_text("method", "method") && !is_text("\"", "") && is_text("\"\"", ""));
        assert!(eq_ignore_case("METHOD", "method"));
        assert!(eq_ignore_case("reſult", "result"));
        assert!(!eq_ignore_case("methods", "method"));
    }
}
