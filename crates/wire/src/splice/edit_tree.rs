//! Edits as a tree of names.

use super::EditError;
use crate::json::{self, MAX_DEPTH};

/// Edits of a value and of its members.
#[derive(Debug, Clone, Default)]
pub(super) struct EditTree {
    pub(super) action: Option<Action>,
    pub(super) members: Vec<(String, Self)>,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Set(String),
    Remove,
}

impl EditTree {
    /// Adds an edit at `path`.
    pub(super) fn add(&mut self, path: &[&str], action: Action) -> Result<(), EditError> {
        let length = path.len();
        let creates = matches!(action, Action::Set(_));
        if (path.is_empty() && !creates) || length >= usize::try_from(MAX_DEPTH).unwrap_or(0) {
            return Err(EditError::Path { length });
        }
        if let Action::Set(value) = &action {
            json::check(value.as_bytes())
                .map_err(|source| EditError::Value { path: path.join("."), source })?;
        }
        let mut tree = self;
        for name in path {
            if tree.action.is_some() {
                return Err(EditError::Conflict { path: path.join(".") });
            }
            tree = tree.member(name, creates);
        }
        if tree.action.is_some() || !tree.members.is_empty() {
            return Err(EditError::Conflict { path: path.join(".") });
        }
        tree.action = Some(action);
        Ok(())
    }

    /// Returns the edits of the member `name`. Members are in the order in which they are created.
    fn member(&mut self, name: &str, creates: bool) -> &mut Self {
        let last = self.members.len();
        let index = match self.members.iter().position(|(known, _)| known == name) {
            Some(index) if creates && !self.members[index].1.creates() => {
                let member = self.members.remove(index);
                self.members.push(member);
                last - 1
            }
            Some(index) => index,
            None => {
                self.members.push((name.to_owned(), Self::default()));
                last
            }
        };
        &mut self.members[index].1
    }

    /// Returns whether the edits create a missing value.
    pub(super) fn creates(&self) -> bool {
        matches!(self.action, Some(Action::Set(_)))
            || self.members.iter().any(|(_, tree)| tree.creates())
    }

    /// Returns the value to create.
    pub(super) fn value(&self) -> String {
        match &self.action {
            Some(Action::Set(value)) => value.clone(),
            _ => format!(
                "{{{}}}",
                write_members(self.members.iter().filter(|(_, tree)| tree.creates()))
            ),
        }
    }
}

/// Writes new members, without braces.
pub(super) fn write_members<'w>(members: impl Iterator<Item = &'w (String, EditTree)>) -> String {
    let members: Vec<_> =
        members.map(|(name, tree)| format!("{}:{}", json::quote(name), tree.value())).collect();
    members.join(",")
}
