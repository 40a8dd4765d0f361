//! Checks of request headers.

use http::{HeaderMap, header::ACCEPT, header::CONTENT_TYPE, header::ORIGIN};
use stayput_wire::{Code, Era, ParamHeaders, Raw, Version, header, meta};

use super::super::{
    message::{Incoming, Refusal},
    options::Options,
    tools,
};

/// Returns a header if it is present and text.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns whether the request comes from no web page, or from one of this machine.
pub(super) fn origin_is_local(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let host = origin.to_str().unwrap_or_default();
    let host = host.trim_start_matches("http://").trim_start_matches("https://");
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

/// Returns whether the client accepts all of these types.
pub(super) fn accepts(headers: &HeaderMap, types: &[&str]) -> bool {
    let said: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
    let said = said.join(",");
    types.iter().all(|wanted| {
        said.split(',').any(|one| {
            let one = one.split(';').next().unwrap_or_default().trim();
            one == *wanted || one == "*/*"
        })
    })
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let said = text(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim() == header::JSON
}

/// Legacy: returns whether the version header, if any, names a supported revision.
pub(super) fn legacy_version_is_known(options: &Options, headers: &HeaderMap) -> bool {
    match text(headers, header::PROTOCOL_VERSION) {
        None => true,
        Some(said) => options.legacy_versions().any(|version| version.as_str() == said),
    }
}

/// Returns the era of a POST: by its message, or else by its version header.
pub(super) fn era(message: &Incoming, headers: &HeaderMap) -> Era {
    let said = text(headers, header::PROTOCOL_VERSION).map(|said| Version::from(said).era());
    if message.era() == Era::Modern { Era::Modern } else { said.unwrap_or(Era::Legacy) }
}

/// Modern: checks that the headers of a request repeat its body.
pub(super) fn mirror(message: &Incoming, headers: &HeaderMap) -> Result<(), Refusal> {
    let version = message.meta(meta::PROTOCOL_VERSION).as_str();
    same(headers, header::PROTOCOL_VERSION, version)?;
    same(headers, header::METHOD, Some(message.method()))?;
    if let Some(source) = header::name_member(message.method()) {
        same(headers, header::NAME, message.params()[source].as_str())?;
    }
    params(message, headers)
}

fn same(headers: &HeaderMap, name: &str, body: Option<&str>) -> Result<(), Refusal> {
    let said = headers.get(name).and_then(|value| header::decode(value.as_bytes()).ok());
    if said.is_some() && said.as_deref() == body { Ok(()) } else { Err(mismatch(name)) }
}

fn params(message: &Incoming, headers: &HeaderMap) -> Result<(), Refusal> {
    let tool =
        tools::list().into_iter().find(|tool| Some(tool["name"].as_str()) == Some(message.tool()));
    let Some(tool) = tool else { return Ok(()) };
    let schema = tool["inputSchema"].to_string();
    let marks = ParamHeaders::from_schema(Raw::parse(&schema).unwrap()).unwrap();
    let arguments = Raw::parse(message.raw_arguments()).ok();
    marks
        .check(arguments, |name| headers.get(name).map(http::HeaderValue::as_bytes))
        .map_err(|wrong| mismatch(wrong.header()))
}

fn mismatch(name: &str) -> Refusal {
    let what = format!("the header {name} is missing or does not say what the body says");
    Refusal::new(Code::HEADER_MISMATCH, what).with_status(400)
}
