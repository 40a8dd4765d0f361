//! Measures Stayput and its building blocks in one run, and prints ratios.
//!
//! ```text
//! make bench                      everything but the soak
//! make bench ARGS=sessions        memory and cost of held sessions
//! make bench ARGS=stores          each store compared with its bare driver
//! make bench ARGS=links           a link compared with the official SDK's client and a minimal one
//! make bench ARGS=http            the client towards servers without TLS compared with hyper's connection
//! make bench ARGS=agent           a call through a hub compared with the SDK's client, held or opened per call
//! make bench ARGS=server          the layer of stayput-server compared with a bare server on rmcp
//! make bench ARGS=soak            10,000 links opened and closed; takes a minute
//! ```
//!
//! A number is comparable only with another one of the same run: this machine, this load, this minute. The targets are
//! printed with the results, and a missed one makes the exit code 1; nothing here decides a test. The gateway has a separate program in `gateway/`.

// A measurement that fails ends the program with a message.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, clippy::panic)]
#![allow(missing_docs)]

mod agent;
mod counter;
mod http;
mod layer;
mod links;
mod places;
mod report;
mod server;
mod sessions;
mod soak;
mod stores;

use std::{alloc::System, process::ExitCode};

use stayput_process::warden_main;

/// Allocator that counts allocations. It never refuses one.
#[global_allocator]
static HEAP: cap::Cap<System> = cap::Cap::new(System, usize::MAX);

/// Names of the measurements.
const KNOWN: [&str; 7] = ["sessions", "stores", "links", "http", "agent", "server", "soak"];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = wanted.iter().map(String::as_str).collect();
    // The benchmarks run this program again: as the counter over HTTP, and as a warden.
    match words[..] {
        ["serve", "http", port] => return server::http(port.parse().unwrap()),
        ["serve", "rmcp", kind] => return layer::serve(kind),
        ["warden"] => return warden_main(),
        _ => {}
    }
    if let Some(unknown) = words.iter().find(|name| !KNOWN.contains(name)) {
        println!("there is no benchmark '{unknown}'; there are: {}", KNOWN.join(", "));
        return ExitCode::FAILURE;
    }
    // The soak shows no small effects of code changes and takes a minute, so it runs only on request.
    let runs = |name: &str| words.contains(&name) || words.is_empty() && name != "soak";
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if runs("sessions") {
        runtime.block_on(sessions::run());
    }
    if runs("stores") {
        runtime.block_on(stores::run());
    }
    if runs("links") {
        links::run();
    }
    if runs("http") {
        http::run();
    }
    if runs("agent") {
        agent::run();
    }
    if runs("server") {
        runtime.block_on(layer::run());
    }
    if runs("soak") {
        soak::run();
    }
    report::end()
}
