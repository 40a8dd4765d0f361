//! Servers, SDKs and programs of others, as tests find them.
//!
//! `scripts/install peers` puts them into the user's cache, pinned by the lock files in `peers/`, and
//! `make test` names that folder in `STAYPUT_TEST_PEERS`; without the variable it is looked for where
//! the script puts it. Nothing is fetched from here.

mod suite;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

pub use suite::{Verdict, judge};

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

/// Whether to leave out what speaks to peers: only the quick tests are run, or nobody named their
/// folder and none is there. Where `STAYPUT_TEST_PEERS` names it, they are meant to be there, and a
/// test without them fails.
#[must_use]
pub fn are_left_out() -> bool {
    let quick = std::env::var_os("STAYPUT_TEST_QUICK").is_some();
    quick || (std::env::var_os("STAYPUT_TEST_PEERS").is_none() && folder().is_none())
}

fn installed() -> PathBuf {
    folder().expect("the peers of the tests are not here: run `scripts/install peers`")
}

/// How a peer is started; a test adds arguments of its own.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What runs it.
    pub program: PathBuf,
    /// The first arguments.
    pub args: Vec<PathBuf>,
    /// What it wants in its environment, beside the usual.
    pub env: Vec<(&'static str, OsString)>,
}

impl Peer {
    fn new(program: PathBuf, file: PathBuf) -> Self {
        Self { program, args: vec![file], env: Vec::new() }
    }

    /// The same as a command.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().cloned());
        command
    }
}

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
pub fn everything() -> Peer {
    Peer::new(node(), package("@modelcontextprotocol/server-everything/dist/index.js"))
}

/// `@modelcontextprotocol/server-memory`, over stdio; `MEMORY_FILE_PATH` is where it remembers.
#[must_use]
pub fn memory() -> Peer {
    Peer::new(node(), package("@modelcontextprotocol/server-memory/dist/index.js"))
}

/// `@playwright/mcp`, over stdio; wants `--executable-path` with [`chromium`], and `--headless`.
#[must_use]
pub fn playwright() -> Peer {
    Peer::new(node(), package("@playwright/mcp/cli.js"))
}

/// The official conformance suite.
#[must_use]
pub fn conformance() -> Peer {
    Peer::new(node22(), package("@modelcontextprotocol/conformance/dist/index.js"))
}

/// A client of `peers/clients`, `lines.mjs` there says how it is driven. Takes the URL of a server.
#[must_use]
pub fn client(file: &str) -> Peer {
    let file = format!("clients/{file}");
    if file.ends_with(".py") { python_peer(&file) } else { javascript_peer(&file) }
}

/// `mcp-remote`, which speaks stdio to a client and takes the URL that it speaks to.
#[must_use]
pub fn mcp_remote() -> Peer {
    Peer::new(node(), package("mcp-remote/dist/proxy.js"))
}

/// The Inspector without its page: takes a URL and what to ask there, says the answer and ends.
#[must_use]
pub fn inspector() -> Peer {
    let file = package("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let mut peer = Peer::new(node22(), file);
    peer.args.push("--cli".into());
    peer
}

/// A counter on the TypeScript SDK: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_typescript() -> Peer {
    javascript_peer("counter.mjs")
}

/// A counter on the Python SDK: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_python() -> Peer {
    python_peer("counter_sdk.py")
}

/// Clients of the 2024-11-05 transport, on the Python and on the TypeScript SDK: each takes a URL, counts
/// twice, and prints what it was told.
#[must_use]
pub fn old_clients() -> [Peer; 2] {
    let env = vec![("STAYPUT_TEST_PEERS", installed().into())];
    let typescript = Peer { env, ..Peer::new(node(), source("old_client.mjs")) };
    [python_peer("old_client.py"), typescript]
}

/// A counter on FastMCP: takes `stdio`, or `http` and a port.
#[must_use]
pub fn counter_fastmcp() -> Peer {
    python_peer("counter_fastmcp.py")
}

/// A file of `peers/` that Node runs, and where it finds its packages.
fn javascript_peer(file: &str) -> Peer {
    let env = vec![("STAYPUT_TEST_PEERS", installed().into())];
    Peer { env, ..Peer::new(node(), source(file)) }
}

/// A client on the Python SDK that uses all servers of a gateway: takes the URL of `/mcp` and how the version
/// is agreed on (`legacy` or `auto`), and says what it saw as JSON.
#[must_use]
pub fn client_python() -> Peer {
    python_peer("client_sdk.py")
}

/// A file of `peers/` that Python runs, without leaving what it compiled beside it.
fn python_peer(file: &str) -> Peer {
    let env = vec![("PYTHONDONTWRITEBYTECODE", OsString::from("1"))];
    Peer { env, ..Peer::new(python(), source(file)) }
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
