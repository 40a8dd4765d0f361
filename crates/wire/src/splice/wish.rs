//! What is wanted, as a tree of names.

use super::EditError;
use crate::json::{self, DEPTH_LIMIT};

/// What shall happen to a value, and to what is in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Wish {
    pub(super) action: Option<Action>,
    pub(super) members: Vec<(String, Self)>,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Set(String),
    Remove,
    Rename(String),
}

impl Wish {
    /// Adds the wish for what stands at `path`.
    pub(super) fn add(&mut self, path: &[&str], action: Action) -> Result<(), EditError> {
        let length = path.len();
        let makes = matches!(action, Action::Set(_));
        if (path.is_empty() && !makes) || length >= usize::try_from(DEPTH_LIMIT).unwrap_or(0) {
            return Err(EditError::Path { length });
        }
        if let Action::Set(value) = &action {
            json::check(value.as_bytes())
                .map_err(|source| EditError::Value { path: path.join("."), source })?;
        }
        let mut wish = self;
        for name in path {
            if wish.action.is_some() {
                return Err(EditError::Conflict { path: path.join(".") });
            }
            wish = wish.member(name, makes);
        }
        if wish.action.is_some() || !wish.members.is_empty() {
            return Err(EditError::Conflict { path: path.join(".") });
        }
        wish.action = Some(action);
        Ok(())
    }

    /// The wish for the member `name`. Members come in the order in which they are made.
    fn member(&mut self, name: &str, makes: bool) -> &mut Self {
        let last = self.members.len();
        let index = match self.members.iter().position(|(known, _)| known == name) {
            Some(index) if makes && !self.members[index].1.makes() => {
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

    /// Whether something has to be made if nothing is there.
    pub(super) fn makes(&self) -> bool {
        matches!(self.action, Some(Action::Set(_)))
            || self.members.iter().any(|(_, wish)| wish.makes())
    }

    /// The value where nothing is there yet.
    pub(super) fn value(&self) -> String {
        match &self.action {
            Some(Action::Set(value)) => value.clone(),
            _ => format!("{{{}}}", listed(self.members.iter().filter(|(_, wish)| wish.makes()))),
        }
    }
}

/// New members, without the braces.
pub(super) fn listed<'w>(members: impl Iterator<Item = &'w (String, Wish)>) -> String {
    let written: Vec<_> =
        members.map(|(name, wish)| format!("{}:{}", json::quote(name), wish.value())).collect();
    written.join(",")
}
