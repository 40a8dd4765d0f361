//! Conversion of server answers for modern clients.

use std::borrow::Cow;

use bytes::Bytes;
use stayput_core::{Clock as _, Generation, Handle, Origin, Session, SystemClock};
use stayput_identify::set_handle;
use stayput_upstream::{Answer, InitializeResult};
use stayput_wire::{Code, Edits, Era, Message, Raw, json, meta};

use crate::{
    call::{era, modern::bridge},
    config::ToolFilter,
    reply::{self, RequestRef},
};

/// Edits for the answer to a request. Answers of a modern server without session state pass unchanged.
pub(crate) struct AnswerEdits<'a> {
    request: RequestRef<'a>,
    /// Result of the handshake with the server, which says its era and its name.
    server: &'a InitializeResult,
    tools: Option<&'a ToolFilter>,
    /// State of the session, as JSON.
    state: Option<String>,
    new_handle: Option<&'a Handle>,
    /// Whether the server speaks the era of the client, but not on this link.
    in_other_era: bool,
}

impl<'a> AnswerEdits<'a> {
    pub(crate) fn new(request: RequestRef<'a>, server: &'a InitializeResult) -> Self {
        Self { request, server, tools: None, state: None, new_handle: None, in_other_era: false }
    }

    /// Filters the tools of `tools/list`.
    pub(crate) fn passing(self, tools: Option<&'a ToolFilter>) -> Self {
        Self { tools: tools.filter(|_| self.request.method == "tools/list"), ..self }
    }

    /// Adds the session state and the new handle, if there are any.
    pub(crate) fn with_state(self, state: Option<String>, new_handle: Option<&'a Handle>) -> Self {
        Self { state, new_handle, ..self }
    }

    /// Says in the answer that it was translated, if the server speaks the era of the client.
    pub(crate) fn in_other_era(self, in_other_era: bool) -> Self {
        Self { in_other_era, ..self }
    }

    fn is_legacy(&self) -> bool {
        self.server.era() == Era::Legacy
    }

    fn listens(&self) -> bool {
        era::listens(self.request.method)
    }

    /// Returns the edited answer, and for an error the code that determines the HTTP status.
    pub(crate) fn answer(&self, answer: Answer) -> (Bytes, Option<Code>) {
        if let Some(error) = answer.error() {
            let code = answer.code();
            return match code {
                Some(Code::URL_ELICITATION_REQUIRED)
                    if self.is_legacy() && self.request.method == "tools/call" =>
                {
                    let result = bridge::tool_error(&bridge::visit_first(error));
                    (reply::result(self.request.id, &self.result(&result)).into(), None)
                }
                _ => translate_error_code(answer, code.filter(|_| self.is_legacy())),
            };
        }
        let edited = self.state.is_some() || self.tools.is_some() || self.is_legacy();
        if !edited && !self.listens() {
            return (answer.into_bytes(), None);
        }
        let text = answer.into_bytes();
        let edited_text = Message::parse(&text).ok().and_then(|message| {
            let mut edits = message.edit();
            self.edit(&mut edits, message.result()?);
            Some(Bytes::from(edits.apply().ok()?.into_owned()))
        });
        match (edited_text, self.tools) {
            (Some(edited_text), _) => (edited_text, None),
            // A list that cannot be filtered is not shown.
            (None, Some(_)) => {
                let sentence = "the server's list of tools cannot be read";
                (reply::error(self.request.id, Code::INTERNAL_ERROR, sentence).into(), None)
            }
            (None, None) => (text, None),
        }
    }

    /// Edits a result that comes from the cache.
    pub(crate) fn result<'r>(&self, result: &'r str) -> Cow<'r, str> {
        let Ok(raw) = Raw::parse(result) else { return result.into() };
        let mut edits = Edits::new(result);
        self.edit(&mut edits, raw);
        let fallback = |_| match self.tools {
            Some(_) => r#"{"resultType":"complete","tools":[]}"#.into(),
            None => result.into(),
        };
        edits.apply().unwrap_or_else(fallback)
    }

    /// Whether the result says only that a task was told. The Rust SDK takes one with a `_meta` for the result of a tool.
    fn is_acknowledgement(&self) -> bool {
        matches!(self.request.method, "tasks/cancel" | "tasks/update")
    }

    fn edit(&self, edits: &mut Edits<'_>, result: Raw<'_>) {
        if self.is_legacy() {
            self.translate(edits, result);
        }
        let id = result.find(&[meta::META, meta::SUBSCRIPTION_ID]);
        if let Some(id) = id.filter(|_| self.listens()) {
            // The link uses its own subscription id; the client gets the id of its request.
            edits.replace(id, self.request.id);
        }
        if let Some(state) = &self.state
            && !self.is_acknowledgement()
        {
            edits.set_in(result, &[meta::META, meta::STATE], state);
        }
        if self.in_other_era {
            edits.set_in(result, &[meta::META, meta::ERA], r#""legacy""#);
        }
        if let Some(new_handle) = self.new_handle {
            set_handle(edits, result, new_handle);
        }
        if let Some((list, shown)) = self.tools.and_then(|tools| tools.allowed_tools(result)) {
            edits.replace(list, &shown);
        }
    }

    /// Adds the fields that the modern era requires.
    fn translate(&self, edits: &mut Edits<'_>, result: Raw<'_>) {
        if result.find(&["resultType"]).and_then(Raw::text).is_none() {
            edits.set_in(result, &["resultType"], r#""complete""#);
        }
        let caching = match self.request.method {
            "resources/read" => Some((0, r#""private""#)),
            method if crate::catalog::list::is_list(method) => {
                Some((crate::catalog::list::TTL, crate::catalog::list::PUBLIC))
            }
            _ => None,
        };
        if let Some((ttl, scope)) = caching {
            edits.set_in(result, &["ttlMs"], &ttl.to_string());
            edits.set_in(result, &["cacheScope"], scope);
        }
        let info = Raw::parse(self.server.result()).ok();
        let info = info.and_then(|initialize_result| initialize_result.find(&["serverInfo"]));
        let has_info = result.find(&[meta::META, meta::SERVER_INFO]).is_some();
        if let Some(info) = info.filter(|_| !has_info) {
            edits.set_in(result, &[meta::META, meta::SERVER_INFO], info.as_str());
        }
    }
}

/// Returns an error of a server with the code that the client expects for it.
fn translate_error_code(answer: Answer, legacy: Option<Code>) -> (Bytes, Option<Code>) {
    let Some(code) = legacy.and_then(bridge::code) else {
        let code = answer.code();
        return (answer.into_bytes(), code);
    };
    let text = answer.into_bytes();
    let edited = Message::parse(&text).ok().and_then(|message| {
        let mut edits = message.edit();
        edits.set_in(message.error()?, &["code"], &code.0.to_string());
        Some(edits.apply().ok()?.into_owned().into())
    });
    (edited.unwrap_or(text), Some(code))
}

/// Returns as JSON whether the state that an agent remembers of a session is still valid.
pub(crate) fn state_json(session: &Session, origin: Origin, generation: Generation) -> String {
    let state = match origin {
        Origin::New => "fresh",
        Origin::Existing => "kept",
        Origin::Lost(_) => "lost",
    };
    let record = session.record();
    // The idle time starts at the end of this call, which is now.
    let expires = record.expiry.deadline(record.created, SystemClock.now());
    let expires = expires.map_or("null".to_owned(), |at| json::quote(&at.to_rfc3339()));
    format!(
        r#"{{"session":"{}","state":"{state}","generation":{generation},"expires":{expires}}}"#,
        session.id()
    )
}

/// Returns the same JSON for shared state, which belongs to no session.
pub(crate) fn shared_state_json(generation: Generation) -> String {
    format!(r#"{{"session":null,"state":"kept","generation":{generation},"expires":null}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_handle(result: &str, handle: &Handle) -> String {
        let mut edits = Edits::new(result);
        let raw = Raw::parse(result).unwrap();
        edits.set_in(raw, &[meta::META, meta::STATE], "{}");
        set_handle(&mut edits, raw, handle);
        edits.apply().unwrap().into_owned()
    }

    /// R148: the host finds a handle in `_meta`, the model in the last content block; the server's content is
    /// unchanged.
    #[test]
    fn new_handle_is_appended_after_the_tool_content() {
        let handle = Handle::generate();
        let text = r#"{"content":[{"type":"text","text":"a","n":1.10} , {"x":2}],"_meta":{"y":1}}"#;
        let edited = with_handle(text, &handle);
        let value: serde_json::Value = serde_json::from_str(&edited).unwrap();
        assert!(
            edited.starts_with(r#"{"content":[{"type":"text","text":"a","n":1.10} , {"x":2},"#)
        );
        assert!(value["content"][2]["text"].as_str().unwrap().contains(handle.expose()));
        assert_eq!(value["_meta"][meta::SESSION], handle.expose());
        assert_eq!(value["_meta"]["y"], 1);
        let value: serde_json::Value =
            serde_json::from_str(&with_handle(r#"{"content":[ ]}"#, &handle)).unwrap();
        assert_eq!(value["content"].as_array().unwrap().len(), 1);
        // A result that is not of a tool has no content to append to.
        let value: serde_json::Value =
            serde_json::from_str(&with_handle(r#"{"contents":[]}"#, &handle)).unwrap();
        assert!(value["content"].is_null() && value["_meta"][meta::SESSION].is_string());
    }
}
