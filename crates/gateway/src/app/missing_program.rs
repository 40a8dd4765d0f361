//! Search for the program of a server, without starting it.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_upstream::{Expansion, Launch, ResolvedTransport, Scope, Server};

/// Returns a sentence if the server is a process whose program does not exist. `None` also if that cannot be told.
pub(super) fn find(server: &Server) -> Option<String> {
    let session = SessionId::generate(Timestamp::from_millis(0));
    let scope = Scope::Session { owner: Owner::local(), session, branch: 0 };
    let expansion = Expansion::of(&scope).with_session_dir(PathBuf::from("/nonexistent"));
    let Ok(ResolvedTransport::Stdio(launch)) = server.resolve(&expansion) else { return None };
    sentence(&launch)
}

fn sentence(launch: &Launch) -> Option<String> {
    let command = launch.command.to_string_lossy();
    let cwd = launch.cwd.as_deref().unwrap_or(Path::new("."));
    if command.contains('/') {
        let file = cwd.join(&launch.command);
        return (!file.exists()).then(|| format!("there is no file {}", file.display()));
    }
    let named = launch.env.iter().find(|(name, _)| name == OsStr::new("PATH"));
    let path = named.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("PATH"))?;
    let found = std::env::split_paths(&path).any(|folder| folder.join(&launch.command).exists());
    (!found).then(|| match command.split_once(' ') {
        Some((program, _)) => format!(
            "there is no program {command:?} on the PATH; write \"command\": {program:?}, and the rest as \"args\""
        ),
        None => format!("there is no program {command:?} on the PATH; install it, or write its whole path"),
    })
}
