//! Import graph of a crate: which entry of `src/` uses which other one. Public functions without a caller, lines of code,
//! public items.
//!
//! An entry is a file or a folder directly below `src/`. Paths are found by reading the tokens of each file, so a
//! path that a macro makes is not seen. Unit tests are left out, because they may look at everything.

mod public_api;
mod public_functions;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use self::tokens::{Token, tokens, without_unit_tests};

pub use self::{public_api::public_api, public_functions::uncalled_functions};

/// Import graph between the entries of a crate.
#[derive(Debug, Default)]
pub struct ImportGraph {
    edges: BTreeMap<String, BTreeMap<String, PathBuf>>,
}

/// Import of one entry by another one.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// Entry that imports.
    pub from: String,
    /// Entry that is imported.
    pub to: String,
    /// First file with such an import.
    pub file: PathBuf,
}

impl ImportGraph {
    /// Reads the graph of the crate whose sources are in `src`.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(src: &Path) -> io::Result<Self> {
        let files = source_files(src)?;
        let entries: BTreeSet<String> =
            files.iter().filter_map(|file| file.module.first().cloned()).collect();
        let reexports = reexports(src, &entries)?;
        let mut graph = Self::default();
        for SourceFile { path, module } in &files {
            let Some(from) = module.first() else { continue };
            graph.edges.entry(from.clone()).or_default();
            for import in imports(&fs::read_to_string(path)?, module) {
                let first = import.first().map(String::as_str).unwrap_or_default();
                let to = reexports.get(first).map_or(first, String::as_str);
                if to != from && entries.contains(to) {
                    let uses = graph.edges.entry(from.clone()).or_default();
                    uses.entry(to.to_owned()).or_insert_with(|| path.clone());
                }
            }
        }
        Ok(graph)
    }

    /// Returns the imports that go from an entry to one that does not stand before it in `order`.
    #[must_use]
    pub fn against(&self, order: &[&str]) -> Vec<Import> {
        let rank = |name: &str| order.iter().position(|it| *it == name);
        self.imports()
            .filter(|it| rank(&it.to).is_none() || rank(&it.to) >= rank(&it.from))
            .collect()
    }

    /// Returns the entries of the largest import cycle; at most one entry means that there is none.
    #[must_use]
    pub fn largest_cycle(&self) -> Vec<String> {
        let reached: BTreeMap<_, _> =
            self.edges.keys().map(|name| (name, self.reachable(name))).collect();
        let cycles = reached.iter().map(|(name, all)| {
            let back = |other: &&String| reached.get(other).is_some_and(|it| it.contains(*name));
            let others = all.iter().filter(|other| other != name).filter(back);
            let mut cycle: Vec<String> = others.cloned().chain([(*name).clone()]).collect();
            cycle.sort_unstable();
            cycle
        });
        cycles.max_by_key(Vec::len).unwrap_or_default()
    }

    fn imports(&self) -> impl Iterator<Item = Import> {
        self.edges.iter().flat_map(|(from, uses)| {
            uses.iter().map(|(to, file)| Import {
                from: from.clone(),
                to: to.clone(),
                file: file.clone(),
            })
        })
    }

    fn reachable(&self, from: &str) -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(name) = open.pop() {
            for next in self.edges.get(&name).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    }
}

/// Returns the number of lines of code below `src`: lines that are neither empty nor a comment, without unit tests.
///
/// # Errors
/// If a file cannot be read.
pub fn code_lines(src: &Path) -> io::Result<usize> {
    let mut count = 0;
    for file in source_files(src)? {
        let text = fs::read_to_string(&file.path)?;
        let lines = without_unit_tests(&text).lines().map(str::trim);
        count += lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    }
    Ok(count)
}

/// Source file and the path of its module; the root of the crate has an empty path.
struct SourceFile {
    path: PathBuf,
    module: Vec<String>,
}

/// Returns the source files below `src`, without those that hold unit tests alone.
fn source_files(src: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut folders = vec![(src.to_owned(), Vec::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
            if name == "tests" || (module.is_empty() && name == "bin") {
                continue;
            }
            let inner = || module.iter().cloned().chain([name.clone()]).collect::<Vec<String>>();
            if path.is_dir() {
                folders.push((path, inner()));
            } else if path.extension().is_some_and(|it| it == "rs") {
                let root = module.is_empty() && (name == "lib" || name == "main");
                let own = if root || name == "mod" { module.clone() } else { inner() };
                files.push(SourceFile { path, module: own });
            }
        }
    }
    Ok(files)
}

/// Returns the names that the root of the crate re-exports, with the entry that each one comes from.
fn reexports(src: &Path, entries: &BTreeSet<String>) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let Ok(root) = fs::read_to_string(src.join("lib.rs")) else { return Ok(found) };
    for path in paths(&tokens(&root)) {
        let path: Vec<_> = path.into_iter().filter(|it| it != "crate" && it != "self").collect();
        if let (Some(first), Some(last)) = (path.first(), path.last())
            && entries.contains(first)
        {
            found.insert(last.clone(), first.clone());
        }
    }
    Ok(found)
}

/// Returns the paths inside the crate that a file uses, from the root of the crate on.
fn imports(text: &str, module: &[String]) -> Vec<Vec<String>> {
    paths(&tokens(text)).iter().filter_map(|path| absolute(path, module)).collect()
}

fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let first = path.first()?;
    if first == "crate" {
        return Some(path[1..].to_vec());
    }
    let ups = path.iter().take_while(|it| *it == "super").count();
    if ups == 0 || ups > module.len() {
        return None;
    }
    let base = &module[..module.len() - ups];
    Some(base.iter().chain(&path[ups..]).cloned().collect())
}

/// Returns all paths of a file: those of `use` trees, taken apart, and those in code.
fn paths(tokens: &[Token]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            Token::Word(word) if word == "use" => at = use_tree(tokens, at + 1, &[], &mut found),
            Token::Word(_) => {
                let mut path = Vec::new();
                at = segments(tokens, at, &mut path);
                found.push(path);
            }
            _ => at += 1,
        }
    }
    found
}

/// Reads `a::b::c` and returns the place behind it.
fn segments(tokens: &[Token], mut at: usize, path: &mut Vec<String>) -> usize {
    while let Some(Token::Word(word)) = tokens.get(at) {
        path.push(word.clone());
        at += 1;
        match tokens.get(at) {
            Some(Token::PathSeparator) => at += 1,
            _ => break,
        }
    }
    at
}

/// Reads one tree of a `use` and returns the place behind it.
fn use_tree(tokens: &[Token], at: usize, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    let mut at = segments(tokens, at, &mut path);
    if tokens.get(at) != Some(&Token::Open) {
        found.push(path);
        return at;
    }
    at += 1;
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Close => return at + 1,
            Token::Word(_) | Token::Open => at = use_tree(tokens, at, &path, found),
            _ => at += 1,
        }
    }
    at
}
