//! The sessions of the demo server over HTTP.

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

/// The most sessions; beyond them the one that was not used for longest makes room.
const LIMIT: usize = 1_000;

/// All sessions by their ids, and the file they are kept in.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: HashMap<String, Session>,
    file: Option<PathBuf>,
    /// Counts uses, to know which was the last.
    clock: u64,
}

#[derive(Debug)]
struct Session {
    peer: Peer,
    used: u64,
}

/// A session as it is written down.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: String,
    #[serde(flatten)]
    notebook: Notebook,
}

impl Sessions {
    /// Those that `file` holds; none if it is not there yet.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, DemoError> {
        let mut sessions = Self { file: file.map(Path::to_owned), ..Self::default() };
        let Some(file) = file else { return Ok(sessions) };
        let failed = |problem: String| DemoError::State { file: file.to_owned(), problem };
        let kept: HashMap<String, Kept> = match std::fs::read(file) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| failed(unreadable(&error)))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(sessions),
            Err(error) => return Err(failed(error.to_string())),
        };
        for (id, Kept { version, notebook }) in kept {
            let version = Some(Version::from(version.as_str()));
            sessions.open.insert(id, Session { peer: Peer { version, notebook }, used: 0 });
        }
        Ok(sessions)
    }

    /// Keeps a new session and returns its id.
    pub(super) fn begin(&mut self, peer: Peer) -> io::Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.open.len() >= LIMIT {
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

    /// The answer of the session `id`. What it changed is kept before anybody hears of it.
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
            // It did not happen: a later session must not find what was never promised.
            if let Some(session) = self.open.get_mut(id) {
                session.peer = before;
            }
            return Err(error);
        }
        Ok(answer)
    }

    /// Forgets a session and says whether there was one.
    pub(super) fn end(&mut self, id: &str) -> io::Result<bool> {
        let known = self.open.remove(id).is_some();
        if known {
            self.save()?;
        }
        Ok(known)
    }

    /// Writes all of them beside the file and puts that in its place, so that a half-written one is
    /// never there. An id opens its session, so nobody else may read it.
    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let kept: HashMap<&String, Kept> = self.open.iter().map(Session::kept).collect();
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
    fn kept<'s>((id, session): (&'s String, &Self)) -> (&'s String, Kept) {
        let version = session.peer.version.as_ref().map_or("", Version::as_str).to_owned();
        (id, Kept { version, notebook: session.peer.notebook.clone() })
    }
}

/// Where it is wrong. What stands there may be the id of a session or a note.
fn unreadable(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!("line {line}, column {column} is nothing that this server wrote")
}
