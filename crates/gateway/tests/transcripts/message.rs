//! Messages of the client, written byte by byte so that a recording shows what the gateway changed.

use crate::cells::Era;

/// A request of the client.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Raw text, quotes included.
    pub(crate) id: String,
    pub(crate) method: &'static str,
    /// Members of `params` but `_meta`.
    params: String,
    /// Members of `_meta` that both eras have.
    meta: String,
    /// `Mcp-Name` of a modern request.
    pub(crate) name: Option<String>,
    capabilities: &'static str,
}

impl Request {
    pub(crate) fn new(id: &str, method: &'static str) -> Self {
        let (id, params, meta) = (id.to_owned(), String::new(), String::new());
        Self { id, method, params, meta, name: None, capabilities: "{}" }
    }

    /// A call of a tool.
    pub(crate) fn call(id: &str, tool: &str) -> Self {
        let params =
            format!(r#""name":"{tool}", "arguments":{{ "n":1.10,"big":12345678901234567890 }}"#);
        Self { params, name: Some(tool.to_owned()), ..Self::new(id, "tools/call") }
    }

    /// The same call with a token for progress.
    pub(crate) fn with_token(self, token: &str) -> Self {
        self.with_meta(&format!(r#""progressToken":"{token}""#))
    }

    /// The same with a member of `_meta`.
    pub(crate) fn with_meta(mut self, member: &str) -> Self {
        self.meta = join(&[&self.meta, member]);
        self
    }

    /// The same from a modern client with these capabilities.
    pub(crate) fn with_capabilities(self, capabilities: &'static str) -> Self {
        Self { capabilities, ..self }
    }

    pub(crate) fn text(&self, era: Era) -> String {
        let capabilities = self.capabilities;
        let modern = format!(
            r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities},"io.modelcontextprotocol/clientInfo":{{"name":"client","version":"9"}}"#
        );
        let meta = match era {
            Era::Legacy => self.meta.clone(),
            Era::Modern => join(&[&modern, &self.meta]),
        };
        let meta = if meta.is_empty() { meta } else { format!(r#""_meta":{{{meta}}}"#) };
        let params = join(&[&self.params, &meta]);
        let (id, method) = (&self.id, self.method);
        if params.is_empty() {
            return format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#);
        }
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    }
}

fn join(members: &[&str]) -> String {
    let members: Vec<_> = members.iter().filter(|it| !it.is_empty()).copied().collect();
    members.join(",")
}

pub(crate) fn initialize(version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"client","version":"9"}}}}}}"#
    )
}

pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

pub(crate) fn cancelled(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"not needed"}}}}"#
    )
}
