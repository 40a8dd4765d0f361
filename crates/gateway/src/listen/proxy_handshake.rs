//! Handshake between `stayput stdio` and the holder of the sessions: the first line of each side.

use serde::{Deserialize, Serialize};

use crate::config::command_server::Definition;

/// Version of these lines. Any other version is refused.
pub(crate) const FORM: u32 = 2;

/// First line of `stayput stdio`. It holds secrets, so it is never logged.
#[derive(Serialize, Deserialize)]
pub(crate) struct HandshakeRequest {
    /// Protocol version: [`FORM`].
    pub(crate) stayput: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// Secret name of the connection, by which it is found again.
    pub(crate) name: String,
    /// The client was connected before, to a holder that is gone.
    pub(crate) again: bool,
    pub(crate) definition: Definition,
    /// Name of the server that the client wants.
    pub(crate) server: Option<String>,
    /// Key of the client's session.
    pub(crate) session: Option<String>,
}

/// First line of the holder.
#[derive(Serialize, Deserialize)]
pub(crate) struct HandshakeReply {
    /// Protocol version: [`FORM`].
    pub(crate) stayput: u32,
    /// The connection is known from before, and continues.
    #[serde(default)]
    pub(crate) known: bool,
    /// The holder is run by an operator: if it stops, it is likely to come back.
    #[serde(default)]
    pub(crate) lasting: bool,
    /// Reason for a refusal.
    #[serde(default)]
    pub(crate) refused: Option<String>,
}

impl HandshakeReply {
    pub(crate) fn refusing(sentence: String) -> Self {
        Self { stayput: FORM, known: false, lasting: false, refused: Some(sentence) }
    }
}

/// Serializes a value as one line.
pub(crate) fn line(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
