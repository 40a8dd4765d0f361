//! Requirements: every behaviour in `docs/requirements.md` is named by a test, and tests name nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the ids of behaviours in a text. `R110–R118` stands for all ids between them.
fn ids(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '–' && it != '_');
    for word in words.flat_map(|word| word.split('_')) {
        let ends: Vec<_> = word.split('–').filter_map(id).collect();
        match ends[..] {
            [(kind, first), (_, last)] if word.contains('–') => {
                found.extend((first..=last).map(|number| name(kind, number)));
            }
            _ => found.extend(ends.into_iter().map(|(kind, number)| name(kind, number))),
        }
    }
    found
}

/// Reads one id: R and three digits, or E and two. In the name of a test the letter is a small one.
fn id(word: &str) -> Option<(char, u32)> {
    let kind = word.chars().next()?.to_ascii_uppercase();
    let digits = &word[1..];
    let length = match kind {
        'R' => 3,
        'E' => 2,
        _ => return None,
    };
    let is_id = digits.len() == length && digits.bytes().all(|it| it.is_ascii_digit());
    is_id.then(|| (kind, digits.parse().unwrap()))
}

fn name(kind: char, number: u32) -> String {
    if kind == 'R' { format!("R{number:03}") } else { format!("E{number:02}") }
}

/// Ids that the tests of a Rust file name: in the attributes and doc lines of a test, in its name, or in the doc lines
/// of the file itself.
fn ids_in_rust(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Doc lines and attributes that belong to the next item.
    let mut pending = String::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("//!") {
            found.extend(ids(line));
        } else if line.starts_with("///") || line.starts_with("#[") {
            is_test |=
                ["#[test]", "#[tokio::test", "#[test_case"].iter().any(|it| line.starts_with(it));
            pending.push_str(line);
            pending.push('\n');
        } else if !line.is_empty() {
            if is_test {
                found.extend(ids(&pending));
                found.extend(ids(line.split('(').next().unwrap()));
            }
            (pending, is_test) = (String::new(), false);
        }
    }
    found
}

/// Ids that the tests of a Python file name: in the name of a test, in its docstring, or in that of the file.
fn ids_in_python(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The docstring of a file or test follows at once.
    let mut expects = true;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        let quotes = line.matches("\"\"\"").count();
        if inside || (expects && line.starts_with("\"\"\"")) {
            found.extend(ids(line));
            inside = inside != (quotes == 1);
            expects = false;
            continue;
        }
        let signature = line.strip_prefix("async ").unwrap_or(line);
        if let Some(test) = signature.strip_prefix("def test_") {
            found.extend(ids(test.split('(').next().unwrap()));
            expects = true;
        } else if line.ends_with(':') || line.is_empty() || line.ends_with(',') {
            // The rest of a long signature.
        } else {
            expects = false;
        }
    }
    found
}

/// Returns the ids that tests name, each with one of the files.
fn tested(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<_> = ["crates", "python", "examples"].map(|it| root.join(it)).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let read: fn(&str) -> Vec<String> = match path.extension().and_then(|it| it.to_str()) {
                Some("rs") => ids_in_rust,
                Some("py") => ids_in_python,
                _ => continue,
            };
            let in_tests = path.strip_prefix(root).unwrap().iter().any(|part| part == "tests");
            let text = std::fs::read_to_string(&path).unwrap();
            // Unit tests stand at the end of a file of the product.
            let text = if in_tests { &*text } else { unit_tests(&text) };
            for id in read(text) {
                found.entry(id).or_insert_with(|| path.clone());
            }
        }
    }
    found
}

fn unit_tests(text: &str) -> &str {
    text.find("#[cfg(test)]").map_or("", |at| &text[at..])
}

/// Line of the list.
struct Line {
    /// Whether a test has to name it.
    needs_test: bool,
}

/// Returns the lines of the list by their ids.
fn listed(text: &str) -> BTreeMap<String, Line> {
    let mut lines = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| R") || line.starts_with("| E")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, behaviour, marker] = cells[..] else { panic!("three cells are expected: {line}") };
        assert_eq!(ids(id), [id], "{line}");
        assert!(behaviour.ends_with('.') && behaviour.len() > 10, "no sentence: {line}");
        let (kind, reason) = marker.split_once(": ").unwrap_or((marker, ""));
        let (needs_test, needs_reason) = match kind {
            "" | "adapted" => (true, false),
            "partly" => (true, true),
            "not built" => (false, true),
            "document" => (false, false),
            other => panic!("unknown marker {other:?}: {line}"),
        };
        assert!(!needs_reason || !reason.is_empty(), "what is missing is not said: {line}");
        assert!(lines.insert(id.to_owned(), Line { needs_test }).is_none(), "twice: {line}");
    }
    lines
}

/// Returns lines without a test, and ids of tests without a line.
fn differences(
    lines: &BTreeMap<String, Line>,
    tested: &BTreeMap<String, PathBuf>,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let needed = lines.iter().filter(|(id, line)| line.needs_test && !tested.contains_key(*id));
    let unknown = tested.iter().filter(|(id, _)| !lines.contains_key(*id));
    (
        needed.map(|(id, _)| id.clone()).collect(),
        unknown.map(|(id, path)| format!("{id} in {}", path.display())).collect(),
    )
}

/// R036, R145: the list and the tests name the same behaviours.
#[test]
fn requirements_and_tests_name_the_same_behaviours() {
    let text = std::fs::read_to_string(repository().join("docs/requirements.md")).unwrap();
    let lines = listed(&text);
    let (untested, unknown) = differences(&lines, &tested(&repository()));
    assert!(untested.is_empty(), "no test names {untested:?}");
    assert!(unknown.is_empty(), "docs/requirements.md has no line for a test of {unknown:#?}");
    let expected: BTreeSet<_> =
        (1..=169).map(|it| name('R', it)).chain((1..=40).map(|it| name('E', it))).collect();
    assert!(expected.iter().all(|id| lines.contains_key(id)), "a line is missing");
}

#[test]
#[should_panic(expected = "what is missing is not said")]
fn line_that_is_partly_there_says_what_is_missing() {
    listed("| R001 | A behaviour. | partly |\n");
}

#[test]
fn missing_and_unknown_ids_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    // Comments of the product, of helpers and inside of functions prove nothing.
    write(
        "crates/a/src/lib.rs",
        "/// R001\npub fn f() {}\n#[cfg(test)]\nmod tests {\n    /// R002\n    #[test]\n    fn t() {}\n}\n",
    );
    write(
        "crates/a/tests/b.rs",
        "//! R003–R005\n/// E01\nfn helper() {}\n#[tokio::test]\nasync fn r006_holds() {\n    // R007\n}\n",
    );
    write(
        "python/tests/test_a.py",
        "\"\"\"E02.\n\nE03.\"\"\"\n\nasync def test_a(\n    x,\n):\n    \"\"\"E04, E09.\"\"\"\n    x = \"E05\"\n\n\ndef helper():\n    \"\"\"E06.\"\"\"\n",
    );
    let tested = tested(folder.path());
    let found: Vec<_> = tested.keys().map(String::as_str).collect();
    assert_eq!(found, ["E02", "E03", "E04", "E09", "R002", "R003", "R004", "R005", "R006"]);
    let lines = listed(
        "| R001 | A behaviour. | |\n| R002 | A behaviour. | adapted |\n| E09 | A behaviour. | not built: because |\n\
         | R100 | A behaviour. | document |\n\
         | R101 | A behaviour. | partly: another one is missing |\n",
    );
    let (untested, unknown) = differences(&lines, &tested);
    assert_eq!(untested.iter().map(String::as_str).collect::<Vec<_>>(), ["R001", "R101"]);
    assert_eq!(unknown.len(), 7, "all but R002 and E09: {unknown:?}");
}
