//! Configuration files of MCP clients: their places, their lists of servers, and edits that put Stayput in front of the
//! servers and leave every other byte as it is.

mod json;
mod paths;
pub(crate) mod toml;

use std::{fmt, path::Path};

pub use self::paths::Client;
use crate::error::{ConfigError, Place, Problem};

/// Arguments between the program and the command of the server.
const PROXY_ARGS: [&str; 2] = ["stdio", "--"];

/// Keys under which clients have the URL of a server.
pub(crate) const URL_KEYS: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// Edited text of a client's file.
pub struct FileEdit {
    /// Whole text after the edit.
    pub text: String,
    /// Servers in the order of the file.
    pub servers: Vec<EditedServer>,
}

/// Server of a client's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedServer {
    /// Name in the file, with the project if it is of one.
    pub name: String,
    /// Effect of the edit.
    pub change: ServerChange,
}

/// Effect of an edit on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerChange {
    /// Its command was changed.
    Changed,
    /// Nothing had to be changed.
    Unchanged,
    /// Server that is reached by a URL and has no command.
    Remote,
    /// Its entry has no command that can be read.
    Unreadable,
}

impl FileEdit {
    /// Returns the names of the servers with this change.
    pub fn names(&self, change: ServerChange) -> impl Iterator<Item = &str> {
        let servers = self.servers.iter().filter(move |server| server.change == change);
        servers.map(|server| &*server.name)
    }
}

/// Omits the text, which contains tokens and passwords.
impl fmt::Debug for FileEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileEdit").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Puts `program stdio --` in front of the command of each server in the text of the file `origin`.
///
/// # Errors
/// [`ConfigError`] names the place if the text cannot be parsed.
pub fn wrap_servers(text: &str, origin: &Path, program: &str) -> Result<FileEdit, ConfigError> {
    match is_toml(origin) {
        true => toml::wrap(text, program),
        false => json::wrap(text, program),
    }
    .map_err(|error| error.of(text, origin))
}

/// Removes `program stdio --` from the command of each server, but for the servers `keep`.
///
/// # Errors
/// Same as [`wrap_servers`].
pub fn unwrap_servers(text: &str, origin: &Path, keep: &[&str]) -> Result<FileEdit, ConfigError> {
    match is_toml(origin) {
        true => toml::unwrap(text, keep),
        false => json::unwrap(text, keep),
    }
    .map_err(|error| error.of(text, origin))
}

/// Returns whether a file is TOML, by its name.
pub(crate) fn is_toml(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "toml")
}

/// Returns whether a program is Stayput, by its name.
pub(crate) fn is_stayput(command: &str) -> bool {
    Path::new(command).file_stem().is_some_and(|stem| stem == "stayput")
}

/// Returns whether a command with these arguments is Stayput in front of a server or of a file.
fn is_wrapped(command: &str, first: Option<&str>) -> bool {
    is_stayput(command) && first == Some(PROXY_ARGS[0])
}

/// Text that cannot be parsed, with the place of the error.
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    pub(crate) problem: Problem,
}

impl SyntaxError {
    fn of(self, text: &str, origin: &Path) -> ConfigError {
        ConfigError {
            file: origin.to_owned(),
            place: Some(Place::find(text, self.at)),
            key: String::new(),
            problem: self.problem.into(),
        }
    }
}
