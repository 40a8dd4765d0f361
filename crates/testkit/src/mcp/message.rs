//! Received message.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use stayput_wire::{Code, Era, meta};

/// Request, notification or answer. Id and params are kept as written.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming {
    pub(super) id: Option<Box<RawValue>>,
    pub(super) method: Option<String>,
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(skip)]
    parsed: Value,
}

/// Error answer.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) data: Value,
    /// HTTP status, if it does not follow from the code.
    pub(super) status: Option<u16>,
}

impl Incoming {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let mut message: Self = match serde_json::from_slice::<Value>(text) {
            Err(error) => return Err(Refusal::new(Code::PARSE_ERROR, error.to_string())),
            Ok(_) => serde_json::from_slice(text)
                .map_err(|error| Refusal::new(Code::INVALID_REQUEST, error.to_string()))?,
        };
        let params = message.params.as_deref().map_or("null", RawValue::get);
        message.parsed = serde_json::from_str(params).unwrap_or_default();
        Ok(message)
    }

    pub(super) fn method(&self) -> &str {
        self.method.as_deref().unwrap_or_default()
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref().map(RawValue::get)
    }

    pub(super) fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some()
    }

    /// Returns the result or error in an answer to one of our own requests.
    pub(super) fn answer(&self) -> Option<Result<Value, Value>> {
        match (&self.method, &self.result, &self.error) {
            (None, _, Some(error)) => Some(Err(error.clone())),
            (None, Some(result), None) => Some(Ok(result.clone())),
            _ => None,
        }
    }

    pub(super) fn params(&self) -> &Value {
        &self.parsed
    }

    /// Returns the arguments of a call byte for byte.
    pub(super) fn raw_arguments(&self) -> &str {
        let params = self.params.as_deref().map_or("{}", RawValue::get);
        stayput_wire::span::find(params, &["arguments"]).map_or("{}", |at| &params[at])
    }

    pub(super) fn meta(&self, key: &str) -> &Value {
        &self.parsed[meta::META][key]
    }

    pub(super) fn tool(&self) -> Option<&str> {
        self.parsed["name"].as_str().filter(|_| self.method() == "tools/call")
    }

    /// Returns the era of the message: modern requests have a version in `_meta`, or a modern method.
    pub(super) fn era(&self) -> Era {
        let says_so = !self.meta(meta::PROTOCOL_VERSION).is_null();
        let modern = ["server/discover", "subscriptions/listen"].contains(&self.method());
        if says_so || modern { Era::Modern } else { Era::Legacy }
    }
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null, status: None }
    }

    pub(super) fn with_data(self, data: Value) -> Self {
        Self { data, ..self }
    }

    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// Returns the whole error message for the request with this id.
    pub(super) fn to_text(&self, id: Option<&str>) -> String {
        let mut error = json!({ "code": self.code.0, "message": self.message });
        if !self.data.is_null() {
            error["data"] = self.data.clone();
        }
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.unwrap_or("null"))
    }
}

/// Returns the whole answer to the request with this id.
pub(super) fn answer_text(id: &str, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// Returns the whole message of a notification.
pub(super) fn notification_text(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}
