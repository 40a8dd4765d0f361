//! Third-party servers, SDKs and programs for tests.
//!
//! `scripts/install peers` installs them into the user's cache, pinned by the lock files in `peers/`. `make test`
//! names that folder in `STAYPUT_TEST_PEERS`; without the variable the default folder of the script is used. Nothing
//! is downloaded from here.

mod suite;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

pub use suite::{Verdict, judge};

/// Returns the folder of the peers, if they are installed.
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

/// Returns whether to skip tests with peers: in quick runs, or if their folder is neither named nor found. If
/// `STAYPUT_TEST_PEERS` names it, the peers are required, and a test without them fails.
#[must_use]
pub fn are_left_out() -> bool {
    let quick = std::env::var_os("STAYPUT_TEST_QUICK").is_some();
    let left_out =
        quick || (std::env::var_os("STAYPUT_TEST_PEERS").is_none() && folder().is_none());
    if left_out {
        crate::skips::note("its peer is not installed, or this is a quick run");
    }
    left_out
}

fn installed() -> PathBuf {
    folder().expect("the peers of the tests are not here: run `scripts/install peers`")
}

/// Command of a peer, to which a test adds its own arguments.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Program that runs it.
    pub program: PathBuf,
    /// First arguments.
    pub args: Vec<PathBuf>,
    /// Additional environment variables.
    pub env: Vec<(&'static str, OsString)>,
}

impl Peer {
    fn new(program: PathBuf, file: PathBuf) -> Self {
        Self { program, args: vec![file], env: Vec::new() }
    }

    /// Returns it as a command.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().cloned());
        command
    }
}

/// Finds a program on the path.
#[must_use]
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Finds Node on this machine.
#[must_use]
pub fn node() -> PathBuf {
    on_path("node").expect("node is not on the path")
}

/// Finds Node 22, which the conformance suite needs.
#[must_use]
pub fn node22() -> PathBuf {
    let candidates =
        ["x64", "arm64"].map(|arch| format!("node_modules/node-linux-{arch}/bin/node"));
    let mut candidates = candidates.iter().map(|file| installed().join(file));
    candidates.find(|file| file.is_file()).expect("there is no Node 22 for this machine")
}

/// Finds Python with the official SDK and FastMCP.
#[must_use]
pub fn python() -> PathBuf {
    installed().join("python/bin/python")
}

/// Finds the browser for Playwright.
#[must_use]
pub fn chromium() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().find_map(|name| on_path(name)).expect("there is no chromium on the path")
}

/// `@modelcontextprotocol/server-everything`: takes `stdio`, `sse` or `streamableHttp`.
#[must_use]
pub fn everything() -> Peer {
    Peer::new(node(), package("@modelcontextprotocol/server-everything/dist/index.js"))
}

/// `@modelcontextprotocol/server-memory` over stdio; `MEMORY_FILE_PATH` names its file.
#[must_use]
pub fn memory() -> Peer {
    Peer::new(node(), package("@modelcontextprotocol/server-memory/dist/index.js"))
}

/// `@playwright/mcp` over stdio; requires `--executable-path` with [`chromium`], and `--headless`.
#[must_use]
pub fn playwright() -> Peer {
    Peer::new(node(), package("@playwright/mcp/cli.js"))
}

/// Official conformance suite.
#[must_use]
pub fn conformance() -> Peer {
    Peer::new(node22(), package("@modelcontextprotocol/conformance/dist/index.js"))
}

/// Client of `peers/clients`; `lines.mjs` there describes its commands. Takes the URL of a server.
#[must_use]
pub fn client(file: &str) -> Peer {
    let file = format!("clients/{file}");
    if file.ends_with(".py") { python_peer(&file) } else { javascript_peer(&file) }
}

/// Server of `peers/`: takes `stdio`, or `http` and a port, and prints its URL when it listens.
#[must_use]
pub fn server(file: &str) -> Peer {
    if file.ends_with(".py") { python_peer(file) } else { javascript_peer(file) }
}

/// `mcp-remote`, a stdio server that takes the URL to connect to.
#[must_use]
pub fn mcp_remote() -> Peer {
    Peer::new(node(), package("mcp-remote/dist/proxy.js"))
}

/// Inspector without its page: takes a URL and a request, prints the answer and exits.
#[must_use]
pub fn inspector() -> Peer {
    let file = package("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let mut peer = Peer::new(node22(), file);
    peer.args.push("--cli".into());
    peer
}

/// Counter on the TypeScript SDK: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_typescript() -> Peer {
    javascript_peer("counter.mjs")
}

/// Counter on the Python SDK: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_python() -> Peer {
    python_peer("counter_sdk.py")
}

/// Clients of the 2024-11-05 transport on the Python and on the TypeScript SDK: each takes a URL, counts twice, and
/// prints the results.
#[must_use]
pub fn old_clients() -> [Peer; 2] {
    let env = vec![("STAYPUT_TEST_PEERS", installed().into())];
    let typescript = Peer { env, ..Peer::new(node(), source("old_client.mjs")) };
    [python_peer("old_client.py"), typescript]
}

/// Counter on FastMCP: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_fastmcp() -> Peer {
    python_peer("counter_fastmcp.py")
}

/// File of `peers/` that Node runs, with the folder of its packages.
fn javascript_peer(file: &str) -> Peer {
    let env = vec![("STAYPUT_TEST_PEERS", installed().into())];
    Peer { env, ..Peer::new(node(), source(file)) }
}

/// Client on the Python SDK that uses all servers of a gateway: takes the URL of `/mcp` and the mode of version
/// negotiation (`legacy` or `auto`), and prints its results as JSON.
#[must_use]
pub fn client_python() -> Peer {
    python_peer("client_sdk.py")
}

/// File of `peers/` that Python runs without writing bytecode next to it.
fn python_peer(file: &str) -> Peer {
    let env = vec![("PYTHONDONTWRITEBYTECODE", OsString::from("1"))];
    Peer { env, ..Peer::new(python(), source(file)) }
}

/// Returns a file of an npm package.
fn package(file: &str) -> PathBuf {
    existing(installed().join("node_modules").join(file))
}

/// Returns a file of `peers/` in the checkout.
fn source(file: &str) -> PathBuf {
    existing(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers").join(file))
}

fn existing(file: PathBuf) -> PathBuf {
    assert!(file.is_file(), "there is no {}", file.display());
    file
}
