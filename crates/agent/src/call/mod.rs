//! Requests to servers: tool calls, prompts, resources, completion and lists.

mod lists;
mod request;
mod result;
mod server_features;
mod tool_call;

pub use lists::{Prompt, Resource, Tool};
pub use result::{CallResult, Content, ToolResult};
pub use tool_call::ToolCall;
