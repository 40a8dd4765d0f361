//! Cached properties of a server.

use std::{collections::HashMap, fmt, sync::OnceLock, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stayput_wire::{Era, ParamHeaders, Version};
use tokio::time::Instant;

use crate::{
    CallError, InitializeResult, Isolation, Link, Server,
    link::{
        CallOptions,
        list_pages::{MAX_LIST_PAGES, next_page},
        marks,
    },
};

/// Lists of a profile, each with its capability.
const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resources"),
];

/// Transport and era of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerProtocol {
    /// Handshake and session.
    Legacy,
    /// Self-contained requests.
    Modern,
    /// Handshake over HTTP+SSE (2024-11-05).
    Sse,
}

impl ServerProtocol {
    /// Era of this way.
    #[must_use]
    pub fn era(self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy | Self::Sse => Era::Legacy,
        }
    }
}

/// Cached properties of a server: transport and era, `initialize` result, and lists. Learned once, on a
/// temporary link.
#[derive(Clone)]
pub struct Profile {
    protocol: ServerProtocol,
    /// Whether the server speaks the legacy era beside the modern one of this profile.
    dual: bool,
    initialize_result: InitializeResult,
    /// Results of each list, page by page.
    lists: Vec<(&'static str, Vec<Bytes>)>,
    /// Time at which it was learned. `None` if another process learned it.
    learned: Option<Instant>,
    /// Whether the lists were fetched again on a link in use, after they had changed there.
    relearned: bool,
    /// Arguments that are sent as headers, by tool. Computed on first use.
    marks: OnceLock<HashMap<String, ParamHeaders>>,
}

impl PartialEq for Profile {
    /// Compares the content, not the times.
    fn eq(&self, other: &Self) -> bool {
        let Self { protocol, dual, initialize_result, lists, learned: _, relearned: _, marks: _ } =
            self;
        (*protocol, *dual, initialize_result, lists)
            == (other.protocol, other.dual, &other.initialize_result, &other.lists)
    }
}

impl Eq for Profile {}

impl Profile {
    pub(crate) fn new(protocol: ServerProtocol, initialize_result: InitializeResult) -> Self {
        let (lists, marks) = (Vec::new(), OnceLock::new());
        Self {
            protocol,
            dual: false,
            initialize_result,
            lists,
            learned: Some(Instant::now()),
            relearned: false,
            marks,
        }
    }

    /// Returns the profile with current lists. A list that cannot be fetched stays as it was.
    pub(crate) async fn relearned(&self, link: &Link) -> Self {
        let mut profile = Self::new(self.protocol, self.initialize_result.clone());
        profile.dual = self.dual;
        profile.relearned = self.relearned || link.lists_changed() > 0;
        profile.learn_lists(link).await;
        for (method, pages) in &self.lists {
            if profile.pages(method).is_empty() {
                profile.lists.retain(|(list, _)| list != method);
                profile.lists.push((method, pages.clone()));
            }
        }
        profile
    }

    /// Whether the lists were fetched again on a link in use, after they had changed there. Another link may
    /// have different lists.
    #[must_use]
    pub fn is_relearned(&self) -> bool {
        self.relearned
    }

    /// Whether every list that the server declares was fetched.
    pub(crate) fn is_whole(&self) -> bool {
        !LISTS.iter().any(|(method, _)| self.lacks(method))
    }

    /// Whether the server declares this list, but it could not be fetched.
    #[must_use]
    pub fn lacks(&self, method: &str) -> bool {
        let list = LISTS.iter().find(|(list, _)| *list == method);
        list.is_some_and(|(_, it)| self.initialize_result.has(it)) && self.pages(method).is_empty()
    }

    /// Profile with a known transport and era and no other data.
    pub(crate) fn unasked(protocol: ServerProtocol) -> Self {
        Self::new(protocol, InitializeResult::nothing())
    }

    /// Transport and era of the server.
    #[must_use]
    pub fn protocol(&self) -> ServerProtocol {
        self.protocol
    }

    /// Era of the server.
    #[must_use]
    pub fn era(&self) -> Era {
        self.protocol.era()
    }

    /// Whether the server speaks the legacy era beside the modern one of this profile.
    #[must_use]
    pub fn is_dual(&self) -> bool {
        self.dual
    }

    pub(crate) fn set_dual(&mut self, dual: bool) {
        self.dual = dual;
    }

    /// Isolation of links that are opened with this profile. A process that also speaks the legacy era may keep state
    /// for its client, in either era.
    #[must_use]
    pub fn isolation(&self, server: &Server) -> Isolation {
        let keeps_state = self.dual && server.is_process();
        server.isolation(if keeps_state { Era::Legacy } else { self.era() })
    }

    /// Returns the server as clients use it that got this profile (see [`Server::for_client`]).
    #[must_use]
    pub fn server<'s>(&self, server: &'s Server) -> &'s Server {
        if self.dual { server.for_client(Era::Modern) } else { server }
    }

    /// `initialize` or `server/discover` result.
    #[must_use]
    pub fn initialize_result(&self) -> &InitializeResult {
        &self.initialize_result
    }

    /// Results of a list such as `tools/list`, page by page, as the server wrote them. Empty if the server
    /// does not have it.
    #[must_use]
    pub fn pages(&self, method: &str) -> &[Bytes] {
        let found = self.lists.iter().find(|(list, _)| *list == method);
        found.map_or(&[], |(_, pages)| pages)
    }

    /// Age of the profile. `None` if another process learned it.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.learned.map(|learned| learned.elapsed())
    }

    /// Arguments of this tool that are sent as headers, if any. None for a tool with invalid marks.
    #[must_use]
    pub fn param_headers(&self, tool: &str) -> Option<&ParamHeaders> {
        let learn = || {
            let pages = self.pages("tools/list").iter();
            let pages = pages.filter_map(|page| str::from_utf8(page).ok());
            let tools = pages.flat_map(marks);
            tools.filter_map(|(name, headers)| Some((name, headers?))).collect()
        };
        self.marks.get_or_init(learn).get(tool)
    }

    /// Fetches every list that the server declares. A list that fails stays empty and is fetched again on demand.
    pub(crate) async fn learn_lists(&mut self, link: &Link) {
        for (method, capability) in LISTS {
            if self.initialize_result.has(capability)
                && let Ok(pages) = pages(link, method).await
            {
                self.lists.push((method, pages));
            }
        }
    }

    /// Serializes the profile.
    #[must_use]
    pub fn to_text(&self) -> String {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
        let lists = self.lists.iter().map(|(method, pages)| {
            let pages = pages.iter().filter_map(|page| raw(str::from_utf8(page).ok()?));
            ((*method).to_owned(), pages.collect())
        });
        let kept = StoredProfile {
            protocol: self.protocol,
            dual: self.dual,
            version: self.initialize_result.version().as_str().to_owned(),
            initialize_result: raw(self.initialize_result.result()),
            lists: lists.collect(),
        };
        // Cannot fail: strings and validated JSON.
        serde_json::to_string(&kept).unwrap_or_default()
    }

    /// Deserializes a profile. `None` if the text is not from [`Profile::to_text`]; the profile can then be
    /// learned again.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let kept: StoredProfile = serde_json::from_str(text).ok()?;
        let version = Version::from(&*kept.version);
        let initialize_result = InitializeResult::new(version, kept.initialize_result?.get());
        let lists = kept.lists.into_iter().filter_map(|(method, pages)| {
            let (method, _) = LISTS.iter().find(|(list, _)| *list == method)?;
            let pages = pages.iter().map(|page| Bytes::copy_from_slice(page.get().as_bytes()));
            Some((*method, pages.collect()))
        });
        let lists = lists.collect();
        Some(Self {
            protocol: kept.protocol,
            dual: kept.dual,
            initialize_result,
            lists,
            learned: None,
            relearned: false,
            marks: OnceLock::new(),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct StoredProfile {
    #[serde(rename = "way")]
    protocol: ServerProtocol,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dual: bool,
    version: String,
    #[serde(rename = "greeting")]
    initialize_result: Option<Box<RawValue>>,
    lists: Vec<(String, Vec<Box<RawValue>>)>,
}

/// Fetches all pages of a list.
async fn pages(link: &Link, method: &str) -> Result<Vec<Bytes>, CallError> {
    let mut pages = Vec::new();
    let mut params = "{}".to_owned();
    while pages.len() < MAX_LIST_PAGES {
        let call = link.call(method, Some(&params), CallOptions::default()).await?;
        let answer = call.answer().await?;
        let Some(result) = answer.result() else { break };
        if method == "tools/list" {
            link.learn_tools(result);
        }
        pages.push(Bytes::copy_from_slice(result.as_bytes()));
        let Some(next) = next_page(result) else { break };
        params = next;
    }
    Ok(pages)
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Profile({:?}, {:?}, {} lists)",
            self.protocol,
            self.initialize_result,
            self.lists.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_survives_serialization() {
        let initialize_result = InitializeResult::new(
            Version::V2025_06_18,
            r#"{"capabilities":{"tools":{}},"n":1.10}"#,
        );
        let mut profile = Profile::new(ServerProtocol::Legacy, initialize_result);
        profile.lists.push(("tools/list", vec![Bytes::from_static(br#"{"tools":[ ]}"#)]));
        assert_eq!(Profile::from_text(&profile.to_text()), Some(profile.clone()));
        assert!(
            profile.initialize_result().has("tools") && !profile.initialize_result().has("prompts")
        );
        assert_eq!(Profile::from_text("{}"), None);
        assert!(
            profile.age().is_some()
                && Profile::from_text(&profile.to_text()).unwrap().age().is_none()
        );
    }

    #[test]
    fn param_headers_are_found_by_tool() {
        let mut profile =
            Profile::new(ServerProtocol::Modern, InitializeResult::new(Version::LATEST, "{}"));
        let page = r#"{"tools":[{"name":"a","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}},
            {"name":"b","inputSchema":{"properties":{"r":{"type":"string"}}}},
            {"name":"c","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}}]}"#;
        profile.lists.push(("tools/list", vec![Bytes::from_static(page.as_bytes())]));
        assert!(profile.param_headers("a").is_some());
        assert!(["b", "c", "d"].iter().all(|tool| profile.param_headers(tool).is_none()));
    }
}
