//! Validation of modern requests: required fields, and headers that repeat fields of the body.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, StatusCode};
use stayput_wire::{Code, Era, Message, ParamHeaders, Raw, Version, header as mcp, json, meta};

use crate::{
    identify::RequestContext,
    reply::{ReplyText, accepts, status_of},
};

/// Request that fails validation.
#[derive(Debug)]
pub(crate) struct InvalidRequest {
    status: StatusCode,
    code: Code,
    sentence: String,
    /// Error data, as JSON.
    data: Option<String>,
}

impl InvalidRequest {
    /// Creates an error with the HTTP status of its code.
    pub(crate) fn new(code: Code, sentence: &str) -> Self {
        let (sentence, data) = (sentence.to_owned(), None);
        Self { status: status_of(code), code, sentence, data }
    }

    fn bad(code: Code, sentence: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, ..Self::new(code, sentence) }
    }

    fn mismatch(header: &str, what: &str) -> Self {
        Self::new(Code::HEADER_MISMATCH, &format!("the header {header} {what}"))
    }

    /// Builds the answer to the request with this id.
    pub(crate) fn answer(self, id: &str) -> ReplyText {
        let data = self.data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
        let (code, message) = (self.code.0, json::quote(&self.sentence));
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#
        );
        ReplyText { status: self.status, ..ReplyText::new(text) }
    }
}

/// Methods that the modern era removed. Legacy servers still have them, so the gateway refuses them.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Validates a request by the rules of its era.
pub(crate) fn validate(context: &RequestContext<'_>) -> Result<(), InvalidRequest> {
    match (context.era, context.connection) {
        (Era::Legacy, _) => return Ok(()),
        (Era::Modern, None) => request(context.headers, context.message)?,
        // A stdio client has no headers.
        (Era::Modern, Some(_)) => check_version(&required(context.message)?)?,
    }
    let method = context.request_ref().method;
    match REMOVED.contains(&method) {
        true => {
            let sentence = format!("this version of the protocol has no `{method}`");
            Err(InvalidRequest::new(Code::METHOD_NOT_FOUND, &sentence))
        }
        false => Ok(()),
    }
}

/// Validates the headers of a request, its required fields, and that both agree.
fn request(headers: &HeaderMap, message: &Message<'_>) -> Result<(), InvalidRequest> {
    if ![mcp::JSON, mcp::EVENT_STREAM].iter().all(|kind| accepts(headers, kind)) {
        let sentence = "Accept has to list both application/json and text/event-stream";
        let error = InvalidRequest::new(Code::INVALID_REQUEST, sentence);
        return Err(InvalidRequest { status: StatusCode::NOT_ACCEPTABLE, ..error });
    }
    let version = required(message)?;
    same(headers, mcp::PROTOCOL_VERSION, Some(&version))?;
    check_version(&version)?;
    same(headers, mcp::METHOD, message.method())?;
    let Some(source) = message.method().and_then(mcp::name_member) else { return Ok(()) };
    let name = message.params().map(|params| params.find_unique(&[source]));
    let name = name.transpose().map_err(|_| twice(source))?.flatten().and_then(Raw::text);
    same(headers, mcp::NAME, name.as_deref())
}

/// Checks that a version is known and of the modern era.
fn check_version(version: &str) -> Result<(), InvalidRequest> {
    let candidate = Version::from(version);
    match candidate.is_known() && candidate.era() == Era::Modern {
        true => Ok(()),
        false => Err(unsupported_version(version)),
    }
}

/// Checks that tool arguments sent as headers equal those in the body.
pub(crate) fn params(
    headers: &HeaderMap,
    marks: &ParamHeaders,
    params: Option<Raw<'_>>,
) -> Result<(), InvalidRequest> {
    let arguments = params.map(|params| params.find_unique(&["arguments"])).transpose();
    let arguments = arguments.map_err(|_| twice("arguments"))?.flatten();
    let checked = marks.check(arguments, |name| headers.get(name).map(HeaderValue::as_bytes));
    checked.map_err(|wrong| InvalidRequest::new(Code::HEADER_MISMATCH, &wrong.to_string()))
}

/// Returns the protocol version of a request whose `_meta` has all required fields.
fn required<'a>(message: &Message<'a>) -> Result<Cow<'a, str>, InvalidRequest> {
    let missing = |key: &str, what: &str| {
        InvalidRequest::bad(Code::INVALID_PARAMS, &format!("`_meta` needs `{key}`, {what}"))
    };
    let meta = message.params().map(|params| params.find_unique(&[meta::META])).transpose();
    let meta = meta.map_err(|_| twice(meta::META))?.flatten();
    let find = |key: &str| match meta.map(|meta| meta.find_unique(&[key])).transpose() {
        Ok(found) => Ok(found.flatten()),
        Err(_) => Err(twice(key)),
    };
    let version = find(meta::PROTOCOL_VERSION)?.and_then(Raw::text);
    let version = version.ok_or_else(|| {
        missing(meta::PROTOCOL_VERSION, "a string: the version that the request speaks")
    })?;
    let capabilities = find(meta::CLIENT_CAPABILITIES)?.filter(|it| it.is_object());
    match capabilities {
        Some(_) => Ok(version),
        None => Err(missing(meta::CLIENT_CAPABILITIES, "an object: what the client can do")),
    }
}

/// Error for a duplicate field. The gateway and the server could each read another of its values.
fn twice(name: &str) -> InvalidRequest {
    InvalidRequest::bad(Code::INVALID_PARAMS, &format!("`{name}` stands there twice; send it once"))
}

/// Checks that a header equals a field of the body. If the field is absent, the header must be absent, too.
fn same(headers: &HeaderMap, name: &'static str, body: Option<&str>) -> Result<(), InvalidRequest> {
    let mut all = headers.get_all(name).iter();
    let value = match (all.next(), all.next()) {
        (None, _) => None,
        (Some(value), None) => Some(mcp::decode(value.as_bytes())),
        (Some(_), Some(_)) => return Err(InvalidRequest::mismatch(name, "stands there twice")),
    };
    let value =
        value.transpose().map_err(|error| InvalidRequest::mismatch(name, &error.to_string()))?;
    match (value, body) {
        (None, Some(_)) => Err(InvalidRequest::mismatch(name, "is missing")),
        (value, body) if value.as_deref() == body => Ok(()),
        _ => Err(InvalidRequest::mismatch(name, "does not say what the body says")),
    }
}

fn unsupported_version(requested: &str) -> InvalidRequest {
    let sentence = "this version of the protocol is not spoken here; choose one that is";
    let supported = versions();
    let data = format!(r#"{{"supported":[{supported}],"requested":{}}}"#, json::quote(requested));
    InvalidRequest { data: Some(data), ..InvalidRequest::new(Code::UNSUPPORTED_VERSION, sentence) }
}

/// Returns all supported versions, the newest first, as members of a JSON array.
pub(crate) fn versions() -> String {
    let all: Vec<_> = Version::KNOWN.iter().rev().map(|it| json::quote(it.as_str())).collect();
    all.join(",")
}
