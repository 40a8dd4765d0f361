//! Search for the program of a server, without starting it.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_process::StartError;
use stayput_upstream::{Expansion, Launch, ResolvedTransport, Scope, Server};

/// Returns a sentence if the server is a process whose program does not exist. `None` also if that cannot be told.
pub(super) fn find(server: &Server) -> Option<String> {
    let session = SessionId::generate(Timestamp::from_millis(0));
    let scope = Scope::Session { owner: Owner::local(), session, branch: 0 };
    let expansion = Expansion::new(&scope).with_session_dir(PathBuf::from("/nonexistent"));
    let Ok(ResolvedTransport::Stdio(launch)) = server.resolve(&expansion) else { return None };
    sentence(&launch)
}

fn sentence(launch: &Launch) -> Option<String> {
    let is_found = match launch.command.to_string_lossy().contains('/') {
        true => launch.cwd.as_deref().unwrap_or(Path::new("")).join(&launch.command).exists(),
        false => {
            let named = launch.env.iter().find(|(name, _)| name == OsStr::new("PATH"));
            let path =
                named.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("PATH"))?;
            std::env::split_paths(&path).any(|folder| folder.join(&launch.command).exists())
        }
    };
    let command = launch.command.to_string_lossy().into_owned();
    (!is_found).then(|| StartError::NotFound { command }.to_string())
}
