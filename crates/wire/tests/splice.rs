//! Edits change only the intended bytes.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use proptest::{collection::vec, prelude::*};
use serde_json::value::RawValue;
use stayput_wire::{EditError, Edits, Raw, span};
use support::{Entries, Node, document, name, scalar};

#[derive(Debug, Clone)]
enum Edit {
    Set(Vec<String>, String),
    Remove(Vec<String>),
}

fn edit() -> impl Strategy<Value = Edit> {
    let path = || vec(name(), 1..4);
    prop_oneof![
        2 => (path(), scalar()).prop_map(|(path, value)| Edit::Set(path, value)),
        2 => path().prop_map(Edit::Remove),
    ]
}

impl Edit {
    fn path(&self) -> Vec<&str> {
        let (Self::Set(path, _) | Self::Remove(path)) = self;
        path.iter().map(String::as_str).collect()
    }

    fn apply_to(&self, edits: &mut Edits<'_>) {
        let path = self.path();
        match self {
            Self::Set(_, value) => edits.set(&path, value),
            Self::Remove(_) => edits.remove(&path),
        };
    }

    /// Applies the edit to a tree built by serde_json; `None` if it is not possible.
    fn model(&self, node: Node) -> Option<Node> {
        self.model_at(node, &self.path())
    }

    fn model_at(&self, node: Node, path: &[&str]) -> Option<Node> {
        let (name, rest) = path.split_first().unwrap();
        let mut members = match node {
            Node::Object(members) => members,
            Node::Scalar(null) if null == "null" && matches!(self, Self::Set(..)) => vec![],
            _ if matches!(self, Self::Set(..)) => return None,
            other => return Some(other),
        };
        let found: Vec<_> = (0..members.len()).filter(|at| members[*at].0 == *name).collect();
        if !rest.is_empty() {
            match (found.as_slice(), self) {
                ([], Self::Set(..)) => {
                    let inner = self.model_at(Node::Object(vec![]), rest)?;
                    members.push(((*name).to_owned(), inner));
                }
                ([], _) => {}
                ([at], _) => {
                    let inner = std::mem::replace(&mut members[*at].1, Node::Array(vec![]));
                    members[*at].1 = self.model_at(inner, rest)?;
                }
                _ => return None,
            }
            return Some(Node::Object(members));
        }
        match self {
            Self::Set(_, value) => {
                let value = Node::read(value).unwrap();
                match found.split_last() {
                    None => members.push(((*name).to_owned(), value)),
                    Some((last, earlier)) => {
                        members[*last].1 = value;
                        earlier.iter().rev().for_each(|at| drop(members.remove(*at)));
                    }
                }
            }
            Self::Remove(_) => members.retain(|(key, _)| key != name),
        }
        Some(Node::Object(members))
    }
}

/// Returns the length of the common prefix, and of the common suffix.
fn common(one: &str, other: &str) -> (usize, usize) {
    let same = |(a, b): &(u8, u8)| a == b;
    let front = one.bytes().zip(other.bytes()).take_while(same).count();
    let rest = one.len().min(other.len()) - front;
    let back = one.bytes().rev().zip(other.bytes().rev()).take(rest).take_while(same).count();
    (front, back)
}

/// Returns the range of the value of the only member `name`, according to serde_json.
fn place(json: &str, name: &str) -> Option<(usize, usize)> {
    let raw: &RawValue = serde_json::from_str(json).ok()?;
    let Entries(entries) = serde_json::from_str(raw.get()).ok()?;
    let mut values = entries.iter().filter(|(key, _)| key == name);
    let (_, value) = values.next()?;
    let start = value.get().as_ptr() as usize - json.as_ptr() as usize;
    values.next().is_none().then_some((start, start + value.get().len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// An edit has the same result as on the tree, and fails in the same cases.
    #[test]
    fn edit_equals_the_model(text in document(), edit in edit()) {
        let mut edits = Edits::new(&text);
        edit.apply_to(&mut edits);
        let edited = edits.apply();
        let expected = edit.model(Node::read(&text).unwrap());
        prop_assert_eq!(edited.is_ok(), expected.is_some(), "{:?}", edited);
        if let (Ok(edited), Some(expected)) = (edited, expected) {
            prop_assert_eq!(Node::read(&edited).unwrap(), expected, "{}", edited);
        }
    }

    /// Several edits have the same result as one after the other, or are refused.
    #[test]
    fn combined_edits_equal_successive_ones(text in document(), planned in vec(edit(), 2..6)) {
        let mut edits = Edits::new(&text);
        planned.iter().for_each(|edit| edit.apply_to(&mut edits));
        match edits.apply() {
            Ok(edited) => {
                let start = Node::read(&text).unwrap();
                let expected = planned.iter().try_fold(start, |node, edit| edit.model(node));
                prop_assert_eq!(Node::read(&edited).ok(), expected, "{}", edited);
            }
            Err(EditError::Conflict { .. }) => {}
            Err(error) => {
                let fails = |edit: &Edit| edit.model(Node::read(&text).unwrap()).is_none();
                prop_assert!(planned.iter().any(fails), "{}", error);
            }
        }
    }

    /// Replacing a value changes no byte outside of it.
    #[test]
    fn set_keeps_all_other_bytes(text in document(), name in name(), value in scalar()) {
        let mut edits = Edits::new(&text);
        edits.set(&[&name], &value);
        let (Ok(edited), true) = (edits.apply(), text.trim().starts_with('{')) else { return Ok(()) };
        if let Some((start, end)) = place(&text, &name) {
            prop_assert_eq!(&edited, &format!("{}{value}{}", &text[..start], &text[end..]));
        } else if span::find(&text, &[&name]).is_none() {
            let (front, back) = common(&text, &edited);
            prop_assert_eq!(front + back, text.len(), "something came, nothing went: {}", edited);
        }
    }

    /// Removing a member removes one range of bytes.
    #[test]
    fn remove_keeps_all_other_bytes(text in document(), name in name()) {
        let mut edits = Edits::new(&text);
        edits.remove(&[&name]);
        let edited = edits.apply().unwrap();
        match place(&text, &name) {
            Some((start, end)) => {
                let (front, back) = common(&text, &edited);
                prop_assert_eq!(front + back, edited.len());
                let removed = text.len() - edited.len();
                prop_assert!(removed >= end - start + 3, "at least value, quotes and colon: {}", removed);
                let whole = span::member(&text, &[&name]).unwrap().whole;
                prop_assert_eq!(&edited, &format!("{}{}", &text[..whole.start], &text[whole.end..]));
            }
            None if span::find(&text, &[&name]).is_none() => prop_assert_eq!(&edited, &text),
            None => {}
        }
    }

    /// A path from a value is equivalent to one from the top.
    #[test]
    fn path_may_start_at_a_value(text in document(), path in vec(name(), 1..4), value in scalar()) {
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        for split in 0..path.len() {
            let Some(inner) = Raw::parse(&text).unwrap().find(&path[..split]) else { break };
            if !matches!(span::find_unique(&text, &path[..split]), Ok(Some(_))) {
                break;
            }
            let (mut top, mut below) = (Edits::new(&text), Edits::new(&text));
            top.set(&path, &value);
            below.set_in(inner, &path[split..], &value);
            prop_assert_eq!(top.apply().ok(), below.apply().ok());
        }
    }
}
