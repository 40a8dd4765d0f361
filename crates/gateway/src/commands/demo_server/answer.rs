//! Answers of the demo server. Its only state is the notebook.

use serde_json::{Value, json};
use stayput_wire::{Batch, Code, Era, Message, MessageKind, Version, json::quote, meta};

use super::{notebook::Notebook, tools};

/// State of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// Version from the handshake.
    pub(super) version: Option<Version>,
    pub(super) notebook: Notebook,
}

/// JSON-RPC error of a request.
#[derive(Debug)]
pub(super) struct Refusal {
    code: Code,
    message: String,
    data: Option<Value>,
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Returns the JSON-RPC answer. The id is null if the request has none that can be read.
    pub(super) fn answer(&self, id: Option<&str>) -> String {
        let mut error = json!({ "code": self.code.0, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.unwrap_or("null"))
    }
}

impl Peer {
    /// Answers a message or a batch. Notifications have no answer.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Option<String> {
        let batches = self.version.as_ref().is_some_and(Version::has_batches);
        if !batches || !Batch::is_batch(bytes) {
            return self.answer_one(bytes);
        }
        match Batch::split(bytes) {
            Ok(batch) => {
                let answers = batch.messages().filter_map(|one| self.answer_one(one.as_bytes()));
                let answers: Vec<String> = answers.collect();
                (!answers.is_empty()).then(|| format!("[{}]", answers.join(",")))
            }
            Err(error) => Some(error.answer()),
        }
    }

    fn answer_one(&mut self, bytes: &[u8]) -> Option<String> {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => return Some(error.answer()),
        };
        let MessageKind::Request { id, method, params } = message.kind() else { return None };
        let params = params.map_or(Ok(Value::Null), |params| serde_json::from_str(params.as_str()));
        let result = match params {
            Ok(params) => self.result(method, &params),
            Err(_) => Err(Refusal::new(Code::INVALID_PARAMS, "`params` cannot be read")),
        };
        Some(match result {
            Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_str()),
            Err(refusal) => refusal.answer(Some(id.as_str())),
        })
    }

    fn result(&mut self, method: &str, params: &Value) -> Result<Value, Refusal> {
        if is_modern(params) { self.modern(method, params) } else { self.legacy(method, params) }
    }

    fn legacy(&mut self, method: &str, params: &Value) -> Result<Value, Refusal> {
        match method {
            "ping" => Ok(json!({})),
            "initialize" => self.initialize(params),
            _ if self.version.is_none() => {
                Err(Refusal::new(Code::INVALID_REQUEST, "`initialize` has to come first"))
            }
            _ => self.either(method, params),
        }
    }

    fn either(&mut self, method: &str, params: &Value) -> Result<Value, Refusal> {
        match method {
            "tools/list" if params["cursor"].is_null() => Ok(json!({ "tools": tools::list() })),
            "tools/list" => Err(Refusal::new(Code::INVALID_PARAMS, "there is no such page")),
            "tools/call" => tools::call(params, &mut self.notebook),
            _ => Err(Refusal::new(Code::METHOD_NOT_FOUND, "nobody here knows this method")),
        }
    }

    fn initialize(&mut self, params: &Value) -> Result<Value, Refusal> {
        let requested = params["protocolVersion"].as_str().ok_or_else(|| {
            Refusal::new(Code::INVALID_PARAMS, "`protocolVersion` must be a string")
        })?;
        let requested = Version::from(requested);
        let ours = requested.is_known() && requested.era() == Era::Legacy;
        let version = if ours { requested } else { Version::LATEST_LEGACY };
        self.version = Some(version.clone());
        Ok(json!({
            "protocolVersion": version.as_str(),
            "capabilities": { "tools": {} },
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        }))
    }

    /// Answers a modern request. Such requests have no session, so the notebook is the one of the process or
    /// connection.
    fn modern(&mut self, method: &str, params: &Value) -> Result<Value, Refusal> {
        check_meta(&params[meta::META])?;
        let mut result = match method {
            "server/discover" => {
                let legacy = Version::KNOWN.into_iter().filter(|it| it.era() == Era::Legacy);
                let versions = [Version::V2026_07_28].into_iter().chain(legacy);
                let versions: Vec<String> = versions.map(|it| it.as_str().to_owned()).collect();
                let capabilities = json!({ "tools": {} });
                json!({
                    "supportedVersions": versions,
                    "capabilities": capabilities,
                    "instructions": INSTRUCTIONS,
                })
            }
            _ => self.either(method, params)?,
        };
        result["resultType"] = "complete".into();
        result[meta::META][meta::SERVER_INFO] = server_info();
        if method != "tools/call" {
            result["ttlMs"] = 60_000.into();
            result["cacheScope"] = "public".into();
        }
        Ok(result)
    }
}

const INSTRUCTIONS: &str = "A notebook that belongs to one session. It remembers notes and a count until its process ends.";

/// Whether a request names its protocol version itself.
pub(super) fn is_modern(params: &Value) -> bool {
    !params[meta::META][meta::PROTOCOL_VERSION].is_null()
}

fn check_meta(meta: &Value) -> Result<(), Refusal> {
    let version = &meta[meta::PROTOCOL_VERSION];
    if !version.is_string() || !meta[meta::CLIENT_CAPABILITIES].is_object() {
        let what = "`_meta` must tell the revision and what the client can do";
        return Err(Refusal::new(Code::INVALID_PARAMS, what));
    }
    if version != Version::V2026_07_28.as_str() {
        let data = json!({ "supported": [Version::V2026_07_28.as_str()], "requested": version });
        let refusal = Refusal::new(Code::UNSUPPORTED_VERSION, "this revision is not served here");
        return Err(Refusal { data: Some(data), ..refusal });
    }
    Ok(())
}

fn server_info() -> Value {
    json!({ "name": "stayput-demo", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the answer to a line that was too long.
pub(super) fn too_long(problem: &str) -> String {
    let code = Code::INVALID_REQUEST;
    let message = quote(problem);
    format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":{message}}}}}"#)
}
