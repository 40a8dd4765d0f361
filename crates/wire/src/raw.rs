//! A value as it was written.

use std::{borrow::Cow, fmt, ops::Range};

use crate::{
    json::{self, Members, Scanner, Slot, SyntaxError},
    span::{self, Ambiguous},
};

/// A JSON value inside a text: the very bytes, and where they stand.
///
/// A `Raw` comes from a text that was checked, so looking into it does not fail. It can be copied
/// freely and nothing is decoded before somebody asks. Values can be secrets: `Debug` shows the
/// place, not the bytes.
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
    /// The one value of `text`.
    ///
    /// # Errors
    /// If `text` is not one JSON value.
    pub fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        let mut scanner = Scanner::new(text);
        let value = scanner.value(0)?;
        scanner.end()?;
        Ok(Self::cut(text, value))
    }

    /// The object that `text` is, and its member `name`, read at once. Of members with one name the last counts.
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
        let mut members = Members::of(start.clone(), 0)?;
        let mut found = None;
        while let Some(Slot { key, value }) = members.next().ok()? {
            if json::is_text(&text[key], name) {
                found = Some(Self::cut(text, value));
            }
        }
        let mut behind = members.behind();
        let whole = Self::cut(text, start.at()..behind.at());
        behind.end().ok()?;
        Some((whole, found))
    }

    /// The value at `range` of `text`. The caller has found it there.
    pub(crate) fn cut(text: &'a str, range: Range<usize>) -> Self {
        Self { at: range.start, json: &text[range] }
    }

    /// A value inside this one, by its place relative to it.
    fn inner(self, range: Range<usize>) -> Self {
        Self { at: self.at + range.start, json: &self.json[range] }
    }

    /// The bytes of the value, without white space around it.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.json
    }

    /// Where the value stands in the text it was read from.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.at..self.at + self.json.len()
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.json.starts_with('{')
    }

    /// Whether it is an array.
    #[must_use]
    pub fn is_array(self) -> bool {
        self.json.starts_with('[')
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.json == "null"
    }

    /// Whether it is a number.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
    }

    /// What a string says; `None` if it is no string or not text, see [`json::unquote`].
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        json::unquote(self.json)
    }

    /// The number, if it is a whole one that is written without fraction or exponent and fits.
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        self.json.parse().ok().filter(|_| self.is_number())
    }

    /// `true` or `false`, if it is one of them.
    #[must_use]
    pub fn boolean(self) -> Option<bool> {
        self.json.parse().ok()
    }

    /// The value at `path`, which leads through objects. Of members with one name the last counts.
    #[must_use]
    pub fn find(self, path: &[&str]) -> Option<Self> {
        span::find(self.json, path).map(|range| self.inner(range))
    }

    /// The value at `path`, if no reader can find another one there.
    ///
    /// # Errors
    /// If a member on the way stands there twice or in two spellings, see [`span::find_unique`].
    pub fn find_unique(self, path: &[&str]) -> Result<Option<Self>, Ambiguous> {
        match span::find_unique(self.json, path) {
            Ok(found) => Ok(found.map(|range| self.inner(range))),
            Err(ambiguous) => Err(ambiguous.moved(self.at)),
        }
    }

    /// The members of an object in their order, each with its name as it is written, quotes
    /// included. Of anything else: none.
    pub fn members(self) -> impl Iterator<Item = (Self, Self)> {
        let mut walk = Members::of(Scanner::new(self.json), 0);
        std::iter::from_fn(move || {
            let slot = walk.as_mut()?.next().ok().flatten()?;
            Some((self.inner(slot.key), self.inner(slot.value)))
        })
    }

    /// The elements of an array in their order. Of anything else: none.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        let mut at = if self.is_array() { 1 } else { self.json.len() };
        std::iter::from_fn(move || {
            let mut scanner = Scanner::starting_at(self.json, at);
            // The end of the array is no value, so there the walk ends.
            let range = scanner.value(1).ok()?;
            // Behind a value stands a comma, or the end: to be passed in either case.
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
    fn places_are_those_of_the_whole_text() {
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
    fn scalars_are_read_only_as_what_they_are() {
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

    /// Invariant 8: arguments can hold handles.
    #[test]
    fn debug_shows_the_place_only() {
        let raw = Raw::parse(r#""sp_secret""#).unwrap();
        assert_eq!(format!("{raw:?}"), "Raw(0..11)");
    }
}
