//! Exit code of `make bench`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes a program that appends its own name to `runs` and exits with `code`.
fn program(file: &Path, runs: &Path, code: u8) {
    let name = file.file_name().unwrap().to_str().unwrap();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!("#!/bin/sh\necho \"{name} $*\" >>{}\nexit {code}\n", runs.display());
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs `scripts/bench python limits` with programs that measure nothing. Returns its exit code, and the programs
/// that it ran.
fn bench(python: &str, gateway: u8) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("scripts")).unwrap();
    for name in ["bench", "common.sh", "stages.sh", "servers.sh", "peers.sh"] {
        fs::copy(repository().join("scripts").join(name), at("scripts").join(name)).unwrap();
    }
    let runs = at("runs");
    program(&at("scripts/install"), &runs, 0);
    program(&at("bin/cargo"), &runs, 0);
    program(&at("target/release/stayput-bench-gateway"), &runs, gateway);
    program(&at("scripts/python"), &runs, 0);
    let failing = format!("#!/bin/sh\necho \"python $*\" >>{}\n{python}\n", runs.display());
    fs::write(at("scripts/python"), failing).unwrap();
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(at("scripts/bench"));
    command.args(["python", "limits"]).env("PATH", path).env("CARGO_TARGET_DIR", at("target"));
    let output = command.output().unwrap();
    (output.status.code(), fs::read_to_string(runs).unwrap())
}

/// A missed target shows in the exit code, whichever program missed it, and all programs run.
#[test]
fn missed_target_fails_make_bench_after_all_have_run() {
    assert_eq!(bench("", 0).0, Some(0));
    assert_eq!(bench("", 1).0, Some(1));
    let (code, runs) = bench(r#"[ "$1" != bench ]"#, 0);
    assert_eq!(code, Some(1));
    assert!(runs.contains("python bench\n"), "{runs}");
    assert!(runs.contains("stayput-bench-gateway limits\n"), "{runs}");
    // Nothing can be measured without the wheel.
    let (code, runs) = bench("exit 3", 0);
    assert_eq!(code, Some(3));
    assert!(!runs.contains("stayput-bench-gateway"), "{runs}");
}
