//! Edits of a JSON text that keep all other bytes.

mod edit_tree;
mod plan;

use std::{borrow::Cow, collections::BTreeMap, fmt};

use crate::{
    Raw,
    json::{self, SyntaxError},
};
use edit_tree::{Action, EditTree};
use plan::Plan;

/// Edits of one JSON text, applied in one pass.
///
/// Messages are not decoded and encoded again: that would change numbers (`1.10`, `1e400`), the order of members,
/// white space and escapes. Only the bytes that must change are replaced; all others are copied.
///
/// A path is a list of names that follows objects, starting at the whole text or at a [`Raw`] value in it. All paths
/// refer to the original text. Edits that contradict each other are refused with [`EditError::Conflict`]; either all
/// are applied or none.
///
/// ```
/// use stayput_wire::Edits;
///
/// let json = r#"{"id": 3, "params": {"name": "add", "price": 1.10}}"#;
/// let mut edits = Edits::new(json);
/// edits.set(&["id"], "70").set_text(&["params", "_meta", "note"], "hi").remove(&["params", "name"]);
/// assert_eq!(
///     edits.apply()?,
///     r#"{"id": 70, "params": {"price": 1.10,"_meta":{"note":"hi"}}}"#
/// );
/// # Ok::<(), stayput_wire::EditError>(())
/// ```
#[derive(Clone)]
pub struct Edits<'a> {
    text: &'a str,
    // Edits by the range of the value that their paths start at.
    trees: BTreeMap<(usize, usize), EditTree>,
    // First error. Builder methods do not fail, so that they can be chained; `apply` returns the error.
    error: Option<EditError>,
}

impl<'a> Edits<'a> {
    /// Creates an empty list of edits of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, trees: BTreeMap::new(), error: None }
    }

    /// Sets the member at `path` to the JSON value `json`.
    ///
    /// Missing members are appended to their object, including missing objects of the path; `null` counts as missing.
    /// One of several duplicates is left.
    pub fn set(&mut self, path: &[&str], json: &str) -> &mut Self {
        self.add(self.whole(), path, Action::Set(json.to_owned()))
    }

    /// Sets the member at `path` to the string `text`. Otherwise like [`Edits::set`].
    pub fn set_text(&mut self, path: &[&str], text: &str) -> &mut Self {
        self.set(path, &json::quote(text))
    }

    /// Removes the member at `path`, with its comma. Duplicates are removed as well: otherwise an earlier one would
    /// become effective. A missing member is ignored.
    pub fn remove(&mut self, path: &[&str]) -> &mut Self {
        self.add(self.whole(), path, Action::Remove)
    }

    /// Replaces `value`, found in this text, by `json`.
    pub fn replace(&mut self, value: Raw<'_>, json: &str) -> &mut Self {
        self.set_in(value, &[], json)
    }

    /// Does the same as [`Edits::set`] with a path that starts at `value`, found in this text.
    ///
    /// This saves the search: to edit each tool of a long list, start at the tool.
    pub fn set_in(&mut self, value: Raw<'_>, path: &[&str], json: &str) -> &mut Self {
        let base = self.base(value);
        self.add(base, path, Action::Set(json.to_owned()))
    }

    /// Does the same as [`Edits::remove`] with a path that starts at `value`, found in this text.
    pub fn remove_in(&mut self, value: Raw<'_>, path: &[&str]) -> &mut Self {
        let base = self.base(value);
        self.add(base, path, Action::Remove)
    }

    /// Applies all edits. Returns the original text if nothing changes.
    ///
    /// # Errors
    /// Returns an error if an edit is not possible, see [`EditError`]. Then none is applied.
    pub fn apply(&self) -> Result<Cow<'a, str>, EditError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let mut plan = Plan::new(self.text);
        for ((start, _), tree) in &self.trees {
            plan.add(*start, tree)?;
        }
        plan.apply()
    }

    fn whole(&self) -> (usize, usize) {
        // White space before the value is skipped by the plan.
        (0, self.text.len())
    }

    fn base(&mut self, value: Raw<'_>) -> (usize, usize) {
        let range = value.range();
        if self.text.get(range.clone()) != Some(value.as_str()) {
            self.error.get_or_insert(EditError::Foreign);
        }
        (range.start, range.end)
    }

    fn add(&mut self, base: (usize, usize), path: &[&str], action: Action) -> &mut Self {
        let tree = self.trees.entry(base).or_default();
        if let Err(error) = tree.add(path, action) {
            self.error.get_or_insert(error);
        }
        self
    }
}

impl fmt::Debug for Edits<'_> {
    /// Omits text and values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edits(in {} values of {} bytes)", self.trees.len(), self.text.len())
    }
}

/// Reason why edits cannot be applied. Paths are shown with dots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The text is not valid JSON.
    #[error("the text to edit is not JSON")]
    Text(#[source] SyntaxError),
    /// The new value is not valid JSON.
    #[error("what '{path}' is to be set to is not JSON")]
    Value {
        /// Path to be set.
        path: String,
        /// Syntax error of the value.
        source: SyntaxError,
    },
    /// A part of the path exists, but is no object.
    #[error("'{path}' cannot get a member, it is not an object")]
    NotAnObject {
        /// Path of that part.
        path: String,
    },
    /// A part of the path is duplicated, so readers may disagree.
    #[error(
        "'{path}' stands there more than once, so what is in it cannot be edited; send it once"
    )]
    Ambiguous {
        /// Path of that part.
        path: String,
    },
    /// Two edits change the same bytes.
    #[error("two edits want to change the same place, '{path}'; make one of them")]
    Conflict {
        /// Path of one of them, or its offset as `byte N`.
        path: String,
    },
    /// The path is empty, or longer than [`json::MAX_DEPTH`].
    #[error("a path of {length} names cannot be edited in this way")]
    Path {
        /// Number of names.
        length: usize,
    },
    /// The value is not part of this text.
    #[error("the value to edit does not stand in this text")]
    Foreign,
}

#[cfg(test)]
mod tests;
