//! What servers offer: tools, prompts, resources.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use stayput_core::Generation;
use stayput_upstream::{CallOptions, Held, Identity, Profile};
use stayput_wire::{Raw, json};

use crate::{Error, Hub, ambient::Ambient, visit::Visit};

/// The most pages of one list: a server that gives cursors for ever is stopped.
const PAGES: usize = 1_000;

/// A tool of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tool {
    /// What it is called by.
    pub name: String,
    /// What people call it.
    #[serde(default)]
    pub title: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// What it takes, a JSON Schema.
    #[serde(default)]
    pub input_schema: Value,
    /// What its structured content looks like, a JSON Schema.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// What its server says of it, such as `readOnlyHint`.
    #[serde(default)]
    pub annotations: Option<Value>,
}

/// A prompt of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Prompt {
    /// What it is called by.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// What it takes, as the protocol has it.
    #[serde(default)]
    pub arguments: Vec<Value>,
}

/// A resource of a server, or a template of some.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Resource {
    /// Where it is, or where those of a template are.
    #[serde(alias = "uriTemplate")]
    pub uri: String,
    /// What it is called.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub description: Option<String>,
    /// What kind of bytes it holds.
    #[serde(default)]
    pub mime_type: Option<String>,
}

/// One of the lists that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Templates of resources.
    Templates,
}

impl List {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }
}

type Pages = Arc<[Bytes]>;

/// What a list was asked for on: the configuration of the server, which link to it, and how many changes it had
/// told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    configuration: Identity,
    generation: Generation,
    changes: u64,
}

impl At {
    fn of(link: &Held) -> Self {
        let configuration = link.key().configuration();
        Self { configuration, generation: link.generation(), changes: link.lists_changed() }
    }
}

/// The lists that a session asked its servers for, by server and part of the session.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    lists: HashMap<(Arc<str>, u64, List), (At, Pages)>,
    /// What the profile says is not believed any more.
    cleared: bool,
}

impl Asked {
    pub(crate) fn clear(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.lists.clear();
        known.cleared = true;
    }

    fn get(&self, key: &(Arc<str>, u64, List), now: At) -> Option<Pages> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, pages) = known.lists.get(key)?;
        (*at == now).then(|| pages.clone())
    }

    fn put(&self, key: (Arc<str>, u64, List), at: At, pages: &Pages) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.lists.insert(key, (at, pages.clone()));
    }

    fn is_cleared(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cleared
    }
}

impl Hub {
    /// What a list holds, as the session of the task knows it; without one, as every new session will see
    /// it. No server is started to list what is known already.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        ambient: Option<Arc<Ambient>>,
        server: &str,
        list: List,
    ) -> Result<Vec<T>, Error> {
        self.inner.check_open()?;
        let entry = self.entry(server)?;
        let home = self.inner.clone();
        let pages = home.home.at_home(self.pages(ambient, server, list)).await?;
        let shown = |item: &Raw<'_>| {
            let name = item.find(&["name"]).and_then(Raw::text);
            list != List::Tools || name.is_some_and(|name| entry.tools.allows(&name))
        };
        let mut all = Vec::new();
        for page in pages.iter() {
            let page = str::from_utf8(page).ok().and_then(|page| Raw::parse(page).ok());
            let member = page.and_then(|page| page.find(&[list.member()]));
            for item in member.into_iter().flat_map(Raw::elements).filter(shown) {
                all.push(serde_json::from_str(item.as_str()).map_err(Error::invalid)?);
            }
        }
        Ok(all)
    }

    async fn pages(
        &self,
        ambient: Option<Arc<Ambient>>,
        name: &str,
        list: List,
    ) -> Result<Pages, Error> {
        let server = self.server(name)?;
        let handlers = ambient.as_ref().map(|ambient| ambient.hold.handlers());
        if let Some(ambient) = ambient {
            let visit = Visit::of(self, &ambient, name).await?;
            let asked = &ambient.hold.asked;
            let link = match visit.found() {
                Some(link) => Some(link),
                None if asked.is_cleared() => Some(visit.link().await?),
                None => None,
            };
            if let Some(link) = link.filter(|it| it.lists_changed() > 0 || asked.is_cleared()) {
                let (at, key) = (At::of(&link), (visit.entry.name.clone(), visit.branch(), list));
                if let Some(pages) = asked.get(&key, at) {
                    return Ok(pages);
                }
                let pages = ask(name, &link, list).await?;
                asked.put(key, at, &pages);
                return Ok(pages);
            }
        }
        let failed = |source| Error::ServerFailed { server: name.to_owned(), source };
        let place = self.nowhere();
        let hello = handlers.as_ref().unwrap_or(&self.inner.handlers).hello();
        let profile = self.inner.links.profile_for(&server, &place, &hello).await;
        let profile = profile.map_err(failed)?;
        Ok(profile.pages(list.method()).into())
    }

    /// What is known of a server, as text: with it another process lists its tools without asking it, see
    /// [`Hub::remember`].
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn profile(&self, server: &str) -> Result<String, Error> {
        let known = self.server(server)?;
        let failed = |source| Error::ServerFailed { server: server.to_owned(), source };
        let place = self.nowhere();
        let asking = self.inner.links.profile(&known, &place);
        Ok(self.inner.home.at_home(asking).await.map_err(failed)?.to_text())
    }

    /// Believes what [`Hub::profile`] said, here or in another process.
    ///
    /// # Errors
    /// If it is no such text.
    pub async fn remember(&self, server: &str, profile: &str) -> Result<(), Error> {
        let known = self.server(server)?;
        let unreadable = || Error::Invalid("this is not what `profile` gave".to_owned());
        let profile = Profile::from_text(profile).ok_or_else(unreadable)?;
        let place = self.nowhere();
        self.inner.home.at_home(self.inner.links.set_profile(&known, &place, profile)).await;
        Ok(())
    }
}

/// All pages of a list.
async fn ask(server: &str, link: &Held, list: List) -> Result<Pages, Error> {
    let failed = |source| Error::CallFailed { server: server.to_owned(), source };
    let mut pages: Vec<Bytes> = Vec::new();
    let mut cursor = None;
    while pages.len() < PAGES {
        let params =
            cursor.map(|cursor: String| format!(r#"{{"cursor":{}}}"#, json::quote(&cursor)));
        let call = link.call(list.method(), params.as_deref(), CallOptions::default()).await;
        let answer = call.map_err(failed)?.answer().await.map_err(failed)?;
        let Some(result) = answer.result() else { break };
        let next = Raw::parse(result).ok().and_then(|it| it.find(&["nextCursor"])?.text());
        cursor = next.map(std::borrow::Cow::into_owned);
        pages.push(Bytes::copy_from_slice(result.as_bytes()));
        if cursor.is_none() {
            break;
        }
    }
    Ok(pages.into())
}
