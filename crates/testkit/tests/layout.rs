//! Layout of the crates: the listing of a folder is the architecture, and imports point one way.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use stayput_testkit::layout::{ImportGraph, public_api, uncalled_functions};

/// Folders of the gateway, bottom to top: each one imports only those before it.
const GATEWAY: [&str; 17] = [
    "reply",
    "auth",
    "observe",
    "config",
    "catalog",
    "connections",
    "cluster",
    "state",
    "messages",
    "identify",
    "session_tools",
    "call",
    "route",
    "admin",
    "listen",
    "app",
    "commands",
];

/// Folders of upstream, bottom to top.
const UPSTREAM: [&str; 8] =
    ["util", "server", "budget", "session_dirs", "loss", "link", "open", "pool"];

/// Crates, each with those of ours that it may use outside of its tests.
const CRATES: [(&str, &[&str]); 13] = [
    ("sync", &[]),
    ("wire", &[]),
    ("core", &["sync"]),
    ("process", &["sync"]),
    ("http", &["wire", "sync"]),
    ("stores", &["core", "sync"]),
    ("upstream", &["core", "wire", "process", "http", "sync"]),
    ("identify", &["core", "wire"]),
    ("engine", &["core", "upstream"]),
    ("config", &["upstream", "wire", "sync"]),
    ("agent", &["engine", "config", "upstream", "process", "core", "wire", "stores", "sync"]),
    ("server", &["identify", "core", "wire", "stores", "sync"]),
    (
        "gateway",
        &[
            "engine", "config", "upstream", "http", "process", "identify", "core", "wire",
            "stores", "sync",
        ],
    ),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn graph(name: &str) -> ImportGraph {
    ImportGraph::read(&repository().join("crates").join(name).join("src")).unwrap()
}

#[test]
fn gateway_folders_import_only_those_below_them() {
    let against = graph("gateway").against(&GATEWAY);
    assert!(against.is_empty(), "imports against the order of the folders: {against:#?}");
}

#[test]
fn upstream_folders_import_only_those_below_them() {
    let against = graph("upstream").against(&UPSTREAM);
    assert!(against.is_empty(), "imports against the order of the folders: {against:#?}");
}

#[test]
fn listing_of_a_large_crate_is_short() {
    for (name, limit) in [("gateway", 18), ("upstream", 12)] {
        let folder = repository().join("crates").join(name).join("src");
        let entries = std::fs::read_dir(folder).unwrap().count();
        let advice = "put new modules into the folder of their topic";
        assert!(entries <= limit, "{name}: {entries} entries; {advice}");
    }
}

#[test]
fn crates_use_only_those_that_they_may_use() {
    for (name, allowed) in CRATES {
        let manifest = repository().join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let sections = manifest.split("\n[").filter(|it| {
            let header = it.split(']').next().unwrap();
            header.ends_with("dependencies") && header != "dev-dependencies"
        });
        let used = sections.flat_map(str::lines).filter_map(|line| line.strip_prefix("stayput-"));
        for used in used.map(|line| line.split([' ', '.']).next().unwrap()) {
            assert!(allowed.contains(&used), "{name} must not use {used}");
        }
    }
}

#[test]
fn crates_have_no_import_cycle() {
    for folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let cycle = graph(&name).largest_cycle();
        assert!(cycle.len() <= 1, "{name}: these import each other: {}", cycle.join(", "));
    }
    let cycle = ImportGraph::read(&repository().join("python/src")).unwrap().largest_cycle();
    assert!(cycle.len() <= 1, "python: these import each other: {}", cycle.join(", "));
}

/// An import in either form, direct or nested, is found; comments, strings and unit tests are not read.
#[test]
fn import_graph_reads_paths_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub use b::Thing;\n");
    write("a.rs", "use crate::{Thing, c::{self, X as Y}};\nconst Q: char = '\"'; // crate::d\n");
    write("b/mod.rs", "/// [`crate::d`]\nfn f() -> &'static str { \"crate::d\" }\n");
    write(
        "b/inner.rs",
        "fn g() { super::super::c::x(); }\n#[cfg(test)]\nmod tests { use crate::d; }\n",
    );
    write("c.rs", "fn x() { crate::a::y() }\n");
    write("d.rs", "");
    let graph = ImportGraph::read(folder.path()).unwrap();
    let against = graph.against(&["d", "c", "b", "a"]);
    let edges: Vec<_> = against.iter().map(|it| (&*it.from, &*it.to)).collect();
    assert_eq!(edges, [("c", "a")]);
    assert_eq!(graph.against(&["a", "b", "c", "d"]).len(), 3);
    assert_eq!(graph.largest_cycle(), ["a", "b", "c"]);
}

/// R144: transports are private. A transport without its link would have the session, but not the loss.
#[test]
fn transports_are_private() {
    let source = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let public = |text: &str, word: &str| {
        let items = text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
        items.chain(text.split("pub mod ").skip(1)).any(|item| item.contains(word))
    };
    let (root, link) =
        (source("crates/upstream/src/lib.rs"), source("crates/upstream/src/link/mod.rs"));
    assert!(link.contains("mod transport;"), "the transports are elsewhere");
    for text in [&root, &link] {
        for word in ["transport::", "LinkTransport"] {
            assert!(!public(text, word), "{word} is public");
        }
    }
    assert!(public("pub use link::transport::Pipe;", "transport::"));
}

/// A public function that only tests call promises a behaviour that the product does not have.
#[test]
fn public_functions_have_a_caller_or_a_reason() {
    let uncalled = uncalled_functions(&repository()).unwrap();
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("uncalled.txt");
    let text = std::fs::read_to_string(list).unwrap();
    let mut listed = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (function, reason) = line.split_once("  ").unwrap_or((line, ""));
        assert!(!reason.trim().is_empty(), "{function} has no reason");
        assert!(listed.insert(function.to_owned()), "{function} is listed twice");
    }
    let new: Vec<_> = uncalled.difference(&listed).collect();
    let advice =
        "delete them, call them, or list them with a reason in crates/testkit/uncalled.txt";
    assert!(new.is_empty(), "nothing but tests calls {new:#?}; {advice}");
    let old: Vec<_> = listed.difference(&uncalled).collect();
    assert!(old.is_empty(), "{old:#?} have a caller or are gone; delete their lines");
}

/// A change of the API of a library is seen in review: it changes a text in `docs/api`.
#[test]
fn public_api_is_the_recorded_one() {
    for name in ["agent", "server"] {
        let api = public_api(&repository().join("crates").join(name).join("src")).unwrap();
        let file = repository().join("docs/api").join(format!("{name}.txt"));
        if std::env::var_os("STAYPUT_UPDATE_API").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &api).unwrap();
        }
        let recorded = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let (now, before) = (lines(&api), lines(&recorded));
        let (new, gone): (Vec<_>, Vec<_>) =
            (now.difference(&before).collect(), before.difference(&now).collect());
        let advice = "if it is meant, record it with STAYPUT_UPDATE_API=1";
        assert!(new.is_empty() && gone.is_empty(), "new: {new:#?}, gone: {gone:#?}; {advice}");
    }
}

/// Calls by path, by method and as a value are found; those in tests, comments and re-exports are not.
#[test]
fn uncalled_functions_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("python/src/lib.rs", "fn f() { stayput_core::by_path(); }");
    write(
        "crates/core/src/lib.rs",
        "mod a;\n#[cfg(test)]\nmod tests;\npub use a::{only_reexported, A};
         pub fn by_path() {}\npub fn only_reexported() {}\npub(crate) fn own() {}\npub fn only_in_tests() {}
         \n#[cfg(test)]\nmod more { fn f() { crate::only_in_tests() } }",
    );
    write(
        "crates/core/src/a.rs",
        "pub struct A;\nimpl<'a, F: Fn() -> u8> From<F> for A { }
         impl A { pub async fn sweep(&self) {}\n pub const fn as_value() {}\n pub fn unique(&self) {} }
         pub struct B;\nimpl B { pub fn sweep(&self) {} }\n// B::sweep()\n",
    );
    write("crates/core/src/tests.rs", "fn f(b: super::B) { b.sweep(); }");
    write(
        "crates/gateway/src/main.rs",
        "fn f(it: X, a: A) { it.unique(); a.sweep(); it.map(A::as_value); x.sweep; }",
    );
    let found = uncalled_functions(folder.path()).unwrap();
    let expected = ["core B::sweep", "core only_in_tests", "core only_reexported"];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

/// No count of references and no variable of a thread decides anything: a count is a number of its own, and data that one
/// module sets for another is an argument. Each variable of a thread that is left says what it is for.
#[test]
fn no_reference_count_and_no_thread_local_decides() {
    let allowed: BTreeSet<_> = THREAD_LOCALS.iter().map(|(file, _)| (*file).to_owned()).collect();
    let (mut counts, mut locals) = (Vec::new(), BTreeSet::new());
    for (name, _) in CRATES {
        let mut folders = vec![repository().join("crates").join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let file = path.strip_prefix(repository().join("crates")).unwrap();
                    let file = file.display().to_string();
                    if text.contains("Arc::strong_count") {
                        counts.push(file.clone());
                    }
                    if text.contains("thread_local!") {
                        locals.insert(file);
                    }
                }
            }
        }
    }
    assert!(counts.is_empty(), "{counts:?} decide by Arc::strong_count; count in a number instead");
    assert_eq!(locals, allowed, "an argument is better than a variable of a thread");
}

/// Files with variables of a thread, and what these hold.
const THREAD_LOCALS: [(&str, &str); 5] = [
    ("gateway/src/listen/workers.rs", "copies of shared state, and the runtime for large bodies"),
    ("http/src/worker.rs", "runtime of the thread"),
    ("http/src/plain/conn.rs", "buffer for reads"),
    ("server/src/request/scope.rs", "current request of a handler, as its author calls it"),
    ("upstream/src/link/transport/stdio/pump.rs", "buffer for reads"),
];

/// A doc comment begins with a noun or a verb, so that its subject is a thing of the code.
#[test]
fn doc_comments_have_a_subject() {
    let mut found = Vec::new();
    let mut folders: Vec<_> = ["crates", "bench/src", "fuzz/targets", "python/src"]
        .map(|it| repository().join(it))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(
                    lines_without_subject(&text).map(|line| format!("{}:{line}", path.display())),
                );
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} comments begin with a pronoun:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// First words without a thing that the sentence is about.
const REFUSED: [&str; 11] =
    ["What", "Who", "Whose", "Whoever", "How", "Where", "Why", "It", "They", "Of", "As"];

/// Returns the first lines of doc comments that begin with one of these words.
fn lines_without_subject(text: &str) -> impl Iterator<Item = String> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let first = !std::mem::replace(&mut inside, comment.is_some());
        let word = comment?.split_whitespace().next()?;
        let pronoun = REFUSED.contains(&word);
        (first && pronoun).then(|| format!("{}: {line}", number + 1))
    })
}
