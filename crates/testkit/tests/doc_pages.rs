//! Pages of the repository: each link leads to a file and a heading, and each page with commands has a test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all pages: those of the root, of `docs` and of its decisions.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/decisions", "bench", "python", "peers", "examples"];
    let entries = folders.iter().filter_map(|it| std::fs::read_dir(root().join(it)).ok()).flatten();
    let files = entries.map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|it| it == "md")).collect()
}

/// Returns the lines of a page outside of its fences.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of the links of a page.
fn targets(text: &str) -> Vec<&str> {
    let ends = prose(text).flat_map(|line| line.split("](").skip(1));
    ends.filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|it| it == wanted)
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let to = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            if !to.exists() || (!heading.is_empty() && !has_anchor(&to, heading)) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_its_index() {
    for (folder, index) in [("docs", "README.md"), ("docs/decisions", "README.md")] {
        let folder = root().join(folder);
        let text = std::fs::read_to_string(folder.join(index)).unwrap();
        let known = targets(&text);
        for page in pages().iter().filter(|page| page.parent() == Some(&folder)) {
            let name = page.file_name().unwrap().to_str().unwrap();
            assert!(name == index || known.contains(&name), "{name} is not in {index}");
        }
    }
}

/// Commands and programs of a page are run by a test, which names the page.
#[test]
fn every_page_with_commands_is_run_by_a_test() {
    let mut tests = String::new();
    for folder in
        ["crates/gateway/tests", "crates/agent/src", "crates/server/src", "python/tests", "scripts"]
    {
        read_all(&root().join(folder), &mut tests);
    }
    for page in pages().iter().filter(|page| page.parent().unwrap().ends_with("docs")) {
        let text = std::fs::read_to_string(page).unwrap();
        let mut fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        let is_run = |it: &str| {
            let kind = it.split([' ', ',']).next().unwrap();
            ["sh", "console", "python", "js", "rust"].contains(&kind)
        };
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(!fences.any(is_run) || tests.contains(name), "no test runs {name}");
    }
}

/// The tests that the security model names exist.
#[test]
fn every_test_of_the_security_model_exists() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names: Vec<&str> = names.filter(|name| name.matches('_').count() > 2).collect();
    assert!(names.len() > 10, "{names:?}");
    let mut sources = String::new();
    for folder in ["crates/gateway/tests", "crates/http/tests", "crates/core/src"] {
        read_all(&root().join(folder), &mut sources);
    }
    for name in names {
        assert!(sources.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}

/// Appends the text of all files below a folder.
fn read_all(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, text);
        } else {
            // Recordings that are no text hold no test.
            text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// The page for authors of servers names the versions of rmcp that the library works with: a range, because another crate of
/// the same program may need a later one.
#[test]
fn page_for_servers_names_the_versions_of_the_sdk() {
    let manifest = std::fs::read_to_string(root().join("crates/server/Cargo.toml")).unwrap();
    let version =
        manifest.split("rmcp = { version = \"").nth(1).unwrap().split('"').next().unwrap();
    let page = std::fs::read_to_string(root().join("docs/servers.md")).unwrap();
    assert!(version.starts_with(|it: char| it.is_ascii_digit()), "rmcp {version} is no range");
    assert!(
        page.contains(&format!("rmcp = {{ version = \"{version}\"")),
        "docs/servers.md does not name rmcp {version}"
    );
}
