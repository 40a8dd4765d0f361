//! The first lines between `stayput stdio` and whoever holds the sessions: who comes, and whether it may.

use serde::{Deserialize, Serialize};

use crate::config::command_server::Definition;

/// The form of these lines. Another one is not understood.
pub(crate) const FORM: u32 = 1;

/// Who comes. It holds secrets, so it is never shown.
#[derive(Serialize, Deserialize)]
pub(crate) struct ProxyHello {
    /// [`FORM`].
    pub(crate) stayput: u32,
    /// The version of the program.
    pub(crate) version: String,
    /// The secret name of the connection, by which it is found again.
    pub(crate) name: String,
    /// It was connected before, to a holder that is gone.
    pub(crate) again: bool,
    pub(crate) definition: Definition,
    /// Which server it wants.
    pub(crate) server: Option<String>,
    /// The key of its session.
    pub(crate) session: Option<String>,
}

/// What it is told.
#[derive(Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// [`FORM`].
    pub(crate) stayput: u32,
    /// Its connection is known from before, and goes on.
    #[serde(default)]
    pub(crate) known: bool,
    /// The holder is one that somebody runs: if it goes, it is likely to come back.
    #[serde(default)]
    pub(crate) lasting: bool,
    /// Why it may not come in.
    #[serde(default)]
    pub(crate) refused: Option<String>,
}

impl Welcome {
    pub(crate) fn refusing(sentence: String) -> Self {
        Self { stayput: FORM, known: false, lasting: false, refused: Some(sentence) }
    }
}

/// A value as a line.
pub(crate) fn line(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
