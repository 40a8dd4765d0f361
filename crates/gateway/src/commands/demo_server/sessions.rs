//! Sessions of the demo server over HTTP.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use stayput_wire::Version;

use super::{answer::Peer, error::DemoError, notebook::Notebook};

/// Maximum number of sessions. Beyond it the least recently used one is removed.
const MAX_SESSIONS: usize = 1_000;

/// All sessions by id, and the file they are stored in.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: HashMap<String, Session>,
    file: Option<PathBuf>,
    /// Logical clock of uses, for the eviction order.
    clock: u64,
}

#[derive(Debug)]
struct Session {
    peer: Peer,
    used: u64,
}

/// Stored form of a session.
#[derive(Serialize, Deserialize)]
struct StoredSession {
    version: String,
    #[serde(flatten)]
    notebook: Notebook,
}

impl Sessions {
    /// Loads the sessions of `file`. A missing file means none.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, DemoError> {
        let mut sessions = Self { file: file.map(Path::to_owned), ..Self::default() };
        let Some(file) = file else { return Ok(sessions) };
        let failed = |problem: String| DemoError::State { file: file.to_owned(), problem };
        let kept: HashMap<String, StoredSession> = match std::fs::read(file) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| failed(unreadable(&error)))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(sessions),
            Err(error) => return Err(failed(error.to_string())),
        };
        for (id, StoredSession { version, notebook }) in kept {
            let version = Some(Version::from(version.as_str()));
            sessions.open.insert(id, Session { peer: Peer { version, notebook }, used: 0 });
        }
        Ok(sessions)
    }

    /// Adds a session and returns its id.
    pub(super) fn begin(&mut self, peer: Peer) -> io::Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.open.len() >= MAX_SESSIONS {
            let oldest = self.open.iter().min_by_key(|(_, session)| session.used);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| self.open.remove(&id));
        }
        self.clock += 1;
        self.open.insert(id.clone(), Session { peer, used: self.clock });
        self.save()?;
        Ok(id)
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    /// Answers a message of the session `id`. Changes are stored before the answer is sent.
    pub(super) fn answer(&mut self, id: &str, message: &[u8]) -> io::Result<Option<String>> {
        self.clock += 1;
        let Some(session) = self.open.get_mut(id) else { return Ok(None) };
        session.used = self.clock;
        let before = session.peer.clone();
        let answer = session.peer.answer(message);
        if session.peer.notebook == before.notebook && session.peer.version == before.version {
            return Ok(answer);
        }
        if let Err(error) = self.save() {
            // The change is undone: a later request must not see what was never confirmed.
            if let Some(session) = self.open.get_mut(id) {
                session.peer = before;
            }
            return Err(error);
        }
        Ok(answer)
    }

    /// Removes a session. Returns whether it existed.
    pub(super) fn end(&mut self, id: &str) -> io::Result<bool> {
        let known = self.open.remove(id).is_some();
        if known {
            self.save()?;
        }
        Ok(known)
    }

    /// Writes all sessions to a new file and renames it over the old one, so that the file is never half-written. Only
    /// the owner can read it, because an id gives access to its session.
    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let kept: HashMap<&String, StoredSession> =
            self.open.iter().map(Session::to_stored).collect();
        let mut name = file.clone().into_os_string();
        name.push(".new");
        let mut options = OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&name)?;
        new.write_all(&serde_json::to_vec(&kept)?)?;
        new.sync_data()?;
        std::fs::rename(&name, file)
    }
}

impl Session {
    fn to_stored<'s>((id, session): (&'s String, &Self)) -> (&'s String, StoredSession) {
        let version = session.peer.version.as_ref().map_or("", Version::as_str).to_owned();
        (id, StoredSession { version, notebook: session.peer.notebook.clone() })
    }
}

/// Describes the place of a parse error without its text, which may be a session id or a note.
fn unreadable(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!("line {line}, column {column} is nothing that this server wrote")
}
