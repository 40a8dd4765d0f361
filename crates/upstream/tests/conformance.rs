//! Client scenarios of the official conformance suite, with `examples/client.rs` as the client.
//!
//! The OAuth scenarios are left out, because the credentials of a link come from its configuration.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use stayput_testkit::peers;

/// Returns the example next to this test. It is built with the tests; if only this test was built, it is built here.
fn client() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap();
    let client = folder.join("examples/client");
    if !client.is_file() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "-p", "stayput-upstream", "--example", "client"]);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    client
}

/// Returns the scenarios that the suite requires of a client of this revision.
fn scenarios(revision: &str) -> Vec<String> {
    let mut suite = peers::conformance().command();
    let output = suite.args(["list", "--requirements", revision]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let client = list.lines().skip_while(|line| !line.starts_with("Client scenarios")).skip(1);
    let names = client.map_while(|line| line.trim().strip_prefix("- "));
    names.filter(|name| !name.starts_with("auth/")).map(str::to_owned).collect()
}

/// Runs one scenario and returns its failure. A client that fails is a failure of its scenario.
fn run(scenario: &str, revision: &str, client: &str) -> Option<String> {
    // Otherwise the suite leaves a folder in the current directory.
    let folder = tempfile::tempdir().unwrap();
    let mut suite = peers::conformance().command();
    suite.args(["client", "--command", client, "--scenario", scenario]);
    suite.args(["--spec-version", revision, "-o"]).arg(folder.path());
    let output = suite.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("OVERALL: PASSED");
    (!passed).then(|| format!("{scenario} @ {revision}:\n{said}"))
}

/// Runs all scenarios of a revision, several at once. The `known` ones have to be among them, so that an unreadable
/// list is not taken for an empty one.
fn conforms(revision: &str, known: &[&str]) {
    let (client, scenarios) = (client(), scenarios(revision));
    for name in known {
        assert!(scenarios.iter().any(|one| one == name), "{name} is not in {scenarios:?}");
    }
    let next = AtomicUsize::new(0);
    let failed: Vec<String> = thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                failed.extend(run(scenario, revision, client.to_str().unwrap()));
            }
            failed
        };
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn client_conforms_to_2025_11_25() {
    if !peers::are_left_out() {
        let elicitation = "elicitation-sep1034-client-defaults";
        conforms("2025-11-25", &["initialize", "tools_call", elicitation, "sse-retry"]);
    }
}

#[test]
fn client_conforms_to_2026_07_28() {
    if !peers::are_left_out() {
        let known = [
            "tools_call",
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
        ];
        conforms("2026-07-28", &known);
    }
}
