//! Configuration files of MCP clients: their places, their lists of servers, and edits that put Stayput in front of the
//! servers and leave every other byte as it is.

mod json;
mod paths;
pub(crate) mod toml;

use std::{fmt, path::Path};

pub use self::paths::Client;
use crate::error::{ConfigError, Place, Problem};

/// First argument of Stayput in front of a server.
const PROXY_COMMAND: &str = "stdio";

/// Option with the name of the server.
const NAME_OPTION: &str = "--server=";

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

/// Puts `program stdio --server=NAME --` in front of the command of each server in the text of the file `origin`. The
/// name is left out where `is_name` refuses it.
///
/// # Errors
/// [`ConfigError`] names the place if the text cannot be parsed.
pub fn wrap_servers(
    text: &str,
    origin: &Path,
    program: &str,
    is_name: impl Fn(&str) -> bool,
) -> Result<FileEdit, ConfigError> {
    let proxy = |name: &str| proxy_args(Some(name).filter(|name| is_name(name)));
    match is_toml(origin) {
        true => toml::wrap(text, program, proxy),
        false => json::wrap(text, program, proxy),
    }
    .map_err(|error| error.into_config_error(text, origin))
}

/// Removes `program stdio --server=NAME --` from the command of each server, but for the servers `keep`.
///
/// # Errors
/// Same as [`wrap_servers`].
pub fn unwrap_servers(text: &str, origin: &Path, keep: &[&str]) -> Result<FileEdit, ConfigError> {
    match is_toml(origin) {
        true => toml::unwrap(text, keep),
        false => json::unwrap(text, keep),
    }
    .map_err(|error| error.into_config_error(text, origin))
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
    is_stayput(command) && first == Some(PROXY_COMMAND)
}

/// Returns the arguments between Stayput and the command of a server. The name keeps servers apart that have the same
/// command and other variables.
fn proxy_args(name: Option<&str>) -> Vec<String> {
    let name = name.map(|name| format!("{NAME_OPTION}{name}"));
    [Some(PROXY_COMMAND.to_owned()), name, Some("--".to_owned())].into_iter().flatten().collect()
}

/// Returns the number of words before the command of the server, if the words begin like [`proxy_args`].
pub(crate) fn proxy_args_len(word: impl Fn(usize) -> Option<String>) -> Option<usize> {
    let has_name = word(1).is_some_and(|word| word.starts_with(NAME_OPTION));
    let dashes = 1 + usize::from(has_name);
    (word(0)? == PROXY_COMMAND && word(dashes)? == "--").then_some(dashes + 1)
}

/// Text that cannot be parsed, with the place of the error.
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    pub(crate) problem: Problem,
}

impl SyntaxError {
    fn into_config_error(self, text: &str, origin: &Path) -> ConfigError {
        ConfigError {
            file: origin.to_owned(),
            place: Some(Place::find(text, self.at)),
            key: String::new(),
            problem: self.problem.into(),
        }
    }
}
