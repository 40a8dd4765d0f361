//! Replacements of byte ranges.

use std::{borrow::Cow, ops::Range};

use super::{
    EditError,
    edit_tree::{Action, EditTree, write_members},
};
use crate::{
    json::{self, MemberRange, Members, Scanner},
    span,
};

/// Replacements of byte ranges of one text.
pub(super) struct Plan<'a> {
    text: &'a str,
    splices: Vec<(Range<usize>, String)>,
    // Objects that gain or lose members. Commas can be placed only once per object.
    reshaped: Vec<usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, splices: Vec::new(), reshaped: Vec::new() }
    }

    /// Plans the edits of the value at `start`, or after white space there.
    pub(super) fn add(&mut self, start: usize, tree: &EditTree) -> Result<(), EditError> {
        let mut scanner = Scanner::starting_at(self.text, start);
        let at = scanner.at();
        match &tree.action {
            Some(Action::Set(value)) => {
                let range = scanner.value(0).map_err(EditError::Text)?;
                self.splices.push((range, value.clone()));
                Ok(())
            }
            _ => self.value(at, tree, &mut Vec::new()),
        }
    }

    /// Applies all replacements in one pass.
    pub(super) fn apply(mut self) -> Result<Cow<'a, str>, EditError> {
        if self.splices.is_empty() {
            return Ok(Cow::Borrowed(self.text));
        }
        let conflict = |at: usize| EditError::Conflict { path: format!("byte {at}") };
        self.reshaped.sort_unstable();
        if let Some(pair) = self.reshaped.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(conflict(pair[0]));
        }
        self.splices.sort_by_key(|(range, _)| (range.start, range.end));
        let more: usize = self.splices.iter().map(|(_, new)| new.len()).sum();
        let mut edited = String::with_capacity(self.text.len() + more);
        let mut done = 0;
        for (range, new) in &self.splices {
            if range.start < done {
                return Err(conflict(range.start));
            }
            edited.push_str(&self.text[done..range.start]);
            edited.push_str(new);
            done = range.end;
        }
        edited.push_str(&self.text[done..]);
        Ok(Cow::Owned(edited))
    }

    /// Plans the edits inside the value at `at`.
    fn value(
        &mut self,
        at: usize,
        tree: &EditTree,
        path: &mut Vec<String>,
    ) -> Result<(), EditError> {
        let mut scanner = Scanner::starting_at(self.text, at);
        match scanner.peek() {
            Some(b'{') => self.object(at, tree, path),
            _ if !tree.creates() => Ok(()),
            // Python and Go clients write `null` for missing members.
            Some(b'n') => {
                let range = scanner.value(0).map_err(EditError::Text)?;
                self.splices.push((range, tree.value()));
                Ok(())
            }
            _ => Err(EditError::NotAnObject { path: path.join(".") }),
        }
    }

    fn object(
        &mut self,
        at: usize,
        tree: &EditTree,
        path: &mut Vec<String>,
    ) -> Result<(), EditError> {
        let slots = self.slots(at)?;
        let mut removed = vec![false; slots.len()];
        let mut new = Vec::new();
        for member in &tree.members {
            let (name, inner) = member;
            let found: Vec<usize> =
                (0..slots.len()).filter(|index| self.is_named(&slots[*index], name)).collect();
            let Some((last, earlier)) = found.split_last() else {
                if inner.creates() {
                    new.push(member);
                }
                continue;
            };
            path.push(name.clone());
            match &inner.action {
                Some(Action::Set(value)) => {
                    self.splices.push((slots[*last].value.clone(), value.clone()));
                    earlier.iter().for_each(|index| removed[*index] = true);
                }
                Some(Action::Remove) => found.iter().for_each(|index| removed[*index] = true),
                _ if !earlier.is_empty() => {
                    return Err(EditError::Ambiguous { path: path.join(".") });
                }
                None => self.value(slots[*last].value.start, inner, path)?,
            }
            path.pop();
        }
        self.reshape(at, &slots, &removed, &new);
        Ok(())
    }

    /// Removes the members marked in `removed`, and inserts the `new` ones after the last that stays.
    fn reshape(
        &mut self,
        at: usize,
        slots: &[MemberRange],
        removed: &[bool],
        new: &[&(String, EditTree)],
    ) {
        if new.is_empty() && !removed.contains(&true) {
            return;
        }
        self.reshaped.push(at);
        let mut run = 0..0;
        for index in 0..slots.len() {
            if removed[index] {
                run = if run.end == index { run.start..index + 1 } else { index..index + 1 };
            }
            let over = index + 1 == slots.len() || !removed[index + 1];
            if removed[index] && over {
                self.splices.push((span::removal(slots, run.clone()), String::new()));
            }
        }
        if new.is_empty() {
            return;
        }
        let members = write_members(new.iter().copied());
        let splice = match removed.iter().rposition(|removed| !removed) {
            Some(last) => (slots[last].value.end, format!(",{members}")),
            None => (at + 1, members),
        };
        self.splices.push((splice.0..splice.0, splice.1));
    }

    fn slots(&self, at: usize) -> Result<Vec<MemberRange>, EditError> {
        let mut slots = Vec::new();
        if let Some(mut members) = Members::new(Scanner::starting_at(self.text, at), 0) {
            while let Some(slot) = members.next().map_err(EditError::Text)? {
                slots.push(slot);
            }
        }
        Ok(slots)
    }

    fn is_named(&self, slot: &MemberRange, name: &str) -> bool {
        json::is_text(&self.text[slot.key.clone()], name)
    }
}
