//! Operator of a gateway: requests to its admin API.
#![allow(dead_code, reason = "what one file does not need another one does")]

use std::path::Path;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use stayput_testkit::mcp::send;
pub(crate) use stayput_testkit::until_some;
use tokio::net::UnixStream;

use crate::{
    document,
    support::{Gateway, LONG},
};

/// Answer of the gateway.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn sentence(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Sends a request over the Unix socket in a data folder, to any path.
pub(crate) async fn over_socket(data: &Path, method: Method, path: &str) -> Said {
    let stream = UnixStream::connect(data.join("socket")).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::runtime::Handle::current().spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "stayput");
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let asked = sender.send_request(request);
    let answer = tokio::time::timeout(LONG, asked).await.unwrap().unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    connection.abort();
    Said { status, body }
}

/// Sends a request to the admin API over the socket. Checks every answer against the document.
pub(crate) async fn ask(gateway: &Gateway, method: Method, path: &str) -> Said {
    let said = over_socket(&gateway.folder.path().join("store.db.d"), method.clone(), path).await;
    document::check(method.as_str(), path, said.status, &said.body);
    said
}

/// Sends a request to the admin API over TCP with this token.
pub(crate) async fn ask_with(
    gateway: &Gateway,
    token: Option<&str>,
    method: Method,
    path: &str,
) -> Said {
    let url = format!("{}{path}", gateway.url);
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|it| ("authorization", &**it)).collect();
    let sent = send(method.clone(), &url, &headers, "");
    let answer = tokio::time::timeout(LONG, sent).await.unwrap().unwrap();
    let status = answer.status.as_u16();
    let body = answer.bytes().await.unwrap();
    if status != 401 {
        document::check(method.as_str(), path, status, &body);
    }
    Said { status, body }
}

/// Returns the document at a path of the admin API.
pub(crate) async fn get(gateway: &Gateway, path: &str) -> Value {
    let said = ask(gateway, Method::GET, path).await;
    assert_eq!(said.status, 200, "{said:?}");
    said.json()
}

/// Returns the sessions that a query finds.
pub(crate) async fn sessions(gateway: &Gateway, query: &str) -> Vec<Value> {
    let page = get(gateway, &format!("/admin/sessions?{query}")).await;
    page["sessions"].as_array().unwrap().clone()
}
