//! Client on the official Rust SDK; see `stayput_testkit::sdk_client`.

use std::process::ExitCode;

fn main() -> ExitCode {
    stayput_testkit::sdk_client::main()
}
