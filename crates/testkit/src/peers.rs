//! Servers, SDKs and programs of others, as tests find them.
//!
//! `scripts/install peers` puts them into the user's cache, pinned by the lock files in `peers/`, and
//! `make test` names that folder in `STAYPUT_TEST_PEERS`; without the variable it is looked for where
//! the script puts it. Nothing is fetched from here.

use std::path::{Path, PathBuf};

/// The folder of the peers, if they were installed.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("STAYPUT_TEST_PEERS").map(PathBuf::from);
    let folder = named.or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("stayput/peers"))
    });
    folder.filter(|folder| folder.join("stamp").is_file())
}

fn installed() -> PathBuf {
    folder().expect("the peers of the tests are not here: run `scripts/install peers`")
}

/// A program and its first arguments, to which a test adds its own.
pub type Command = (PathBuf, Vec<PathBuf>);

/// A program of this machine, if it is on the path.
#[must_use]
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Node as it is on this machine.
#[must_use]
pub fn node() -> PathBuf {
    on_path("node").expect("node is not on the path")
}

/// Node 22, which the conformance suite needs.
#[must_use]
pub fn node22() -> PathBuf {
    let candidates =
        ["x64", "arm64"].map(|arch| format!("node_modules/node-linux-{arch}/bin/node"));
    let mut candidates = candidates.iter().map(|file| installed().join(file));
    candidates.find(|file| file.is_file()).expect("there is no Node 22 for this machine")
}

/// Python with the official SDK and FastMCP.
#[must_use]
pub fn python() -> PathBuf {
    installed().join("python/bin/python")
}

/// The browser that Playwright drives.
#[must_use]
pub fn chromium() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().find_map(|name| on_path(name)).expect("there is no chromium on the path")
}

/// `@modelcontextprotocol/server-everything`: takes `stdio`, `sse` or `streamableHttp`.
#[must_use]
pub fn everything() -> Command {
    (node(), vec![package("@modelcontextprotocol/server-everything/dist/index.js")])
}

/// `@modelcontextprotocol/server-memory`, over stdio; `MEMORY_FILE_PATH` is where it remembers.
#[must_use]
pub fn memory() -> Command {
    (node(), vec![package("@modelcontextprotocol/server-memory/dist/index.js")])
}

/// `@playwright/mcp`, over stdio; wants `--executable-path` with [`chromium`], and `--headless`.
#[must_use]
pub fn playwright() -> Command {
    (node(), vec![package("@playwright/mcp/cli.js")])
}

/// The official conformance suite.
#[must_use]
pub fn conformance() -> Command {
    (node22(), vec![package("@modelcontextprotocol/conformance/dist/index.js")])
}

/// A counter on the TypeScript SDK: takes `stdio`, or `http` and a port. `STAYPUT_TEST_PEERS` must be in
/// its environment.
#[must_use]
pub fn counter_typescript() -> Command {
    (node(), vec![source("counter.mjs")])
}

/// A counter on the Python SDK: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_python() -> Command {
    (python(), vec![source("counter_sdk.py")])
}

/// A counter on FastMCP: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_fastmcp() -> Command {
    (python(), vec![source("counter_fastmcp.py")])
}

/// A file of a package of npm.
fn package(file: &str) -> PathBuf {
    existing(installed().join("node_modules").join(file))
}

/// A file of `peers/` in the checkout.
fn source(file: &str) -> PathBuf {
    existing(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers").join(file))
}

fn existing(file: PathBuf) -> PathBuf {
    assert!(file.is_file(), "there is no {}", file.display());
    file
}
