//! Server of the official conformance suite, on the official SDK; see `stayput_testkit::conformance`.

use std::process::ExitCode;

fn main() -> ExitCode {
    stayput_testkit::conformance::main()
}
