//! What a tool answered.

use std::fmt;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use stayput_upstream::Answer;
use stayput_wire::Raw;

use crate::Error;

/// What a tool answered. Nothing of it is decoded before it is asked for.
#[derive(Clone)]
pub struct ToolResult {
    answer: Answer,
    lost: bool,
}

/// One piece of what a tool answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    #[serde(rename_all = "camelCase")]
    Image {
        /// In base64.
        data: String,
        /// What kind of picture.
        mime_type: String,
    },
    /// A sound.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// In base64.
        data: String,
        /// What kind of sound.
        mime_type: String,
    },
    /// A resource, whole.
    Resource {
        /// What it holds.
        resource: Value,
    },
    /// A resource that can be read.
    ResourceLink {
        /// Where.
        uri: String,
        /// What it is called.
        #[serde(default)]
        name: String,
    },
    /// Something that this version does not know; [`ToolResult::raw`] has it.
    #[serde(other)]
    Unknown,
}

impl ToolResult {
    pub(crate) fn new(answer: Answer, lost: bool) -> Self {
        Self { answer, lost }
    }

    /// The whole result, as the server wrote it.
    #[must_use]
    pub fn raw(&self) -> &str {
        self.answer.result().unwrap_or("{}")
    }

    /// Whether the tool says that it failed. What went wrong is in [`ToolResult::text`], for the model to
    /// read.
    #[must_use]
    pub fn is_error(&self) -> bool {
        let said = Raw::parse(self.raw()).ok().and_then(|raw| raw.find(&["isError"]));
        said.is_some_and(|said| said.as_str() == "true")
    }

    /// Whether all state was lost just before the call, and it ran on a fresh one, see
    /// [`ToolCall::restart_on_loss`](crate::ToolCall::restart_on_loss).
    #[must_use]
    pub fn after_loss(&self) -> bool {
        self.lost
    }

    /// All texts, one after the other with a line break between.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(content) = Raw::parse(self.raw()).ok().and_then(|raw| raw.find(&["content"]))
        else {
            return String::new();
        };
        let of_kind = |piece: &Raw<'_>| {
            piece.find(&["type"]).and_then(Raw::text).is_some_and(|kind| kind == "text")
        };
        let texts = content.elements().filter(of_kind);
        let texts = texts.filter_map(|piece| piece.find(&["text"])?.text());
        texts.collect::<Vec<_>>().join("\n")
    }

    /// All pieces.
    ///
    /// # Errors
    /// If the server wrote something that is no such list.
    pub fn content(&self) -> Result<Vec<Content>, Error> {
        #[derive(Deserialize)]
        struct Pieces {
            #[serde(default)]
            content: Vec<Content>,
        }
        let pieces: Pieces = serde_json::from_str(self.raw()).map_err(Error::invalid)?;
        Ok(pieces.content)
    }

    /// The structured content, as a type of the caller's.
    ///
    /// # Errors
    /// If there is none, or it is of another type.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let raw = Raw::parse(self.raw()).ok().and_then(|raw| raw.find(&["structuredContent"]));
        let raw = raw.ok_or_else(|| Error::Invalid("there is no structured content".to_owned()))?;
        serde_json::from_str(raw.as_str()).map_err(Error::invalid)
    }
}

#[cfg(feature = "rmcp")]
impl TryFrom<&ToolResult> for rmcp::model::CallToolResult {
    type Error = Error;

    /// As the official SDK has it. What it has no field for is not in it.
    fn try_from(result: &ToolResult) -> Result<Self, Error> {
        serde_json::from_str(result.raw()).map_err(Error::invalid)
    }
}

#[cfg(feature = "rmcp")]
impl TryFrom<ToolResult> for rmcp::model::CallToolResult {
    type Error = Error;

    fn try_from(result: ToolResult) -> Result<Self, Error> {
        Self::try_from(&result)
    }
}

impl fmt::Debug for ToolResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what was answered: it can hold anything.
        write!(f, "ToolResult({} bytes)", self.raw().len())
    }
}
