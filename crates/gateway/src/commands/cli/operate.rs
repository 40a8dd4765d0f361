//! Command line of the commands for a running gateway: `sessions`, `status`, `drain`, `stop`, `call`, `tools`, `ui`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stayput_core::Key;

use super::{StoreUrl, stdio};

const SESSIONS: &str = "\
Examples:
  stayput sessions                         the sessions that the gateway here holds
  stayput sessions --watch                 the same, again and again
  stayput sessions ls --owner ann --state busy
  stayput sessions show 0192f0c0-7         one of them, with its processes and its last error
  stayput sessions end 0192f0c0-7          its processes end, and its calls fail at once
  stayput sessions end --owner ann         all of one owner
  stayput sessions ls --json | jq -r '.[].id'
  stayput sessions --url https://mcp.example.com --token-file token

For an id its first characters are enough, if no other id begins with them.
A session is busy while a call runs, connected while a client is there that
makes none, and else idle. One that is away lives in the store, and this
gateway does not hold it: --all lists it, too.

The gateway is found by its store: that of the configuration in the current
folder, of --config or --store. With --url it is asked over HTTP, and the
token must have the role admin. The exit code is 1 if something failed, and
2 for a wrong command line.";

const CALL: &str = "\
Examples:
  stayput call notes note_add text='buy milk'
  stayput call notes note_add '{\"text\": \"buy milk\"}'
  stayput call --session chat-42 browser browser_navigate url=https://example.com
  echo '{\"text\": \"buy milk\"}' | stayput call notes note_add -

The text of the result goes to the standard output. A tool that fails is told
on the standard error, with exit code 1. Without --session the call has a
session of its own, which ends with it. The call is made in your own name: on
the socket as the user of this machine, with --url as who the token is for.";

/// Address and credentials of the gateway.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// The configuration of the gateway [default: stayput.json, .mcp.json or mcp.json in the current folder]
    #[arg(long, short, value_name = "FILE", global = true, conflicts_with = "url")]
    pub(crate) config: Option<PathBuf>,
    /// The store of the gateway: sqlite:PATH, memory:, postgres://… or redis://…
    #[arg(long, value_name = "URL", global = true, conflicts_with = "url")]
    pub(crate) store: Option<StoreUrl>,
    /// The data folder of the gateway, if it was started with one
    #[arg(long, value_name = "FOLDER", global = true, conflicts_with = "url")]
    pub(crate) data: Option<PathBuf>,
    /// The address of a gateway, instead of the one that runs here
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) url: Option<String>,
    /// A file with a token for it [default: the token in the variable STAYPUT_TOKEN]
    #[arg(long, value_name = "FILE", global = true, requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// JSON for programs, instead of lines for people
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Arguments of `stayput sessions`.
#[derive(Debug, Args)]
#[command(after_help = SESSIONS)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) what: Option<SessionsCommand>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) at: GatewayArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List live sessions
    Ls(Filter),
    /// Show one session, live or over
    Show {
        /// The id of the session, or its first characters
        id: String,
    },
    /// End sessions, with all their processes
    End(End),
}

/// Which sessions.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Filter {
    /// Only those of this owner
    #[arg(long, value_name = "OWNER")]
    pub(crate) owner: Option<String>,
    /// Only those that have to do with this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Only those in this state: busy, connected, idle, or away (not held by this gateway)
    #[arg(long, value_name = "STATE", value_parser = ["busy", "connected", "idle", "away"])]
    pub(crate) state: Option<String>,
    /// Also those that are away
    #[arg(long, conflicts_with = "state")]
    pub(crate) all: bool,
    /// List them again every two seconds, until Ctrl-C
    #[arg(long, short)]
    pub(crate) watch: bool,
}

/// Which sessions are ended.
#[derive(Debug, Args)]
#[group(id = "which", required = true, multiple = true)]
pub(crate) struct End {
    /// The ids of sessions, or their first characters
    #[arg(value_name = "ID", conflicts_with_all = ["all", "owner", "server"])]
    pub(crate) ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with_all = ["owner", "server"])]
    pub(crate) all: bool,
    /// All of this owner
    #[arg(long, value_name = "OWNER")]
    pub(crate) owner: Option<String>,
    /// All that have to do with this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
}

/// One call.
#[derive(Debug, Args)]
#[command(after_help = CALL)]
pub(crate) struct CallArgs {
    /// The server, by its name in the configuration
    pub(crate) server: String,
    /// The tool
    pub(crate) tool: String,
    /// The arguments: NAME=VALUE for each, or one object of JSON, or - for one on the standard input
    #[arg(value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<String>,
    /// A key of your choice for the session: whoever comes with it again finds the session again
    #[arg(long, value_name = "KEY", value_parser = stdio::key)]
    pub(crate) session: Option<Key>,
    #[command(flatten)]
    pub(crate) at: GatewayArgs,
}

const TOOLS: &str = "\
Examples:
  stayput tools                the tools of all servers, as they are called at /mcp
  stayput tools notes          those of one server, as `stayput call notes` takes them";

/// Arguments of `stayput tools`.
#[derive(Debug, Args)]
#[command(after_help = TOOLS)]
pub(crate) struct ToolsArgs {
    /// The server, by its name in the configuration [default: all servers]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) at: GatewayArgs,
}

const UI: &str = "\
Examples:
  stayput ui                   the gateway that runs here
  stayput ui --no-browser      only print the address
  stayput ui --url https://mcp.example.com --token-file token

The page is served on a free port of 127.0.0.1 until Ctrl-C. The address that is
printed works once: it holds a token, for which the browser gets a cookie. With
--url the gateway is asked over HTTP, and the token must have the role admin. It
comes from a file or from the variable STAYPUT_TOKEN, because arguments of a
command can be read by every user of the machine.";

/// Arguments of `stayput ui`.
#[derive(Debug, Args)]
#[command(after_help = UI)]
pub(crate) struct UiArgs {
    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) at: GatewayArgs,
}

const STATUS: &str = "\
Examples:
  stayput status               the process that holds the sessions here, its servers and sessions
  stayput status --json | jq .process.role

The exit code is 1 if no process holds the sessions, or if it is not ready.";

/// Arguments of `stayput status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) at: GatewayArgs,
}

const DRAIN: &str = "\
For a gateway of a cluster, before it is stopped or while its machine is
maintained. Its sessions move to the other gateways: those on HTTP servers as
soon as they are not in use, those with processes at their end. After
`limits.drain` the processes that are left are ended, and the next call of
each session reports the loss. The gateway goes on with requests: it forwards
them. The command waits until all is done. It fails if no other gateway can
take the sessions.

SIGTERM does the same, and then ends the gateway. A drained gateway takes
sessions again after a restart.";

/// Arguments of `stayput drain`.
#[derive(Debug, Args)]
#[command(after_help = DRAIN)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) at: GatewayArgs,
}

const STOP: &str = "\
Examples:
  stayput stop                 says which sessions lose their state, and asks
  stayput stop --yes           does not ask

`stayput stdio`, which editors start, leaves its sessions to a process in the
background. This ends that process. Sessions on servers that are processes
lose their state, and their next call says so; sessions on HTTP servers go on
with the next process. A window that is still open starts a new one with its
next request, unless a `stayput serve` is there by then.";

/// Arguments of `stayput stop`.
#[derive(Debug, Args)]
#[command(after_help = STOP)]
pub(crate) struct StopArgs {
    /// The configuration of the process [default: stayput.json, .mcp.json or mcp.json in the current folder]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store of the process: sqlite:PATH, memory:, postgres://… or redis://…
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// JSON for programs, instead of lines for people
    #[arg(long)]
    pub(crate) json: bool,
}

impl StopArgs {
    /// Returns the same process as the arguments of other commands name it.
    pub(crate) fn to_gateway_args(&self) -> GatewayArgs {
        let (config, store) = (self.config.clone(), self.store.clone());
        GatewayArgs { config, store, data: None, url: None, token_file: None, json: self.json }
    }
}
