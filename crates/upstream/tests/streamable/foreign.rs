//! Answers under the id of another request.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stayput_http::{Proxy, Target};
use stayput_upstream::{CallError, Delivery, EraChoice, Http};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    call, close, links, open, place,
    remote::{begin, end},
    server,
};

/// Names of the tools that were called on each connection.
type Called = Arc<Mutex<Vec<Vec<String>>>>;

/// Server that answers calls of `json` and of `events` under another id, as JSON or as SSE, and all other requests
/// correctly. It also accepts requests in the form for a proxy.
async fn confused(called: Called) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let runtime = tokio::runtime::Handle::current();
    runtime.clone().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = {
                let mut called = called.lock().unwrap();
                called.push(Vec::new());
                called.len() - 1
            };
            runtime.spawn(speak(stream, called.clone(), number));
        }
    });
    url
}

async fn speak(stream: TcpStream, called: Called, number: usize) {
    let mut stream = BufReader::new(stream);
    while let Some(message) = hear(&mut stream).await {
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        let mut id = message["id"].clone();
        if !tool.is_empty() {
            called.lock().unwrap()[number].push(tool.to_owned());
        }
        if matches!(tool, "json" | "events") {
            id = json!(id.as_u64().unwrap() + 1);
        }
        let result = match message["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                "serverInfo": { "name": "confused", "version": "1" } }),
            _ => json!({ "content": [{ "type": "text", "text": "well" }] }),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
        let (status, kind, body) = match tool {
            _ if id.is_null() => ("202 Accepted", "text/plain", String::new()),
            "events" => ("200 OK", "text/event-stream", format!("id: 1\ndata: {answer}\n\n")),
            _ => ("200 OK", "application/json", answer),
        };
        let length = body.len();
        let said = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn hear(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(said) = line.strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(serde_json::from_slice(&body).unwrap_or_default())
}

/// The call fails as one that may have run, and its connection is not reused: directly, and through a proxy that
/// another client uses, too.
#[tokio::test]
async fn answer_under_another_id_closes_its_connection() {
    for proxied in [false, true] {
        let (links, called) = (links(), Called::default());
        let url = confused(called.clone()).await;
        let proxy = match proxied {
            true => Proxy::Url { url: Target::parse(&url).unwrap(), except: String::new() },
            false => Proxy::None,
        };
        let server = server(Http::new(&*url).proxy(proxy), EraChoice::Legacy);
        let link = open(&links, &server, &place()).await;
        for wrong in ["json", "events"] {
            assert_eq!(call(&link, "well", "{}").await, "well");
            let error = end(begin(&link, wrong, "{}").await).await.unwrap_err();
            assert!(matches!(error, CallError::Failed { .. }), "{error:?}");
            assert!(error.to_string().contains("belongs to another request"), "{error}");
            assert_eq!(error.delivery(), Delivery::Unknown);
        }
        assert_eq!(call(&link, "well", "{}").await, "well");
        let called = called.lock().unwrap().clone();
        for tools in &called {
            let wrong = tools.iter().position(|tool| tool != "well");
            assert!(wrong.is_none_or(|at| at + 1 == tools.len()), "{proxied}: {called:?}");
        }
        assert!(called.iter().any(|tools| tools.len() > 1), "{proxied}: {called:?}");
        drop(link);
        close(&links).await;
    }
}
