//! Legacy MCP server over HTTP that writes any bytes to its connections.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
};

use serde_json::{Value, json};

/// Request and the number of its connection.
pub(super) struct Heard {
    pub(super) connection: usize,
    head: String,
    pub(super) message: Value,
}

impl Heard {
    /// Returns a header, or an empty string.
    pub(super) fn header(&self, name: &str) -> &str {
        let line = |line: &&str| line.split(':').next().unwrap().eq_ignore_ascii_case(name);
        let found = self.head.lines().find(line);
        found.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    }

    pub(super) fn tool(&self) -> &str {
        self.message["params"]["name"].as_str().unwrap_or_default()
    }
}

/// Serves until the test ends, and returns the URL. `call` answers tool calls, and returns whether the connection
/// stays open.
pub(super) fn serve(
    tools: &[&str],
    call: impl Fn(&Heard, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> String {
    let tools: Vec<Value> = tools
        .iter()
        .map(|name| json!({ "name": name, "inputSchema": { "type": "object", "properties": {} } }))
        .collect();
    let (tools, call) = (Arc::new(json!({ "tools": tools })), Arc::new(call));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let (tools, call) = (tools.clone(), call.clone());
            std::thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some(heard) = read(&mut reader, connection) {
                    if !react(&heard, &mut stream, &tools, &*call) {
                        return;
                    }
                }
            });
        }
    });
    url
}

fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Heard> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut heard = Heard { connection, head, message: Value::Null };
    let mut body = vec![0; heard.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    heard.message = serde_json::from_slice(&body).unwrap_or_default();
    Some(heard)
}

fn react(
    heard: &Heard,
    stream: &mut TcpStream,
    tools: &Value,
    call: &dyn Fn(&Heard, &mut TcpStream) -> bool,
) -> bool {
    let message = &heard.message;
    let result = match message["method"].as_str() {
        None => return write(stream, "405 Method Not Allowed", "text/plain", ""),
        Some(_) if message["id"].is_null() => {
            return write(stream, "202 Accepted", "text/plain", "");
        }
        Some("initialize") => json!({ "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} }, "serverInfo": { "name": "raw", "version": "1" } }),
        Some("tools/list") => tools.clone(),
        Some("tools/call") => return call(heard, stream),
        Some(_) => {
            let error = json!({ "code": -32601, "message": "there is no such method" });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return write(stream, "200 OK", "application/json", &answer.to_string());
        }
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    write(stream, "200 OK", "application/json", &answer.to_string())
}

/// Returns the answer of a tool.
pub(super) fn text(id: &Value, text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } })
}

/// Writes a response. Returns whether that succeeded.
pub(super) fn write(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> bool {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).is_ok()
}
