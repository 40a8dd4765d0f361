//! Which bytes go and which come.

use std::{borrow::Cow, ops::Range};

use super::{
    EditError,
    wish::{Action, Wish, listed},
};
use crate::{
    json::{self, Members, Scanner, Slot},
    span,
};

/// The bytes that go and what comes in their place, for one text.
pub(super) struct Plan<'a> {
    text: &'a str,
    splices: Vec<(Range<usize>, String)>,
    // Objects that get or lose members. Where commas go can be decided only once for each.
    reshaped: Vec<usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, splices: Vec::new(), reshaped: Vec::new() }
    }

    /// Plans what `wish` wants of the value that begins at `start`, or behind white space there.
    pub(super) fn add(&mut self, start: usize, wish: &Wish) -> Result<(), EditError> {
        let mut scanner = Scanner::starting_at(self.text, start);
        let at = scanner.at();
        match &wish.action {
            Some(Action::Set(value)) => {
                let range = scanner.value(0).map_err(EditError::Text)?;
                self.splices.push((range, value.clone()));
                Ok(())
            }
            _ => self.value(at, wish, &mut Vec::new()),
        }
    }

    /// All edits in one pass.
    pub(super) fn carry_out(mut self) -> Result<Cow<'a, str>, EditError> {
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

    /// Plans what is wanted inside the value at `at`.
    fn value(&mut self, at: usize, wish: &Wish, path: &mut Vec<String>) -> Result<(), EditError> {
        let mut scanner = Scanner::starting_at(self.text, at);
        match scanner.peek() {
            Some(b'{') => self.object(at, wish, path),
            _ if !wish.makes() => Ok(()),
            // Python's and Go's clients write `null` for what they leave out.
            Some(b'n') => {
                let range = scanner.value(0).map_err(EditError::Text)?;
                self.splices.push((range, wish.value()));
                Ok(())
            }
            _ => Err(EditError::NotAnObject { path: path.join(".") }),
        }
    }

    fn object(&mut self, at: usize, wish: &Wish, path: &mut Vec<String>) -> Result<(), EditError> {
        let slots = self.slots(at)?;
        let mut gone = vec![false; slots.len()];
        let (mut new, mut given) = (Vec::new(), Vec::new());
        for member in &wish.members {
            let (name, inner) = member;
            let there: Vec<usize> =
                (0..slots.len()).filter(|index| self.is_named(&slots[*index], name)).collect();
            let Some((last, earlier)) = there.split_last() else {
                if inner.makes() {
                    new.push(member);
                }
                continue;
            };
            path.push(name.clone());
            match &inner.action {
                Some(Action::Set(value)) => {
                    self.splices.push((slots[*last].value.clone(), value.clone()));
                    earlier.iter().for_each(|index| gone[*index] = true);
                }
                Some(Action::Remove) => there.iter().for_each(|index| gone[*index] = true),
                _ if !earlier.is_empty() => {
                    return Err(EditError::Ambiguous { path: path.join(".") });
                }
                Some(Action::Rename(to)) => {
                    let wanted = wish.members.iter().any(|(other, _)| other == to);
                    // Two members cannot both get one name either.
                    if wanted
                        || given.contains(&to)
                        || slots.iter().any(|slot| self.is_named(slot, to))
                    {
                        return Err(EditError::Taken { path: path.join("."), name: to.clone() });
                    }
                    self.splices.push((slots[*last].key.clone(), json::quote(to)));
                    given.push(to);
                }
                None => self.value(slots[*last].value.start, inner, path)?,
            }
            path.pop();
        }
        self.reshape(at, &slots, &gone, &new);
        Ok(())
    }

    /// Takes the members out that are `gone` and puts the `new` ones behind the last that stays.
    fn reshape(&mut self, at: usize, slots: &[Slot], gone: &[bool], new: &[&(String, Wish)]) {
        if new.is_empty() && !gone.contains(&true) {
            return;
        }
        self.reshaped.push(at);
        let mut run = 0..0;
        for index in 0..slots.len() {
            if gone[index] {
                run = if run.end == index { run.start..index + 1 } else { index..index + 1 };
            }
            let over = index + 1 == slots.len() || !gone[index + 1];
            if gone[index] && over {
                self.splices.push((span::removal(slots, run.clone()), String::new()));
            }
        }
        if new.is_empty() {
            return;
        }
        let members = listed(new.iter().copied());
        let splice = match gone.iter().rposition(|gone| !gone) {
            Some(last) => (slots[last].value.end, format!(",{members}")),
            None => (at + 1, members),
        };
        self.splices.push((splice.0..splice.0, splice.1));
    }

    fn slots(&self, at: usize) -> Result<Vec<Slot>, EditError> {
        let mut slots = Vec::new();
        if let Some(mut members) = Members::of(Scanner::starting_at(self.text, at), 0) {
            while let Some(slot) = members.next().map_err(EditError::Text)? {
                slots.push(slot);
            }
        }
        Ok(slots)
    }

    fn is_named(&self, slot: &Slot, name: &str) -> bool {
        json::is_text(&self.text[slot.key.clone()], name)
    }
}
