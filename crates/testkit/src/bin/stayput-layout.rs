//! Prints how many entries the `src/` of each crate has, and the largest import cycle between them. With the argument
//! `uncalled` it prints the public functions of the library crates that no code of the product calls.

use std::{io::Write as _, path::Path, process::ExitCode};

use stayput_testkit::layout::{ImportGraph, uncalled_functions};

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
    writeln!(out, "{:10} {:>7} {:>13}  entries of the cycle", "crate", "entries", "largest cycle")?;
    let mut folders: Vec<_> = std::fs::read_dir(crates)?.collect::<Result<_, _>>()?;
    folders.sort_by_key(std::fs::DirEntry::file_name);
    for folder in folders {
        let src = folder.path().join("src");
        let cycle = ImportGraph::read(&src)?.largest_cycle();
        let (name, entries) = (folder.file_name(), std::fs::read_dir(&src)?.count());
        let members = if cycle.len() > 1 { cycle.join(" ") } else { String::new() };
        writeln!(out, "{:10} {entries:>7} {:>13}  {members}", name.to_string_lossy(), cycle.len())?;
    }
    Ok(())
}

fn print_uncalled(repository: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for function in uncalled_functions(repository)? {
        writeln!(out, "{function}")?;
    }
    Ok(())
}
