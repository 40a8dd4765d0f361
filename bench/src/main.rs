//! Measures Stayput beside what it is built on, in one run, and prints ratios.
//!
//! ```text
//! make bench                      everything
//! make bench ARGS=sessions        memory and cost of held sessions
//! make bench ARGS=stores          each store beside its bare driver
//! ```
//!
//! A number is worth something only beside another one of the same run: this machine, this load,
//! this minute. The targets are printed with the results; nothing here decides a test.

// A measurement that cannot be made is a program that ends with a sentence.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, clippy::panic)]
#![allow(missing_docs)]

mod report;
mod sessions;
mod stores;

use std::{alloc::System, process::ExitCode};

/// Counts what is allocated. It never refuses.
#[global_allocator]
static HEAP: cap::Cap<System> = cap::Cap::new(System, usize::MAX);

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let known = ["sessions", "stores"];
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
        println!("there is no benchmark '{unknown}'; there are: {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if runs("sessions") {
        runtime.block_on(sessions::run());
    }
    if runs("stores") {
        runtime.block_on(stores::run());
    }
    ExitCode::SUCCESS
}
