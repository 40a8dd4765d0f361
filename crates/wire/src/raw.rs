//! JSON values as written.

use std::{borrow::Cow, fmt, ops::Range};

use crate::{
    json::{self, MemberRange, Members, Scanner, SyntaxError},
    span::{self, Ambiguous},
};

/// JSON value inside a text: its bytes and their position.
///
/// A `Raw` is part of a checked text, so access does not fail. It is `Copy`, and decodes nothing in advance. `Debug`
/// shows the position only, because values may be secrets.
///
/// ```
/// use stayput_wire::Raw;
///
/// let text = r#"{"name":"add","arguments":{"price":1.10}}"#;
/// let params = Raw::parse(text)?;
/// let price = params.find(&["arguments", "price"]).unwrap();
/// assert_eq!(price.as_str(), "1.10");
/// assert_eq!(&text[price.range()], "1.10");
/// assert_eq!(params.find(&["name"]).unwrap().text().as_deref(), Some("add"));
/// # Ok::<(), stayput_wire::json::SyntaxError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Raw<'a> {
    /// Parses `text` as one value.
    ///
    /// # Errors
    /// Returns an error if `text` is not one JSON value.
    pub fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        let mut scanner = Scanner::new(text);
        let value = scanner.value(0)?;
        scanner.end()?;
        Ok(Self::cut(text, value))
    }

    /// Parses `text` as an object, and returns it with its member `name`. The last of duplicate members counts.
    ///
    /// ```
    /// use stayput_wire::Raw;
    ///
    /// let (_, name) = Raw::parse_with(r#"{"name":"add","arguments":{}}"#, "name").unwrap();
    /// assert_eq!(name.unwrap().as_str(), "\"add\"");
    /// assert!(Raw::parse_with("[]", "name").is_none());
    /// ```
    ///
    /// `None` if `text` is not one JSON object.
    #[must_use]
    pub fn parse_with(text: &'a str, name: &str) -> Option<(Self, Option<Self>)> {
        let start = Scanner::new(text);
        let mut members = Members::new(start.clone(), 0)?;
        let mut found = None;
        while let Some(MemberRange { key, value }) = members.next().ok()? {
            if json::is_text(&text[key], name) {
                found = Some(Self::cut(text, value));
            }
        }
        let mut scanner = members.into_scanner();
        let whole = Self::cut(text, start.at()..scanner.at());
        scanner.end().ok()?;
        Some((whole, found))
    }

    /// Wraps the value at `range` of `text`, which the caller has found there.
    pub(crate) fn cut(text: &'a str, range: Range<usize>) -> Self {
        Self { at: range.start, json: &text[range] }
    }

    /// Wraps a value inside this one, at a relative range.
    fn inner(self, range: Range<usize>) -> Self {
        Self { at: self.at + range.start, json: &self.json[range] }
    }

    /// Returns the bytes, without white space around the value.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.json
    }

    /// Returns the range in the text that the value was read from.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.at..self.at + self.json.len()
    }

    /// Returns whether the value is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.json.starts_with('{')
    }

    /// Returns whether the value is an array.
    #[must_use]
    pub fn is_array(self) -> bool {
        self.json.starts_with('[')
    }

    /// Returns whether the value is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.json == "null"
    }

    /// Returns whether the value is a number.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
    }

    /// Decodes a string; `None` for other values and lone surrogates, see [`json::unquote`].
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        json::unquote(self.json)
    }

    /// Returns the number, if it is an integer without fraction and exponent that fits.
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        self.json.parse().ok().filter(|_| self.is_number())
    }

    /// Returns a boolean.
    #[must_use]
    pub fn boolean(self) -> Option<bool> {
        self.json.parse().ok()
    }

    /// Finds the value at `path`, which follows objects. The last of duplicate members counts.
    #[must_use]
    pub fn find(self, path: &[&str]) -> Option<Self> {
        span::find(self.json, path).map(|range| self.inner(range))
    }

    /// Finds the value at `path` if every reader finds the same one.
    ///
    /// # Errors
    /// Returns an error if a member of the path is duplicated, or has two spellings, see [`span::find_unique`].
    pub fn find_unique(self, path: &[&str]) -> Result<Option<Self>, Ambiguous> {
        match span::find_unique(self.json, path) {
            Ok(found) => Ok(found.map(|range| self.inner(range))),
            Err(ambiguous) => Err(ambiguous.shift(self.at)),
        }
    }

    /// Iterates over the members of an object, with names as written, including quotes. Other values have none.
    pub fn members(self) -> impl Iterator<Item = (Self, Self)> {
        let mut walk = Members::new(Scanner::new(self.json), 0);
        std::iter::from_fn(move || {
            let slot = walk.as_mut()?.next().ok().flatten()?;
            Some((self.inner(slot.key), self.inner(slot.value)))
        })
    }

    /// Iterates over the elements of an array. Other values have none.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        let mut at = if self.is_array() { 1 } else { self.json.len() };
        std::iter::from_fn(move || {
            let mut scanner = Scanner::starting_at(self.json, at);
            // At the end of the array no value starts.
            let range = scanner.value(1).ok()?;
            // Skip the comma, or the closing bracket.
            at = Scanner::starting_at(self.json, range.end).at() + 1;
            Some(self.inner(range))
        })
    }
}

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({:?})", self.range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_refer_to_the_whole_text() {
        let text = r#" { "a" : [ 1 , {"b":"x"} , [] ] } "#;
        let whole = Raw::parse(text).unwrap();
        let elements: Vec<_> = whole.find(&["a"]).unwrap().elements().collect();
        let shown: Vec<_> = elements.iter().map(|element| element.as_str()).collect();
        assert_eq!(shown, ["1", r#"{"b":"x"}"#, "[]"]);
        let b = elements[1].find(&["b"]).unwrap();
        assert_eq!(&text[b.range()], "\"x\"");
        assert_eq!(elements[2].elements().count(), 0);
        let (key, value) = whole.members().next().unwrap();
        assert_eq!((&text[key.range()], &text[value.range()][..1]), ("\"a\"", "["));
    }

    #[test]
    fn scalars_are_read_as_their_type_only() {
        let raw = |text| Raw::parse(text).unwrap();
        assert_eq!(raw("-7").integer(), Some(-7));
        assert_eq!(raw("7.0").integer(), None);
        assert_eq!(raw("\"7\"").integer(), None);
        assert_eq!(raw("99999999999999999999").integer(), None);
        assert_eq!(raw("true").boolean(), Some(true));
        assert_eq!(raw("\"true\"").boolean(), None);
        assert!(raw("null").is_null() && !raw("\"null\"").is_null());
        assert_eq!(raw("1").members().count() + raw("1").elements().count(), 0);
        assert_eq!(raw("[]").elements().count(), 0);
    }

    /// Invariant 8: arguments may contain handles.
    #[test]
    fn debug_shows_the_range_only() {
        let raw = Raw::parse(r#""sp_secret""#).unwrap();
        assert_eq!(format!("{raw:?}"), "Raw(0..11)");
    }
}
