//! Edits of a JSON text that leave every other byte as it is.

mod plan;
mod wish;

use std::{borrow::Cow, collections::BTreeMap, fmt};

use crate::{
    Raw,
    json::{self, SyntaxError},
};
use plan::Plan;
use wish::{Action, Wish};

/// Edits of one JSON text, all made at once in one pass over its bytes.
///
/// A message that passes through is not decoded and written again: numbers would change (`1.10`,
/// `1e400`), and so would the order of members, white space and escapes. Instead the few bytes that
/// have to change are replaced, and all others are copied.
///
/// A path is a list of names that leads through objects, from the whole text or from a [`Raw`] value
/// in it; all paths speak of the text as it was before. Edits that cannot all be made are refused
/// with [`EditError::Conflict`], they are never made by halves.
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
    // By the place of the value that the paths begin at.
    wishes: BTreeMap<(usize, usize), Wish>,
    // The builder does not fail, so that edits can be written as a chain; `apply` does.
    refused: Option<EditError>,
}

impl<'a> Edits<'a> {
    /// No edits of `text` so far.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, wishes: BTreeMap::new(), refused: None }
    }

    /// Gives the member at `path` the value `json`, which is JSON.
    ///
    /// A member that is not there is added as the last of its object, and so are the objects on the
    /// way to it; `null` on the way counts as not there. If the name stands there more than once,
    /// one member is left.
    pub fn set(&mut self, path: &[&str], json: &str) -> &mut Self {
        self.add(self.whole(), path, Action::Set(json.to_owned()))
    }

    /// Gives the member at `path` the string `text` as its value. Otherwise like [`Edits::set`].
    pub fn set_text(&mut self, path: &[&str], text: &str) -> &mut Self {
        self.set(path, &json::quote(text))
    }

    /// Takes the member at `path` out, with its comma. If it stands there more than once, each goes:
    /// else the earlier one would come to light. If it is not there, nothing happens.
    pub fn remove(&mut self, path: &[&str]) -> &mut Self {
        self.add(self.whole(), path, Action::Remove)
    }

    /// Gives the member at `path` another name. If it is not there, nothing happens.
    pub fn rename(&mut self, path: &[&str], name: &str) -> &mut Self {
        self.add(self.whole(), path, Action::Rename(name.to_owned()))
    }

    /// Replaces `value`, found earlier in this text, by `json`.
    pub fn replace(&mut self, value: Raw<'_>, json: &str) -> &mut Self {
        self.set_in(value, &[], json)
    }

    /// [`Edits::set`] with a path that begins at `value`, found earlier in this text.
    ///
    /// That saves the way there: to edit each tool of a long list, begin at the tool.
    pub fn set_in(&mut self, value: Raw<'_>, path: &[&str], json: &str) -> &mut Self {
        let base = self.base(value);
        self.add(base, path, Action::Set(json.to_owned()))
    }

    /// [`Edits::remove`] with a path that begins at `value`, found earlier in this text.
    pub fn remove_in(&mut self, value: Raw<'_>, path: &[&str]) -> &mut Self {
        let base = self.base(value);
        self.add(base, path, Action::Remove)
    }

    /// [`Edits::rename`] with a path that begins at `value`, found earlier in this text.
    pub fn rename_in(&mut self, value: Raw<'_>, path: &[&str], name: &str) -> &mut Self {
        let base = self.base(value);
        self.add(base, path, Action::Rename(name.to_owned()))
    }

    /// The text with all edits made; the text itself if there was nothing to do.
    ///
    /// # Errors
    /// If an edit cannot be made, see [`EditError`]. Then none is.
    pub fn apply(&self) -> Result<Cow<'a, str>, EditError> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        let mut plan = Plan::new(self.text);
        for ((start, _), wish) in &self.wishes {
            plan.add(*start, wish)?;
        }
        plan.carry_out()
    }

    fn whole(&self) -> (usize, usize) {
        // The value may have white space around it; where it begins, the plan finds out.
        (0, self.text.len())
    }

    fn base(&mut self, value: Raw<'_>) -> (usize, usize) {
        let range = value.range();
        if self.text.get(range.clone()) != Some(value.as_str()) {
            self.refused.get_or_insert(EditError::Foreign);
        }
        (range.start, range.end)
    }

    fn add(&mut self, base: (usize, usize), path: &[&str], action: Action) -> &mut Self {
        let wish = self.wishes.entry(base).or_default();
        if let Err(error) = wish.add(path, action) {
            self.refused.get_or_insert(error);
        }
        self
    }
}

impl fmt::Debug for Edits<'_> {
    /// Shows neither the text nor the values: either can hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edits(in {} values of {} bytes)", self.wishes.len(), self.text.len())
    }
}

/// Why edits cannot be made. A path is shown with dots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The text is not JSON where it was looked at.
    #[error("the text to edit is not JSON")]
    Text(#[source] SyntaxError),
    /// What is to be put in is not JSON.
    #[error("what '{path}' is to be set to is not JSON")]
    Value {
        /// The path that was to be set.
        path: String,
        /// What is wrong with the value.
        source: SyntaxError,
    },
    /// Something on the way is there and is not an object, so it has no members.
    #[error("'{path}' cannot get a member, it is not an object")]
    NotAnObject {
        /// The path to what is not an object.
        path: String,
    },
    /// Something on the way stands there more than once; readers would not agree which is meant.
    #[error(
        "'{path}' stands there more than once, so what is in it cannot be edited; send it once"
    )]
    Ambiguous {
        /// The path to what stands there more than once.
        path: String,
    },
    /// The new name of a member is already the name of another.
    #[error("'{path}' cannot get the name '{name}', another member has it")]
    Taken {
        /// The path to the member that was to be renamed.
        path: String,
        /// The name that is taken.
        name: String,
    },
    /// Two of the edits speak of the same bytes.
    #[error("two edits want to change the same place, '{path}'; make one of them")]
    Conflict {
        /// The path of one of them, or the place of the byte as `byte N`.
        path: String,
    },
    /// A path is empty where a member is needed, or longer than [`json::DEPTH_LIMIT`].
    #[error("a path of {length} names cannot be edited in this way")]
    Path {
        /// How many names it has.
        length: usize,
    },
    /// A value that was to be edited stands in another text.
    #[error("the value to edit does not stand in this text")]
    Foreign,
}

#[cfg(test)]
mod tests;
