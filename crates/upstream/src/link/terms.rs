//! What both sides agreed on when the link was opened.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use stayput_wire::{Era, ParamHeaders, Raw, Version, json, meta};

use super::Hello;

/// What both sides agreed on: it holds as long as the link.
pub(crate) struct Terms {
    pub(crate) era: Era,
    pub(crate) version: Version,
    /// What each request of the modern era has to carry, with its value as JSON.
    meta: Vec<(&'static str, Box<str>)>,
    /// The arguments that travel as headers, by tool. Known once the tools were listed.
    marks: RwLock<HashMap<String, Arc<ParamHeaders>>>,
}

impl Terms {
    pub(crate) fn new(version: Version, hello: &Hello) -> Self {
        let era = version.era();
        let meta = match era {
            Era::Modern => vec![
                (meta::PROTOCOL_VERSION, json::quote(version.as_str()).into()),
                (meta::CLIENT_CAPABILITIES, hello.capabilities.clone()),
                (meta::CLIENT_INFO, hello.info.clone()),
            ],
            _ => Vec::new(),
        };
        Self { era, version, meta, marks: RwLock::default() }
    }

    pub(crate) fn meta(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.meta.iter().map(|(key, json)| (*key, &**json))
    }

    pub(crate) fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        self.marks.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    /// Learns from a page of `tools/list` which arguments travel as headers. A tool whose marks break
    /// the rules is left out: the server will refuse it, and says why.
    pub(crate) fn learn_tools(&self, result: &str) {
        let mut known = self.marks.write().unwrap_or_else(PoisonError::into_inner);
        for (name, headers) in marks(result) {
            match headers {
                Some(headers) => known.insert(name, Arc::new(headers)),
                None => known.remove(&name),
            };
        }
    }
}

/// The tools of a page of `tools/list`, each with the arguments that travel as headers, if any do.
pub(crate) fn marks(result: &str) -> Vec<(String, Option<ParamHeaders>)> {
    let tools = Raw::parse(result).ok().and_then(|result| result.find(&["tools"]));
    let tools = tools.into_iter().flat_map(Raw::elements);
    let marked = tools.filter_map(|tool| {
        let name = tool.find(&["name"])?.text()?.into_owned();
        let headers = ParamHeaders::of_schema(tool.find(&["inputSchema"])?).ok();
        Some((name, headers.filter(|headers| !headers.is_empty())))
    });
    marked.collect()
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Terms({})", self.version.as_str())
    }
}

/// What a server says of itself: the result of `initialize` or of `server/discover`, as it was
/// written.
#[derive(Clone, PartialEq, Eq)]
pub struct Greeting {
    version: Version,
    result: Bytes,
}

impl Greeting {
    pub(crate) fn new(version: Version, result: &str) -> Self {
        Self { version, result: Bytes::copy_from_slice(result.as_bytes()) }
    }

    /// The version that is spoken.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The era of that version.
    #[must_use]
    pub fn era(&self) -> Era {
        self.version.era()
    }

    /// The whole result.
    #[must_use]
    pub fn result(&self) -> &str {
        str::from_utf8(&self.result).unwrap_or_default()
    }

    /// The capabilities of the server, as JSON.
    #[must_use]
    pub fn capabilities(&self) -> Option<&str> {
        self.member("capabilities")
    }

    /// Whether the server declares this capability, such as `tools`.
    #[must_use]
    pub fn has(&self, capability: &str) -> bool {
        let found = self.raw().and_then(|raw| raw.find(&["capabilities", capability]));
        found.is_some_and(|found| !found.is_null())
    }

    fn member(&self, name: &str) -> Option<&str> {
        Some(self.raw()?.find(&[name])?.as_str())
    }

    fn raw(&self) -> Option<Raw<'_>> {
        Raw::parse(self.result()).ok()
    }
}

impl fmt::Debug for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Greeting({}, {} bytes)", self.version.as_str(), self.result.len())
    }
}
