//! Session with the counter, as a legacy client.

use std::{io, net::SocketAddr};

use memchr::memmem;

use super::client::Client;

/// Address of an MCP endpoint.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) path: String,
    /// Additional header lines of every request.
    pub(super) more: String,
}

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// First id. All ids have the same width, so the request is built once.
const FIRST_ID: u64 = 1_000_000_000;

/// Session: the prepared counting request, and the last count.
pub(super) struct Session {
    name: Option<String>,
    request: Vec<u8>,
    id: u64,
    id_at: usize,
    counted: u64,
    /// Whether every answer was one more than the previous one, from 1 on.
    pub(super) alone: bool,
}

impl Session {
    /// Sends `initialize`. A server with sessions names this one.
    pub(super) async fn open(client: &mut Client, target: &Target) -> io::Result<Self> {
        let reply = client.send(&request(target, None, HELLO)).await?;
        let greeted = reply.status == 200 && memmem::find(reply.body, b"serverInfo").is_some();
        let name = reply.session;
        if !greeted {
            return Err(io::Error::other(String::from_utf8_lossy(reply.body)));
        }
        client.send(&request(target, name.as_deref(), READY)).await?;
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{FIRST_ID},"method":"tools/call","params":{{"name":"count","arguments":{{}}}}}}"#
        );
        Ok(Self::calling(target, name, &call))
    }

    /// Returns the session with these arguments and this `_meta` in its calls.
    pub(super) fn saying(self, target: &Target, arguments: &str, meta: &str) -> Self {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{FIRST_ID},"method":"tools/call","params":{{"name":"count","arguments":{arguments},"_meta":{meta}}}}}"#
        );
        Self::calling(target, self.name, &call)
    }

    /// Returns its `Mcp-Session-Id`, if the server issued one.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn calling(target: &Target, name: Option<String>, call: &str) -> Self {
        let request = request(target, name.as_deref(), call);
        let id_at = memmem::find(&request, FIRST_ID.to_string().as_bytes()).unwrap();
        Self { name, request, id: FIRST_ID, id_at, counted: 0, alone: true }
    }

    /// Calls a tool and returns its answer.
    pub(super) async fn ask(
        &self,
        client: &mut Client,
        target: &Target,
        tool: &str,
    ) -> io::Result<String> {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
        );
        let reply = client.send(&request(target, self.name.as_deref(), &call)).await?;
        Ok(String::from_utf8_lossy(reply.body).into_owned())
    }

    /// Counts once.
    pub(super) async fn count(&mut self, client: &mut Client) -> io::Result<()> {
        self.id += 1;
        let mut id = self.id;
        for at in (self.id_at..self.id_at + 10).rev() {
            self.request[at] = b'0' + (id % 10) as u8;
            id /= 10;
        }
        let reply = client.send(&self.request).await?;
        let said = number(reply.body);
        let Some(said) = said.filter(|_| reply.status == 200) else {
            return Err(io::Error::other(String::from_utf8_lossy(reply.body)));
        };
        self.counted += 1;
        self.alone &= said == self.counted;
        Ok(())
    }

    /// Sends `DELETE`.
    pub(super) async fn end(self, client: &mut Client, target: &Target) -> io::Result<()> {
        let name = self.name.unwrap_or_default();
        client.send(&bare("DELETE", target, &name)).await.map(drop)
    }
}

/// Parses the number in an answer.
fn number(body: &[u8]) -> Option<u64> {
    let digits = memmem::find(body, br#""text":""#)? + 8;
    let digits = body[digits..].iter().take_while(|byte| byte.is_ascii_digit());
    let mut digits = digits.peekable();
    digits.peek()?;
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Returns a tool call in the session of this name, whichever owner it has.
pub(super) fn call(target: &Target, session: &str, tool: &str, id: u32) -> Vec<u8> {
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
    );
    request(target, Some(session), &call)
}

/// Returns a request without a body for the session of this name.
pub(super) fn bare(method: &str, target: &Target, session: &str) -> Vec<u8> {
    let Target { path, address, more } = target;
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n{more}mcp-session-id: \
         {session}\r\n\r\n"
    )
    .into_bytes()
}

/// Returns a request for a new session.
pub(super) fn hello(target: &Target) -> Vec<u8> {
    request(target, None, HELLO)
}

/// Returns a POST with this body for the session of this name.
pub(super) fn request(target: &Target, session: Option<&str>, body: &str) -> Vec<u8> {
    let Target { address, path, more } = target;
    let length = body.len();
    let session = session.map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: \
         application/json, text/event-stream\r\nmcp-protocol-version: \
         2025-11-25\r\n{more}{session}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
