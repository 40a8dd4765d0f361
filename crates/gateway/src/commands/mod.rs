//! Command line, and the subcommands of the program besides `serve`.

pub(crate) mod check;
pub(crate) mod cli;
pub(crate) mod client;
pub(crate) mod demo_server;
pub(crate) mod install;
pub(crate) mod stdio_proxy;
pub(crate) mod terminal;
pub(crate) mod tour;
