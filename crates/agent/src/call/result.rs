//! Results of requests.

use std::fmt;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use stayput_upstream::Answer;
use stayput_wire::Raw;

use crate::Error;

/// Result of a tool call. Each accessor decodes only the part that it returns.
#[derive(Clone)]
pub struct ToolResult {
    answer: Answer,
    after_loss: bool,
}

/// Content block of a tool result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Data in base64.
        data: String,
        /// MIME type of the image.
        mime_type: String,
    },
    /// Audio.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// Data in base64.
        data: String,
        /// MIME type of the audio.
        mime_type: String,
    },
    /// Embedded resource.
    Resource {
        /// Contents of the resource, with its URI.
        resource: Value,
    },
    /// Link to a resource of the server.
    ResourceLink {
        /// URI of the resource.
        uri: String,
        /// Name of the resource.
        #[serde(default)]
        name: String,
    },
    /// Block of an unknown type; [`ToolResult::raw`] has it.
    #[serde(other)]
    Unknown,
}

impl ToolResult {
    pub(crate) fn new(answer: Answer, after_loss: bool) -> Self {
        Self { answer, after_loss }
    }

    /// The whole result as the server wrote it.
    #[must_use]
    pub fn raw(&self) -> &str {
        self.answer.result().unwrap_or("{}")
    }

    /// Whether the tool reports a failure. [`ToolResult::text`] has its description, for the model.
    #[must_use]
    pub fn is_error(&self) -> bool {
        let flag = Raw::parse(self.raw()).ok().and_then(|raw| raw.find(&["isError"]));
        flag.is_some_and(|flag| flag.as_str() == "true")
    }

    /// Whether the state was lost before the call, so that the call ran on a fresh one, see
    /// [`ToolCall::restart_on_loss`](crate::ToolCall::restart_on_loss).
    #[must_use]
    pub fn after_loss(&self) -> bool {
        self.after_loss
    }

    /// All text blocks, joined by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(content) = Raw::parse(self.raw()).ok().and_then(|raw| raw.find(&["content"]))
        else {
            return String::new();
        };
        let is_text = |block: &Raw<'_>| {
            block.find(&["type"]).and_then(Raw::text).is_some_and(|kind| kind == "text")
        };
        let texts = content.elements().filter(is_text);
        let texts = texts.filter_map(|block| block.find(&["text"])?.text());
        texts.collect::<Vec<_>>().join("\n")
    }

    /// All content blocks.
    ///
    /// # Errors
    /// If the server's `content` is not a list of blocks.
    pub fn content(&self) -> Result<Vec<Content>, Error> {
        #[derive(Deserialize)]
        struct Blocks {
            #[serde(default)]
            content: Vec<Content>,
        }
        let blocks: Blocks = serde_json::from_str(self.raw()).map_err(Error::invalid)?;
        Ok(blocks.content)
    }

    /// Deserializes the structured content.
    ///
    /// # Errors
    /// If there is none, or it does not fit the type.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let raw = Raw::parse(self.raw()).ok().and_then(|raw| raw.find(&["structuredContent"]));
        let raw =
            raw.ok_or_else(|| Error::InvalidInput("there is no structured content".to_owned()))?;
        serde_json::from_str(raw.as_str()).map_err(Error::invalid)
    }
}

#[cfg(feature = "rmcp")]
impl TryFrom<&ToolResult> for rmcp::model::CallToolResult {
    type Error = Error;

    /// Converts to the type of the official SDK, which drops unknown members.
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
        // Without the content, which may hold secrets.
        write!(f, "ToolResult({} bytes)", self.raw().len())
    }
}

/// Result of a request that is not a tool call: `prompts/get`, `resources/read` or `completion/complete`.
#[derive(Clone)]
pub struct CallResult(Answer);

impl CallResult {
    pub(crate) fn new(answer: Answer) -> Self {
        Self(answer)
    }

    /// The result as the server wrote it.
    #[must_use]
    pub fn raw(&self) -> &str {
        self.0.result().unwrap_or("{}")
    }

    /// Deserializes the result.
    ///
    /// # Errors
    /// If it does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.raw()).map_err(Error::invalid)
    }
}

impl fmt::Debug for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the content, which may hold secrets.
        write!(f, "CallResult({} bytes)", self.raw().len())
    }
}
