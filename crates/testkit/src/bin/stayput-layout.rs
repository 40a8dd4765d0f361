//! Prints for the `src/` of each crate how many entries it has, the largest import cycle between them, its lines of code
//! without comments and unit tests, and how many public items it has. With the argument
//! `uncalled` it prints the public functions of the library crates that no code of the product calls.

use std::{io::Write as _, path::Path, process::ExitCode};

use stayput_testkit::layout::{ImportGraph, code_lines, public_api, uncalled_functions};

fn main() -> ExitCode {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let printed = match std::env::args().nth(1).as_deref() {
        Some("uncalled") => print_uncalled(&crates.join("..")),
        _ => print(&crates),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}: {error}", crates.display());
            ExitCode::FAILURE
        }
    }
}

fn print(crates: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let [cycle, lines] = ["largest cycle", "lines of code"];
    writeln!(
        out,
        "{:10} {:>7} {cycle:>13} {lines:>13} {:>12}",
        "crate", "entries", "public items"
    )?;
    let mut all = 0;
    let mut folders: Vec<_> = std::fs::read_dir(crates)?.collect::<Result<_, _>>()?;
    folders.sort_by_key(std::fs::DirEntry::file_name);
    for folder in folders {
        let src = folder.path().join("src");
        let cycle = ImportGraph::read(&src)?.largest_cycle();
        let (name, entries) = (folder.file_name(), std::fs::read_dir(&src)?.count());
        let (lines, public) = (code_lines(&src)?, public_api(&src)?.lines().count());
        let (name, cycle_length) = (name.to_string_lossy(), cycle.len());
        writeln!(out, "{name:10} {entries:>7} {cycle_length:>13} {lines:>13} {public:>12}")?;
        if cycle_length > 1 {
            writeln!(out, "{:10} cycle: {}", "", cycle.join(" "))?;
        }
        all += lines;
    }
    writeln!(out, "{:10} {:>35}", "all", all)?;
    Ok(())
}

fn print_uncalled(repository: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for function in uncalled_functions(repository)? {
        writeln!(out, "{function}")?;
    }
    Ok(())
}
