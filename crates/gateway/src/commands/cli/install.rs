//! Command line of `stayput install`.

use std::path::PathBuf;

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser as _};
use stayput_config::Client;

const EXAMPLES: &str = "\
Examples:
  stayput install cursor --dry-run   show what would be changed
  stayput install cursor             change ~/.cursor/mcp.json, after a question
  stayput install cursor --undo      take it back
  stayput install vscode --file .vscode/mcp.json
                                     a file of a project

The command of each server becomes `stayput stdio --server=NAME -- COMMAND`, with the whole
path of this program. Nothing else in the file is changed. The file before is
kept beside it, as FILE.before-stayput, and `--undo` restores it byte for byte
unless the client has changed its file since; then only the commands are
changed back. A server that is reached by a URL is left as it is.";

/// Arguments of `stayput install`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Install {
    /// The client whose file is changed
    #[arg(value_name = "CLIENT", value_parser = client_parser())]
    pub(crate) client: Option<Client>,
    /// Another file of the client [default: the one of the user]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Remove Stayput from the file again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Show the change and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write without a question
    #[arg(long, short)]
    pub(crate) yes: bool,
}

fn client_parser() -> impl clap::builder::TypedValueParser<Value = Client> {
    let names = PossibleValuesParser::new(Client::ALL.map(Client::name));
    names.try_map(|name| {
        let client = Client::ALL.into_iter().find(|client| client.name() == name);
        client.ok_or("unknown client")
    })
}
