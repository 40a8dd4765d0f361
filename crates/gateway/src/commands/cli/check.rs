//! Command line of `stayput check`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::file;
use crate::app::reload::StartError;

const ABOUT: &str = "\
Each server is started and asked what it is and what it has, as `stayput serve`
would do it. Then two sessions are opened at once: does the second one work, and
do the two see each other? Where a server is known, tools of it are called for
that: a page is opened in a browser, an entity is written to a memory and removed
again. --no-calls leaves that out.

Run it before a change to the configuration of a running gateway is saved, and in
CI. The exit code is 0 if all is well, 1 if something was found, and 2 if the
configuration cannot be used at all.";

/// Arguments of `stayput check`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Check {
    /// The configuration [default: stayput.json, .mcp.json or mcp.json in the current folder]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check this server alone
    #[arg(long, short, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Call no tool: start, shake hands and list only
    #[arg(long)]
    pub(crate) no_calls: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Check {
    /// Returns the configuration file to check. If none is named, it is searched in `folder`.
    ///
    /// # Errors
    /// [`StartError`] says where to put a file.
    pub(crate) fn file(&self, folder: &Path) -> Result<PathBuf, StartError> {
        file(self.config.as_deref(), folder)
    }
}
