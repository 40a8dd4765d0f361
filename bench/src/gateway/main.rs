//! Measures the gateway and common alternatives in one run, and prints ratios.
//!
//! ```text
//! make bench ARGS=gateway             all of it
//! make bench ARGS=gateway-http        throughput, processor time and latency of calls to a server over HTTP
//! make bench ARGS=gateway-stdio       the same over standard input and output
//! make bench ARGS=gateway-opening     sessions opened per second
//! make bench ARGS=identify            cost of identifying the session by an argument or a hint
//! make bench ARGS=limits              effect of one owner over its limits on another
//! make bench ARGS=gateway-attacks     effect of large bodies and long lists of one owner on another
//! make bench ARGS=gateway-dashboard   cost of calls while the dashboard is open
//! make bench ARGS=gateway-idle        memory of idle sessions
//! make bench ARGS=gateway-growth      cost of calls with many sessions
//! make bench ARGS=gateway-replicas    cost of calls that one replica forwards to another
//! ```
//!
//! All stand in front of the same counter and are called by the same client, in turns. The client and the counter are
//! never counted: processor time is that of the program in between, of all its processes except the counters that it
//! started. A missed target makes the exit code 1.

// A measurement that fails ends the program with a message.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, clippy::panic)]
#![allow(missing_docs)]

mod attacks;
mod calls;
mod client;
mod contenders;
#[path = "../counter.rs"]
mod counter;
mod dashboard;
mod growth;
mod identify;
mod idle;
mod limits;
mod load;
mod opening;
mod replicas;
#[path = "../report.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod report;
mod running;
#[path = "../server.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod server;
mod session;

use std::process::ExitCode;

use tokio::runtime::Builder;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = wanted.iter().map(String::as_str).collect();
    // The benchmark runs this program again as the counter over HTTP.
    if let ["serve", "http", port] = words[..] {
        return server::http(port.parse().unwrap());
    }
    let runs = |part: &str| words.contains(&part) || words.contains(&"gateway");
    // One thread: the client leaves as much of the machine as possible to the measured program.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if runs("gateway-http") {
            calls::over_http().await;
        }
        if runs("gateway-stdio") {
            calls::over_stdio().await;
        }
        if runs("gateway-opening") {
            opening::run().await;
        }
        if words.contains(&"identify") || words.contains(&"gateway") {
            identify::run().await;
        }
        if words.contains(&"limits") || words.contains(&"gateway") {
            limits::run().await;
        }
        if runs("gateway-attacks") {
            attacks::run().await;
        }
        if runs("gateway-dashboard") {
            dashboard::run().await;
        }
        if runs("gateway-idle") {
            idle::run().await;
        }
        if runs("gateway-growth") {
            growth::run().await;
        }
        if runs("gateway-replicas") {
            replicas::run().await;
        }
    });
    report::end()
}
