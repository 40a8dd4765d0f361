//! Result of the version negotiation of a link.

use http::HeaderValue;
use stayput_sync::RwLock;
use stayput_wire::{Era, ParamHeaders, Raw, Version, json, meta};
use std::{collections::HashMap, fmt, sync::Arc};

use super::ClientInfo;

/// Negotiated protocol version and its data. It is fixed for the lifetime of the link.
pub(crate) struct NegotiatedProtocol {
    pub(crate) version: Version,
    /// `None` on a legacy link, which most links are.
    modern: Option<Box<Modern>>,
}

/// Data of a link of the modern era.
struct Modern {
    /// `_meta` keys of each request, with their values as JSON.
    meta: [(&'static str, Arc<str>); 3],
    /// Arguments that are sent as headers, by tool. Known after the tools were listed.
    marks: RwLock<HashMap<String, Arc<ParamHeaders>>>,
}

impl NegotiatedProtocol {
    pub(crate) fn new(version: Version, client_info: &ClientInfo) -> Self {
        let modern = (version.era() == Era::Modern).then(|| {
            let meta = [
                (meta::PROTOCOL_VERSION, json::quote(version.as_str()).into()),
                (meta::CLIENT_CAPABILITIES, client_info.capabilities.clone()),
                (meta::CLIENT_INFO, client_info.info.clone()),
            ];
            Box::new(Modern { meta, marks: RwLock::default() })
        });
        Self { version, modern }
    }

    pub(crate) fn era(&self) -> Era {
        if self.modern.is_some() { Era::Modern } else { Era::Legacy }
    }

    /// Version as a header value.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        match self.version.known_name() {
            Some(name) => Some(HeaderValue::from_static(name)),
            None => HeaderValue::from_str(self.version.as_str()).ok(),
        }
    }

    pub(crate) fn meta(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let meta = self.modern.iter().flat_map(|modern| &modern.meta);
        meta.map(|(key, json)| (*key, &**json))
    }

    pub(crate) fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let marks = &self.modern.as_ref()?.marks;
        marks.read().get(tool).cloned()
    }

    /// Records from a page of `tools/list` which arguments are sent as headers. A tool with invalid marks is
    /// skipped: the server will refuse it and say why.
    pub(crate) fn learn_tools(&self, result: &str) {
        let Some(modern) = &self.modern else { return };
        let mut known = modern.marks.write();
        for (name, headers) in marks(result) {
            match headers {
                Some(headers) => known.insert(name, Arc::new(headers)),
                None => known.remove(&name),
            };
        }
    }
}

/// Returns the tools of a `tools/list` page, each with the arguments that are sent as headers, if any.
pub(crate) fn marks(result: &str) -> Vec<(String, Option<ParamHeaders>)> {
    let tools = Raw::parse(result).ok().and_then(|result| result.find(&["tools"]));
    let tools = tools.into_iter().flat_map(Raw::elements);
    let marked = tools.filter_map(|tool| {
        let name = tool.find(&["name"])?.text()?.into_owned();
        let headers = ParamHeaders::from_schema(tool.find(&["inputSchema"])?).ok();
        Some((name, headers.filter(|headers| !headers.is_empty())))
    });
    marked.collect()
}

impl fmt::Debug for NegotiatedProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NegotiatedProtocol({})", self.version.as_str())
    }
}
