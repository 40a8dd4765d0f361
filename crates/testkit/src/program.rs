//! Programs of this crate for tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::SystemTime,
};

/// Programs that this process has checked, so that each is built at most once.
static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the path of a program of the test kit. Builds it if it is missing or older than its sources, which happens
/// when the tests of another crate run alone.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let folder = output_folder();
    let program = folder.join(name);
    let mut built = BUILT.lock().unwrap();
    if !built.iter().any(|one| one == name) {
        if is_stale(&program) {
            build(name, &folder);
        }
        built.push(name.to_owned());
    }
    assert!(program.is_file(), "there is no program {}", program.display());
    program
}

/// Returns the folder of the profile: the test itself is in it, or in its `deps`.
fn output_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut folder = test.parent().unwrap();
    if ["deps", "examples"].iter().any(|inner| folder.ends_with(inner)) {
        folder = folder.parent().unwrap();
    }
    // A doctest is in a folder of its own, anywhere.
    if folder.join("deps").is_dir() { folder.to_owned() } else { default_folder() }
}

fn default_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| crate_folder().join("../../target")).join("debug")
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn is_stale(program: &Path) -> bool {
    let Ok(built) = fs::metadata(program).and_then(|file| file.modified()) else { return true };
    let sources = [crate_folder().join("src"), crate_folder().join("../wire/src")];
    sources.iter().any(|folder| changed(folder).is_some_and(|changed| changed > built))
}

/// Returns the time of the last change in the folder.
fn changed(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let times = entries.filter_map(|entry| {
        let path = entry.path();
        if path.is_dir() { changed(&path) } else { fs::metadata(path).ok()?.modified().ok() }
    });
    times.max()
}

fn build(name: &str, folder: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "-p", "stayput-testkit", "--bin", name]);
    if name != "stayput-testserver" {
        cargo.args(["--features", "conformance"]);
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(crate_folder()).env("CARGO_TARGET_DIR", folder.parent().unwrap());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&output.stderr));
}
