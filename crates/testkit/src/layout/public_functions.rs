//! Public functions of the library crates that no code of the product calls.
//!
//! Calls are found by reading the tokens of each file, without types. A method whose name several types have, or the
//! standard library has, counts as called only by its path, on a receiver that is named like its type, or in a file
//! that names its type. So a function that is called can be reported, but rarely, and one without a caller can stay
//! unseen if its name is common.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use super::{
    source_files,
    tokens::{Token, tokens},
};

/// Library crates, whose public functions need a caller.
const LIBRARIES: [&str; 9] =
    ["core", "wire", "process", "http", "stores", "upstream", "config", "server", "agent"];

/// Folder of core with the tests that each store runs.
const TESTS_OF_STORES: &str = "conformance";

/// Names that the standard library uses for methods, too.
const COMMON_NAMES: [&str; 44] = [
    "as_ref", "as_str", "call", "clear", "clone", "close", "contains", "count", "default", "drain",
    "elapsed", "end", "entry", "find", "first", "from", "get", "id", "insert", "is_empty", "iter",
    "join", "keys", "kind", "last", "len", "lock", "name", "new", "next", "open", "parse", "path",
    "poll", "pop", "push", "read", "remove", "send", "start", "take", "text", "values", "wait",
];

/// Returns the public functions of the library crates that neither a crate of the product nor the wheel calls, as
/// `crate Type::function` or `crate function`. Callers in tests, benchmarks and the test kit do not count.
///
/// # Errors
/// If a file cannot be read.
pub fn uncalled_functions(repository: &Path) -> io::Result<BTreeSet<String>> {
    let mut files = read_files(&repository.join("python/src"), "python")?;
    for name in LIBRARIES.iter().chain(&["gateway", "identify", "engine"]) {
        let src = repository.join("crates").join(name).join("src");
        if src.exists() {
            files.extend(read_files(&src, name)?);
        }
    }
    let mut types: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (owner, name) in files.iter().flat_map(|file| &file.public) {
        types.entry(name).or_default().extend(owner.as_deref());
    }
    let mut uncalled = BTreeSet::new();
    for file in files.iter().filter(|file| LIBRARIES.contains(&&*file.krate)) {
        for (owner, name) in &file.public {
            let others = types.get(&**name).into_iter().flatten();
            let function = Function {
                owner: owner.as_deref(),
                name,
                others: others.copied().filter(|other| Some(*other) != owner.as_deref()).collect(),
            };
            if !files.iter().any(|file| function.is_called_in(file)) {
                let owner = owner.as_ref().map(|it| format!("{it}::")).unwrap_or_default();
                uncalled.insert(format!("{} {owner}{name}", file.krate));
            }
        }
    }
    Ok(uncalled)
}

/// Public function, and the other types that have a public function of this name.
struct Function<'a> {
    owner: Option<&'a str>,
    name: &'a str,
    others: BTreeSet<&'a str>,
}

impl Function<'_> {
    fn is_called_in(&self, file: &File) -> bool {
        file.mentions
            .iter()
            .any(|mention| mention.name == self.name && self.is_meant(mention, &file.words))
    }

    fn is_meant(&self, mention: &Mention, words: &BTreeSet<String>) -> bool {
        let Some(owner) = self.owner else {
            return match &mention.before {
                Before::Nothing => mention.passed || mention.called,
                // A function, not a method: the path ends in a module.
                Before::Path(last) => !last.starts_with(char::is_uppercase),
                Before::Dot(_) => false,
            };
        };
        match &mention.before {
            Before::Nothing => false,
            Before::Path(last) => {
                last == owner || (last == "Self" && mention.owner.as_deref() == Some(owner))
            }
            Before::Dot(_) if !mention.called => false,
            Before::Dot(receiver) if *receiver == snake_case(owner) => true,
            Before::Dot(receiver) => {
                let other = self.others.iter().any(|other| *receiver == snake_case(other));
                let unique = self.others.is_empty() && !COMMON_NAMES.contains(&self.name);
                !other && (unique || words.contains(owner))
            }
        }
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Functions and calls of one file.
#[derive(Default)]
struct File {
    krate: String,
    words: BTreeSet<String>,
    /// Public functions, each with the type it belongs to.
    public: Vec<(Option<String>, String)>,
    mentions: Vec<Mention>,
}

/// Word that may be the name of a called function.
struct Mention {
    name: String,
    before: Before,
    /// Type whose `impl` block it stands in.
    owner: Option<String>,
    /// Whether arguments follow.
    called: bool,
    /// Whether it can be an argument, as in `map(name)`.
    passed: bool,
}

/// Token before a word.
enum Before {
    Nothing,
    /// `::`, and the word before it.
    Path(String),
    /// `.`, and the variable, field or getter before it.
    Dot(String),
}

fn read_files(src: &Path, krate: &str) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for source in source_files(src)? {
        if source.module.iter().any(|part| part == TESTS_OF_STORES) {
            continue;
        }
        let tokens = tokens(&fs::read_to_string(&source.path)?);
        let file = File { krate: krate.to_owned(), ..File::default() };
        let mut reader = Reader { tokens: &tokens, depth: 0, blocks: Vec::new(), file };
        reader.read();
        files.push(reader.file);
    }
    Ok(files)
}

/// Walks through the tokens of a file.
struct Reader<'a> {
    tokens: &'a [Token],
    depth: usize,
    /// Open `impl` and `trait` blocks: depth and type.
    blocks: Vec<(usize, String)>,
    file: File,
}

impl Reader<'_> {
    fn read(&mut self) {
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            at = match token {
                Token::Word(word) => self.word(at, word),
                Token::Open => {
                    self.depth += 1;
                    at + 1
                }
                Token::Close => {
                    self.blocks.retain(|(depth, _)| *depth < self.depth);
                    self.depth = self.depth.saturating_sub(1);
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Reads a word, or the item that it begins. Returns the place behind it.
    fn word(&mut self, at: usize, word: &str) -> usize {
        self.file.words.insert(word.to_owned());
        match word {
            // A re-export is no caller.
            "use" if self.tokens.get(at + 1) != Some(&Token::Other('<')) => {
                let end = self.tokens[at..].iter().position(|it| *it == Token::Other(';'));
                end.map_or(self.tokens.len(), |length| at + length)
            }
            "impl" | "trait" if self.begins_item(at) => self.block(at + 1),
            "fn" => {
                if let Some(Token::Word(name)) = self.tokens.get(at + 1) {
                    if self.is_public(at) {
                        self.file.public.push((self.owner(), name.clone()));
                    }
                    return at + 2;
                }
                at + 1
            }
            _ => {
                let next = self.tokens.get(at + 1);
                let called = matches!(next, Some(Token::Other('(') | Token::PathSeparator));
                let passed = next == Some(&Token::Other(')'));
                let mention = Mention {
                    name: word.to_owned(),
                    before: self.before(at),
                    owner: self.owner(),
                    called,
                    passed,
                };
                self.file.mentions.push(mention);
                at + 1
            }
        }
    }

    fn owner(&self) -> Option<String> {
        self.blocks.last().map(|(_, owner)| owner.clone())
    }

    /// Returns whether an item can begin here; `impl` is also part of types.
    fn begins_item(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|at| self.tokens.get(at)) else {
            return true;
        };
        match before {
            Token::Open | Token::Close | Token::Other(';' | ']' | ')') => true,
            Token::Word(word) => matches!(&**word, "pub" | "unsafe"),
            _ => false,
        }
    }

    /// Reads the head of an `impl` or `trait` block: its type is the last word outside of angle brackets, or the last
    /// one before `where`. Returns the place of its brace.
    fn block(&mut self, mut at: usize) -> usize {
        let (mut angles, mut owner, mut bounds) = (0_i32, String::new(), false);
        while let Some(token) = self.tokens.get(at) {
            match token {
                Token::Open | Token::Other(';') => break,
                Token::Other('<') => angles += 1,
                Token::Other('>') if self.tokens.get(at - 1) != Some(&Token::Other('-')) => {
                    angles -= 1;
                }
                Token::Other(':') if angles == 0 => bounds = true,
                Token::Word(word) if angles == 0 && word == "where" => bounds = true,
                Token::Word(word) if angles == 0 && !bounds => owner.clone_from(word),
                _ => {}
            }
            at += 1;
        }
        self.blocks.push((self.depth + 1, owner));
        at
    }

    /// Returns whether the function at this `fn` is public outside of its crate.
    fn is_public(&self, at: usize) -> bool {
        let before = self.tokens[..at].iter().rev();
        let mut before = before.skip_while(
            |it| matches!(it, Token::Word(word) if matches!(&**word, "async" | "const" | "unsafe")),
        );
        matches!(before.next(), Some(Token::Word(word)) if word == "pub")
    }

    fn before(&self, at: usize) -> Before {
        let back = |count: usize| at.checked_sub(count).and_then(|at| self.tokens.get(at));
        let word = || match (back(2), back(3), back(4)) {
            (Some(Token::Word(word)), ..) => word.clone(),
            (Some(Token::Other(')')), Some(Token::Other('(')), Some(Token::Word(word))) => {
                word.clone()
            }
            _ => String::new(),
        };
        match back(1) {
            Some(Token::PathSeparator) => Before::Path(word()),
            Some(Token::Other('.')) => Before::Dot(word()),
            _ => Before::Nothing,
        }
    }
}
