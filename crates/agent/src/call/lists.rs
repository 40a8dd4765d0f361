//! Lists of servers: tools, prompts, resources; and the profile of a server.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use stayput_upstream::{CallOptions, PooledLink, Profile};
use stayput_wire::{Raw, json};

use crate::{
    Error, Hub,
    session::{ListKind, ListVersion, Pages, SessionLink, TaskScope},
};

/// Maximum number of pages of one list, for servers that never stop returning cursors.
const MAX_LIST_PAGES: usize = 1_000;

/// Tool of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tool {
    /// Name in calls.
    pub name: String,
    /// Name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Description for the model.
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub input_schema: Value,
    /// JSON Schema of the structured content.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// Annotations of the server, such as `readOnlyHint`.
    #[serde(default)]
    pub annotations: Option<Value>,
}

/// Prompt of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Prompt {
    /// Name in calls.
    pub name: String,
    /// Description for the model.
    #[serde(default)]
    pub description: Option<String>,
    /// Arguments, as in the protocol.
    #[serde(default)]
    pub arguments: Vec<Value>,
}

/// Resource or resource template of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Resource {
    /// URI, or URI template.
    #[serde(alias = "uriTemplate")]
    pub uri: String,
    /// Name of the resource.
    pub name: String,
    /// Description of the resource.
    #[serde(default)]
    pub description: Option<String>,
    /// MIME type of the contents.
    #[serde(default)]
    pub mime_type: Option<String>,
}

impl Hub {
    /// Returns a list as the session sees it; without a session, as every new session will see it. No server is
    /// started if the list is in the cache or in the server's profile.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        scope: Option<Arc<TaskScope>>,
        server: &str,
        list: ListKind,
    ) -> Result<Vec<T>, Error> {
        self.inner.check_open()?;
        self.check_access(server)?;
        let entry = self.entry(server)?;
        let inner = self.inner.clone();
        let pages = inner.thread.in_runtime(self.list_pages(scope, server, list)).await?;
        let is_allowed = |item: &Raw<'_>| {
            let name = item.find(&["name"]).and_then(Raw::text);
            list != ListKind::Tools || name.is_some_and(|name| entry.tools.allows(&name))
        };
        let mut all = Vec::new();
        for page in pages.iter() {
            let page = str::from_utf8(page).ok().and_then(|page| Raw::parse(page).ok());
            let member = page.and_then(|page| page.find(&[list.member()]));
            for item in member.into_iter().flat_map(Raw::elements).filter(is_allowed) {
                all.push(serde_json::from_str(item.as_str()).map_err(Error::invalid)?);
            }
        }
        Ok(all)
    }

    async fn list_pages(
        &self,
        scope: Option<Arc<TaskScope>>,
        name: &str,
        list: ListKind,
    ) -> Result<Pages, Error> {
        let server = self.server(name)?;
        let handlers = scope.as_ref().map(|scope| scope.guard.handlers());
        if let Some(scope) = scope {
            let session_link = SessionLink::new(self, &scope, name).await?;
            let cache = &scope.guard.lists;
            // With headers of its own, a session may see other lists than the session that was asked first.
            let is_own =
                cache.is_cleared() || (server.depends_on_session() && !server.is_process());
            let link = match session_link.find() {
                Some(link) => Some(link),
                None if is_own => Some(session_link.open().await?),
                None => None,
            };
            if let Some(link) = link.filter(|it| is_own || it.lists_changed() > 0) {
                let version = ListVersion::new(&link);
                let key = (session_link.entry.name.clone(), session_link.branch(), list);
                if let Some(pages) = cache.get(&key, version) {
                    return Ok(pages);
                }
                let pages = fetch(name, &link, list).await?;
                cache.insert(key, version, &pages);
                return Ok(pages);
            }
        }
        let failed = |source| self.gateway_failure(name, source);
        let place = self.profile_place();
        let client_info = handlers.as_ref().unwrap_or(&self.inner.handlers).client_info();
        let profile = self.inner.links.profile_for(&server, &place, &client_info).await;
        let profile = profile.map_err(failed)?;
        Ok(profile.pages(list.method()).into())
    }

    /// Returns the profile of a server as text: its handshake and lists. Another process that gets it by
    /// [`Hub::set_profile`] lists the tools without starting the server.
    ///
    /// # Errors
    /// If the server cannot be started or reached.
    pub async fn profile(&self, server: &str) -> Result<String, Error> {
        self.inner.check_open()?;
        self.check_access(server)?;
        let known = self.server(server)?;
        let failed = |source| Error::ServerFailed { server: server.to_owned(), source };
        let place = self.profile_place();
        let fetching = self.inner.links.profile(&known, &place);
        Ok(self.inner.thread.in_runtime(fetching).await.map_err(failed)?.to_text())
    }

    /// Sets the profile of a server to a text from [`Hub::profile`], of this process or another one.
    ///
    /// # Errors
    /// If the text is not a profile.
    pub async fn set_profile(&self, server: &str, profile: &str) -> Result<(), Error> {
        self.inner.check_open()?;
        let known = self.server(server)?;
        let unreadable = || {
            Error::InvalidInput(
                "the profile cannot be read: it must come from `profile` of a hub".to_owned(),
            )
        };
        let profile = Profile::from_text(profile).ok_or_else(unreadable)?;
        let place = self.profile_place();
        self.inner.thread.in_runtime(self.inner.links.set_profile(&known, &place, profile)).await;
        Ok(())
    }
}

/// Fetches all pages of a list.
async fn fetch(server: &str, link: &PooledLink, list: ListKind) -> Result<Pages, Error> {
    let failed = |source| Error::CallFailed { server: server.to_owned(), source };
    let mut pages: Vec<Bytes> = Vec::new();
    let mut cursor = None;
    while pages.len() < MAX_LIST_PAGES {
        let params =
            cursor.map(|cursor: String| format!(r#"{{"cursor":{}}}"#, json::quote(&cursor)));
        let call = link.call(list.method(), params.as_deref(), CallOptions::default()).await;
        let answer = call.map_err(failed)?.answer().await.map_err(failed)?;
        let Some(result) = answer.result() else { break };
        let next = Raw::parse(result).ok().and_then(|it| it.find(&["nextCursor"])?.text());
        cursor = next.map(Cow::into_owned);
        pages.push(Bytes::copy_from_slice(result.as_bytes()));
        if cursor.is_none() {
            break;
        }
    }
    Ok(pages.into())
}
