//! Positions of members in a JSON text, without decoding it.
//!
//! A path is a list of names that follows objects. Names compare by their decoded value, so `"n\u0061me"` is `name`.
//! The text should be one JSON value; in an invalid text only its valid start is searched.

use std::ops::Range;

use crate::json::{self, MemberRange, Members, Scanner};

/// Returns the range of the value at `path`. The last of duplicate members counts, as for most readers.
///
/// ```
/// use stayput_wire::span;
///
/// let json = r#"{"params": {"n\u0061me": "add"}}"#;
/// let place = span::find(json, &["params", "name"]).unwrap();
/// assert_eq!(&json[place], "\"add\"");
/// assert_eq!(span::find(json, &["params", "_meta"]), None);
/// ```
#[must_use]
pub fn find(json: &str, path: &[&str]) -> Option<Range<usize>> {
    let Some((first, rest)) = path.split_first() else { return Scanner::new(json).value(0).ok() };
    let mut place = find_last(json, 0, first)?;
    for name in rest {
        place = find_last(json, place.start, name)?;
    }
    Some(place)
}

/// Returns the value of the last member `name` of the object at `at`.
fn find_last(json: &str, at: usize, name: &str) -> Option<Range<usize>> {
    let mut members = Members::new(Scanner::starting_at(json, at), 0)?;
    let mut last = None;
    while let Some(slot) = members.next().ok()? {
        if is_named(json, &slot, name) {
            last = Some(slot.value);
        }
    }
    last
}

/// Returns the range of the value at `path` if every reader finds the same one.
///
/// For decisions that the server makes again: readers disagree about duplicate members, and some take `name` and
/// `Name` for the same.
///
/// ```
/// use stayput_wire::span;
///
/// assert!(span::find_unique(r#"{"name":"read"}"#, &["name"]).is_ok());
/// assert!(span::find_unique(r#"{"name":"read","Name":"write"}"#, &["name"]).is_err());
/// ```
///
/// # Errors
/// Returns an error if a member of the path is duplicated, or has two spellings.
pub fn find_unique(json: &str, path: &[&str]) -> Result<Option<Range<usize>>, Ambiguous> {
    let mut at = 0;
    for name in path {
        let Some(slots) = slots(json, at) else { return Ok(None) };
        let mut found = None;
        for slot in slots {
            let key = json::unquote(&json[slot.key.clone()]);
            let Some(key) = key.filter(|key| json::eq_ignore_case(key, name)) else {
                continue;
            };
            if found.is_some() || key != *name {
                return Err(Ambiguous { name: (*name).to_owned(), at: slot.key.start });
            }
            found = Some(slot);
        }
        let Some(slot) = found else { return Ok(None) };
        at = slot.value.start;
    }
    Ok(Scanner::starting_at(json, at).value(0).ok())
}

/// Returns the ranges of the member at `path`. The last of duplicate members counts.
///
/// ```
/// use stayput_wire::span;
///
/// let json = r#"{"a": 1, "b": 2, "c": 3}"#;
/// let b = span::member(json, &["b"]).unwrap();
/// assert_eq!(&json[b.key], "\"b\"");
/// assert_eq!(&json[b.value], "2");
/// assert_eq!(&json[b.whole], "\"b\": 2, ");
/// ```
#[must_use]
pub fn member(json: &str, path: &[&str]) -> Option<Member> {
    let (name, parents) = path.split_last()?;
    let parent = find(json, parents)?;
    let slots = slots(json, parent.start)?;
    let index = slots.iter().rposition(|slot| is_named(json, slot, name))?;
    let whole = removal(&slots, index..index + 1);
    let slot = slots.into_iter().nth(index)?;
    Some(Member { key: slot.key, value: slot.value, whole })
}

/// Ranges of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name with quotes.
    pub key: Range<usize>,
    /// Value.
    pub value: Range<usize>,
    /// Range to remove, so that the rest is a valid object.
    pub whole: Range<usize>,
}

/// Member that readers interpret differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{name}' stands there in more than one place or spelling, again at byte {at}; send it once, spelled so"
)]
pub struct Ambiguous {
    name: String,
    at: usize,
}

impl Ambiguous {
    /// Returns the name of the member.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the offset of the second occurrence or other spelling.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Shifts the offset by `by` bytes.
    pub(crate) fn shift(self, by: usize) -> Self {
        Self { at: self.at + by, ..self }
    }
}

/// Returns all members of the object at `at`; `None` if it is no object or invalid.
fn slots(json: &str, at: usize) -> Option<Vec<MemberRange>> {
    let mut members = Members::new(Scanner::starting_at(json, at), 0)?;
    let mut slots = Vec::new();
    while let Some(slot) = members.next().ok()? {
        slots.push(slot);
    }
    Some(slots)
}

fn is_named(json: &str, slot: &MemberRange, name: &str) -> bool {
    json::is_text(&json[slot.key.clone()], name)
}

/// Returns the range to remove for the adjacent members `run`: with the following comma, or else the preceding one,
/// or else none.
pub(crate) fn removal(slots: &[MemberRange], run: Range<usize>) -> Range<usize> {
    let start = slots[run.start].key.start;
    let end = slots[run.end - 1].value.end;
    match (slots.get(run.end), run.start.checked_sub(1)) {
        (Some(next), _) => start..next.key.start,
        (None, Some(previous)) => slots[previous].value.end..end,
        (None, None) => start..end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_of_duplicate_members_counts() {
        let json = r#"{"a":{"x":1},"\u0061":{"x":2,"x":3}}"#;
        assert_eq!(&json[find(json, &["a", "x"]).unwrap()], "3");
        assert!(find_unique(json, &["a"]).is_err());
        assert_eq!(find_unique(json, &["b"]), Ok(None));
        let error = find_unique(json, &["a", "x"]).unwrap_err();
        assert_eq!((error.name(), error.at()), ("a", 13));
    }

    #[test]
    fn empty_path_is_the_whole_value() {
        assert_eq!(find(" [1] ", &[]), Some(1..4));
        assert_eq!(member("{}", &[]), None);
    }

    #[test]
    fn path_follows_objects_only() {
        let json = r#"{"a":[{"b":1}],"c":"{\"d\":1}"}"#;
        assert_eq!(find(json, &["a", "b"]), None);
        assert_eq!(find(json, &["c", "d"]), None);
        assert_eq!(find("{\"a\":1", &["a"]), None);
        assert_eq!(find_unique(json, &["a", "b"]), Ok(None));
    }

    #[test]
    fn member_is_removed_with_one_comma() {
        let without = |json: &str, name: &str| {
            let mut left = json.to_owned();
            left.replace_range(member(json, &[name]).unwrap().whole, "");
            left
        };
        let json = r#"{ "a":1 , "b":2 , "c":3 }"#;
        assert_eq!(without(json, "a"), r#"{ "b":2 , "c":3 }"#);
        assert_eq!(without(json, "b"), r#"{ "a":1 , "c":3 }"#);
        assert_eq!(without(json, "c"), r#"{ "a":1 , "b":2 }"#);
        assert_eq!(without(r#"{ "a":1 }"#, "a"), "{  }");
    }

    #[test]
    fn lone_surrogate_matches_no_name() {
        let json = r#"{"\ud800":1,"a":2}"#;
        assert_eq!(&json[find(json, &["a"]).unwrap()], "2");
        assert!(find_unique(json, &["a"]).is_ok_and(|found| found.is_some()));
    }
}
