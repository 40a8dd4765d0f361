//! Where a member of a JSON text stands, without decoding anything.
//!
//! A path is a list of names that leads through objects. Names are compared by what they say, so
//! `"n\u0061me"` is `name`. The text is expected to be one JSON value; of a text that is not,
//! nothing is found, or what stands in its well-formed beginning.

use std::ops::Range;

use crate::json::{self, Members, Scanner, Slot};

/// Where the value at `path` stands. Of members with one name the last counts, as for most readers.
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
    let mut place = last_named(json, 0, first)?;
    for name in rest {
        place = last_named(json, place.start, name)?;
    }
    Some(place)
}

/// The value of the last member `name` of the object that begins at `at`.
fn last_named(json: &str, at: usize, name: &str) -> Option<Range<usize>> {
    let mut members = Members::of(Scanner::starting_at(json, at), 0)?;
    let mut last = None;
    while let Some(slot) = members.next().ok()? {
        if is_named(json, &slot, name) {
            last = Some(slot.value);
        }
    }
    last
}

/// Where the value at `path` stands, if no reader can find another one there.
///
/// To be used where something is decided by the value that the server will decide again: two
/// members of one name are read differently by different readers, and so are `name` and `Name` by
/// one that does not mind upper and lower case.
///
/// ```
/// use stayput_wire::span;
///
/// assert!(span::find_unique(r#"{"name":"read"}"#, &["name"]).is_ok());
/// assert!(span::find_unique(r#"{"name":"read","Name":"write"}"#, &["name"]).is_err());
/// ```
///
/// # Errors
/// If a member on the way stands there twice, or in two spellings.
pub fn find_unique(json: &str, path: &[&str]) -> Result<Option<Range<usize>>, Ambiguous> {
    let mut at = 0;
    for name in path {
        let Some(slots) = slots(json, at) else { return Ok(None) };
        let mut found = None;
        for slot in slots {
            let said = json::unquote(&json[slot.key.clone()]);
            let Some(said) = said.filter(|said| json::is_same_in_any_case(said, name)) else {
                continue;
            };
            if found.is_some() || said != *name {
                return Err(Ambiguous { name: (*name).to_owned(), at: slot.key.start });
            }
            found = Some(slot);
        }
        let Some(slot) = found else { return Ok(None) };
        at = slot.value.start;
    }
    Ok(Scanner::starting_at(json, at).value(0).ok())
}

/// Whether the value at `path` is there and no reader can find another one in its place.
#[must_use]
pub fn is_unique(json: &str, path: &[&str]) -> bool {
    matches!(find_unique(json, path), Ok(Some(_)))
}

/// Where the member at `path` stands, as a whole. Of members with one name the last counts.
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

/// Where the parts of one member stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, with the quotes.
    pub key: Range<usize>,
    /// Its value.
    pub value: Range<usize>,
    /// What to take out so that a well-formed object without the member is left.
    pub whole: Range<usize>,
}

/// A member that different readers find in different places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{name}' stands there in more than one place or spelling, again at byte {at}; send it once, spelled so"
)]
pub struct Ambiguous {
    name: String,
    at: usize,
}

impl Ambiguous {
    /// The name of the member.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it stands a second time, or is spelled in another way.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The same in a text that has `by` more bytes in front.
    pub(crate) fn moved(self, by: usize) -> Self {
        Self { at: self.at + by, ..self }
    }
}

/// All members of the object that begins at `at`; `None` if there is none, or it is broken.
fn slots(json: &str, at: usize) -> Option<Vec<Slot>> {
    let mut members = Members::of(Scanner::starting_at(json, at), 0)?;
    let mut slots = Vec::new();
    while let Some(slot) = members.next().ok()? {
        slots.push(slot);
    }
    Some(slots)
}

fn is_named(json: &str, slot: &Slot, name: &str) -> bool {
    json::is_text(&json[slot.key.clone()], name)
}

/// What to take out of an object so that the neighbours `run` of its members `slots` are gone: with
/// the comma behind them, or else the one in front, or else none.
pub(crate) fn removal(slots: &[Slot], run: Range<usize>) -> Range<usize> {
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
    fn the_last_of_equal_names_counts() {
        let json = r#"{"a":{"x":1},"\u0061":{"x":2,"x":3}}"#;
        assert_eq!(&json[find(json, &["a", "x"]).unwrap()], "3");
        assert!(!is_unique(json, &["a"]));
        assert!(!is_unique(json, &["b"]));
        let error = find_unique(json, &["a", "x"]).unwrap_err();
        assert_eq!((error.name(), error.at()), ("a", 13));
    }

    #[test]
    fn the_empty_path_is_the_whole_value() {
        assert_eq!(find(" [1] ", &[]), Some(1..4));
        assert_eq!(member("{}", &[]), None);
    }

    #[test]
    fn paths_lead_through_objects_only() {
        let json = r#"{"a":[{"b":1}],"c":"{\"d\":1}"}"#;
        assert_eq!(find(json, &["a", "b"]), None);
        assert_eq!(find(json, &["c", "d"]), None);
        assert_eq!(find("{\"a\":1", &["a"]), None);
        assert_eq!(find_unique(json, &["a", "b"]), Ok(None));
    }

    #[test]
    fn a_member_goes_with_one_comma() {
        let gone = |json: &str, name: &str| {
            let mut left = json.to_owned();
            left.replace_range(member(json, &[name]).unwrap().whole, "");
            left
        };
        let json = r#"{ "a":1 , "b":2 , "c":3 }"#;
        assert_eq!(gone(json, "a"), r#"{ "b":2 , "c":3 }"#);
        assert_eq!(gone(json, "b"), r#"{ "a":1 , "c":3 }"#);
        assert_eq!(gone(json, "c"), r#"{ "a":1 , "b":2 }"#);
        assert_eq!(gone(r#"{ "a":1 }"#, "a"), "{  }");
    }

    #[test]
    fn half_of_a_surrogate_pair_is_no_name() {
        let json = r#"{"\ud800":1,"a":2}"#;
        assert_eq!(&json[find(json, &["a"]).unwrap()], "2");
        assert!(is_unique(json, &["a"]));
    }
}
