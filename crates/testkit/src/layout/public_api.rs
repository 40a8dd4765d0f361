//! Text of a crate's public API, read from its formatted sources.

use std::{collections::BTreeSet, fs, io, path::Path};

use super::source_files;

/// Beginnings of public items. Fields and variants are listed with their type.
const ITEMS: [&str; 9] =
    ["fn ", "async fn ", "const fn ", "struct ", "enum ", "trait ", "type ", "const ", "use "];

/// Returns the public items of a crate, one per line, sorted: `use` of re-exports, types with their public fields and
/// variants, functions with their type. Items of a private module are listed whether or not they are re-exported, so
/// that the text changes at least when the API does. Relies on the layout of rustfmt.
///
/// # Errors
/// If a file cannot be read.
pub fn public_api(src: &Path) -> io::Result<String> {
    let mut lines = BTreeSet::new();
    for file in source_files(src)? {
        let text = fs::read_to_string(&file.path)?;
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        collect(text, &mut lines);
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

fn collect(text: &str, found: &mut BTreeSet<String>) {
    let mut owner = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (indent, code) = (line.len() - line.trim_start().len(), line.trim());
        if indent == 0 && !code.is_empty() && !code.starts_with(['/', '#', ')']) {
            owner =
                owner_of(code).unwrap_or_else(|| if code == "}" { String::new() } else { owner });
        }
        let is_variant =
            indent == 4 && owner.starts_with("enum ") && code.starts_with(char::is_uppercase);
        let is_trait_method = indent == 4 && owner.starts_with("trait ") && code.contains("fn ");
        let item = code.strip_prefix("pub ");
        let is_item = item.is_some_and(|item| {
            ITEMS.iter().any(|start| item.starts_with(start))
                || (indent == 4 && item.contains(": "))
        });
        if !(is_item || is_variant || is_trait_method) || code.starts_with("//") {
            continue;
        }
        let mut whole = code.to_owned();
        while !is_complete(&whole) {
            let Some(next) = lines.next() else { break };
            whole = format!("{whole} {}", next.trim());
        }
        let whole = whole.trim_end_matches(['{', ';', ',', ' ']).trim_end_matches(" where");
        let of = owner.split_once(' ').map_or("", |(_, name)| name);
        let inside = indent > 0 && !of.is_empty();
        found.insert(if inside { format!("{of}: {whole}") } else { whole.to_owned() });
    }
}

/// Kind and name of the item that a line at the margin begins, if members can follow.
fn owner_of(code: &str) -> Option<String> {
    let code = code.strip_prefix("pub ").filter(|_| !code.starts_with("pub(")).unwrap_or(code);
    let kind = ["impl", "struct", "enum", "trait"]
        .into_iter()
        .find(|kind| code.strip_prefix(kind).is_some_and(|rest| rest.starts_with([' ', '<'])))?;
    let rest = code[kind.len()..].trim_start();
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ").map_or(generic, |(_, rest)| rest),
        None => rest,
    };
    // The methods of a trait's implementation are those of the trait.
    let name = if rest.contains(" for ") { "" } else { rest };
    let name: String = name.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
    Some(format!("{kind} {name}"))
}

/// Whether the signature is complete: its brackets are closed, and the body, the value or the next item begins.
fn is_complete(code: &str) -> bool {
    let count = |open: char, close: char| {
        code.matches(open).count() as i64 - code.matches(close).count() as i64
    };
    if code.starts_with("pub use ") {
        return code.ends_with(';');
    }
    let ends = code.ends_with(['{', ';', ',', '}']);
    ends && count('(', ')') == 0 && (count('{', '}') == 0 || code.ends_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_listed_with_their_types() {
        let text = "pub use a::{\n    B,\n};\npub struct C<T> {\n    /// Doc.\n    pub d: u8,\n    e: u8,\n}\n\
                    impl<T: X> C<T> {\n    pub fn f(\n        &self,\n    ) -> u8 {\n        1\n    }\n    fn g() {}\n    pub(crate) fn h() {}\n}\n\
                    pub enum I {\n    J { k: u8 },\n}\nimpl Z for C<u8> {\n    fn y() {}\n}\n";
        let mut found = BTreeSet::new();
        collect(text, &mut found);
        let expected = [
            "C: pub d: u8",
            "C: pub fn f( &self, ) -> u8",
            "I: J { k: u8 }",
            "pub enum I",
            "pub struct C<T>",
            "pub use a::{ B, }",
        ];
        assert!(found.iter().eq(expected), "{found:?}");
    }
}
