//! Minimal MCP client: one connection, a few requests.

use std::{cell::Cell, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use serde_json::{Value, json};
use stayput_wire::{header as mcp, sse::Decoder};

use super::{GatewayAddress, GatewayResponse, MAX_ANSWER_BYTES, RemoteError};

/// Timeout of a request: the maximum time of a call, plus a margin.
const CALL_TIMEOUT: Duration = Duration::from_secs(3_900);

/// Version with sessions. Without a named session the state of this client ends with its connection.
const VERSION: &str = "2025-11-25";

/// Connection to one server.
pub(super) struct Connection<'a> {
    gateway: &'a GatewayAddress,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    next: Cell<u64>,
}

impl<'a> Connection<'a> {
    /// Sends `initialize` to a server of the gateway, or to all of them, on the named session if there is one.
    pub(super) async fn open(
        gateway: &'a GatewayAddress,
        server: Option<&str>,
        session: Option<&str>,
    ) -> Result<Self, RemoteError> {
        let both = HeaderValue::from_static("application/json, text/event-stream");
        let mut headers = vec![
            (header::CONTENT_TYPE, HeaderValue::from_static(mcp::JSON)),
            (header::ACCEPT, both),
        ];
        if let Some(session) = session {
            let wrong = |_| RemoteError::Wrong("the key of a session must be plain text".into());
            let name = HeaderValue::from_str(&format!("key:{session}")).map_err(wrong)?;
            headers.push((HeaderName::from_static(mcp::STAYPUT_SESSION), name));
        }
        let path = match server {
            Some(server) => format!("/mcp/{}", crate::admin::encoded(server)),
            None => "/mcp".to_owned(),
        };
        let mut connection = Self { gateway, path, headers, next: Cell::new(0) };
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "stayput call", "version": env!("CARGO_PKG_VERSION") },
        });
        let mut response = connection.post("initialize", hello.clone()).await;
        if matches!(response, Err(RemoteError::NoGateway(_))) && gateway.wait_for_start().await {
            connection.next.set(0);
            response = connection.post("initialize", hello).await;
        }
        let response = response.map_err(|error| match error {
            RemoteError::NoPath(known) => RemoteError::Refused(match server {
                Some(server) => format!("there is no server `{server}`; {known}"),
                None => known,
            }),
            error => error,
        })?;
        let id = response.headers.get(mcp::MCP_SESSION_ID).cloned();
        answer(&response, 0)?;
        let strange = || RemoteError::Strange("it gave the connection no name".to_owned());
        let name = HeaderName::from_static(mcp::MCP_SESSION_ID);
        connection.headers.push((name, id.ok_or_else(strange)?));
        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        connection.send(Method::POST, done.to_string()).await?.good()?;
        Ok(connection)
    }

    /// Sends a request and returns its result.
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, RemoteError> {
        let id = self.next.get();
        answer(&self.post(method, params).await?, id)
    }

    /// Closes the connection. Ends the session if only the connection named it.
    pub(super) async fn close(self) {
        let _ = self.send(Method::DELETE, String::new()).await;
    }

    async fn post(&self, method: &str, params: Value) -> Result<GatewayResponse, RemoteError> {
        let id = self.next.replace(self.next.get() + 1);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(Method::POST, body.to_string()).await?.good()
    }

    async fn send(&self, method: Method, body: String) -> Result<GatewayResponse, RemoteError> {
        let target = (method, &*self.path);
        self.gateway.ask(target, &self.headers, Bytes::from(body), CALL_TIMEOUT).await
    }
}

/// Returns the result with this id, from one message or from an event stream.
fn answer(said: &GatewayResponse, id: u64) -> Result<Value, RemoteError> {
    let kind = said.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let mut messages: Vec<Value> = Vec::new();
    if kind.is_some_and(|kind| kind.starts_with(mcp::EVENT_STREAM)) {
        let (mut decoder, mut rest) = (Decoder::new(MAX_ANSWER_BYTES), &said.body[..]);
        while let Some(event) = decoder.next_event(&mut rest) {
            let event = event.map_err(|error| RemoteError::Strange(error.to_string()))?;
            messages.extend(serde_json::from_slice(event.data()).ok());
        }
    } else {
        messages.extend(serde_json::from_slice(&said.body).ok());
    }
    let found = messages.into_iter().find(|it| it["id"] == id && it["method"].is_null());
    let Some(mut found) = found else {
        return Err(RemoteError::Strange("there is no answer in it".to_owned()));
    };
    match found.get("error").and_then(|error| error["message"].as_str()) {
        Some(sentence) => Err(RemoteError::Refused(sentence.to_owned())),
        None => Ok(found["result"].take()),
    }
}
