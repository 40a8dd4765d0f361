//! Small stateful MCP server for tests; see `stayput_testkit::mcp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    stayput_testkit::mcp::main()
}
