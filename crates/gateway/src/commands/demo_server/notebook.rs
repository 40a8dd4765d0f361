//! Notebook, the state of the demo server.

use serde::{Deserialize, Serialize};

/// Notes and a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notebook {
    notes: Vec<String>,
    count: u64,
}

impl Notebook {
    /// Maximum number of notes. The notebook is for trying things.
    pub(super) const NOTES: usize = 1_000;

    /// Maximum number of bytes of a note.
    pub(super) const NOTE: usize = 4 << 10;

    /// Adds a note. Returns its number, or an error message.
    pub(super) fn add(&mut self, text: &str) -> Result<usize, String> {
        if text.trim().is_empty() {
            return Err("The note is empty. Put something into `text`.".to_owned());
        }
        if text.len() > Self::NOTE {
            return Err(format!("The note has more than {} bytes. Shorten it.", Self::NOTE));
        }
        if self.notes.len() == Self::NOTES {
            return Err(format!("The notebook is full: it has {} notes.", Self::NOTES));
        }
        self.notes.push(text.to_owned());
        Ok(self.notes.len())
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Increments the counter and returns it.
    pub(super) fn count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}
