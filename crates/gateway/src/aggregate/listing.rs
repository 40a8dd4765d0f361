//! Lists of all servers as one.

use std::{borrow::Cow, sync::Arc, time::Duration};

use stayput_upstream::{CallOptions, Held, Place, Server};
use stayput_wire::{Message, Raw, json};

use super::{
    Refusal,
    all::all,
    cursor::Cursor,
    index::Indexed,
    list::{self, List, Page, Part, TOOLS},
    roll::{Present, Roll},
};
use crate::{connection::Connection, forward, house::House, lists};

/// About how long a page may be. Many clients read the first one only, so all should fit on it.
const PAGE: usize = 1 << 20;

/// How long servers whose lists changed are waited for, each for all its pages.
const PATIENCE: Duration = Duration::from_secs(4);

/// The most pages of one server that are asked for at once.
const PAGES: usize = 100;

/// A list that a client of all servers asked for.
pub(super) struct Listing<'a> {
    pub(super) house: &'a Arc<House>,
    pub(super) connection: &'a Arc<Connection>,
    pub(super) list: &'static List,
}

impl Listing<'_> {
    /// The page that a request asks for, as a result.
    pub(super) async fn page(&self, message: &Message<'_>) -> Result<String, Refusal> {
        let cursor = self.cursor(message)?;
        let place = self.connection.place();
        let roll = Roll::call(self.house, &place).await;
        let parts = roll.present.iter().filter_map(|present| {
            let inner = match &cursor {
                Some(cursor) if present.name < cursor.server => return None,
                Some(cursor) if present.name == cursor.server => cursor.inner.clone(),
                _ => None,
            };
            let has = present.profile.greeting().has(self.list.capability);
            has.then(|| self.part(present, &place, inner))
        });
        let parts = all(parts).await;
        let indexes = self.indexes(&roll);
        let show = |server: &str, entry| self.show(&indexes, server, entry);
        let merged = list::merge(self.list, &parts, PAGE, show);
        let mut result = format!(r#"{{"{}":[{}]"#, self.list.member, merged.entries);
        if let Some(next) = merged.next {
            let next = next.seal(&self.house.seal, &self.connection.owner, self.list.method);
            let next =
                next.ok_or_else(|| Refusal::internal("this machine cannot seal a cursor"))?;
            result.push_str(&format!(r#","nextCursor":{}"#, json::quote(&next)));
        }
        result.push('}');
        Ok(result)
    }

    fn cursor(&self, message: &Message<'_>) -> Result<Option<Cursor>, Refusal> {
        let said = message.params().and_then(|params| params.find(&["cursor"]));
        let Some(said) = said.filter(|said| !said.is_null()) else { return Ok(None) };
        let open = |said: Cow<'_, str>| {
            Cursor::open(&self.house.seal, &self.connection.owner, self.list.method, &said)
        };
        said.text().and_then(open).map(Some).ok_or_else(|| {
            let method = self.list.method;
            Refusal::invalid(format!(
                "this cursor was not given out for `{method}`; ask again without one for the first page"
            ))
        })
    }

    /// What each server lists as far as it is known, in their order.
    fn indexes(&self, roll: &Roll) -> Vec<(String, Indexed)> {
        if self.list.is_named() {
            return Vec::new();
        }
        let (house, connection) = (self.house, self.connection);
        let all = roll
            .present
            .iter()
            .map(|it| (it.name.clone(), house.aggregate.indexed(connection, it, self.list)));
        all.collect()
    }

    /// An entry as it is shown. What is denied is not, nor what leads to another server.
    fn show<'a>(
        &self,
        indexes: &[(String, Indexed)],
        server: &str,
        entry: Raw<'a>,
    ) -> Option<Cow<'a, str>> {
        let called = self.list.called(entry)?;
        let denied = || self.house.tools.get(server).is_some_and(|tools| !tools.allows(&called));
        if *self.list == TOOLS && denied() {
            return None;
        }
        let mut earlier = indexes.iter().take_while(|(name, _)| name != server);
        if earlier.any(|(_, index)| index.has(&called)) {
            return None;
        }
        self.list.shown(&self.house.aggregate.names, server, entry)
    }

    /// What one server gives: out of its profile, unless it said that something changed.
    async fn part(&self, present: &Present, place: &Place, inner: Option<String>) -> Part {
        let Some(server) = self.house.servers.get(&present.name) else { return Part::default() };
        let link = self.house.links.find(server, place);
        let changed = link.as_ref().is_some_and(|link| link.lists_changed() > 0);
        let pages = present.profile.pages(self.list.method);
        let at = lists::position(pages, inner.as_deref());
        let known = |at: Option<usize>| known(&present.name, pages.get(at?..)?, inner.clone());
        if !changed && at.is_some() {
            return known(at).unwrap_or_default();
        }
        // For a list that the server may not even have, nothing is started.
        if link.is_none() && inner.is_none() && *self.list != TOOLS {
            return Part::default();
        }
        let asked = self.asked(server, link, inner.clone()).await;
        if !asked.pages.is_empty() {
            self.connection.see(&present.name, self.list, &asked.pages);
            return asked;
        }
        // What was known before is better than nothing.
        known(at).unwrap_or_default()
    }

    /// What the server itself gives.
    async fn asked(&self, server: &Server, link: Option<Held>, inner: Option<String>) -> Part {
        let mut part = Part { server: server.name().to_owned(), pages: Vec::new(), rest: inner };
        let asking = async {
            let link = match link {
                Some(link) => Some(link),
                None => forward::link_of(self.house, self.connection, server).await,
            };
            if let Some(link) = link {
                drain(&link, self.list, &mut part).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, asking).await;
        if part.pages.is_empty() {
            part.rest = None;
        }
        part
    }
}

/// Asks for page after page. Whenever it stops, the part says where it goes on.
async fn drain(link: &Held, list: &List, part: &mut Part) {
    while part.pages.len() < PAGES {
        let asked = part.rest.clone();
        let params = asked
            .as_ref()
            .map_or("{}".to_owned(), |it| format!(r#"{{"cursor":{}}}"#, json::quote(it)));
        let options = CallOptions { limit: Some(PATIENCE), ..CallOptions::default() };
        let Ok(call) = link.call(list.method, Some(&params), options).await else { return };
        let Ok(answer) = call.answer().await else { return };
        let Some(result) = answer.result() else { return };
        if *list == TOOLS {
            link.learn_tools(result);
        }
        part.rest = next(result);
        part.pages.push(Page { asked, text: result.to_owned().into() });
        if part.rest.is_none() {
            return;
        }
    }
}

/// The known pages of a server, the first of which was asked for with `inner`.
fn known(server: &str, pages: &[bytes::Bytes], inner: Option<String>) -> Option<Part> {
    let mut part = Part { server: server.to_owned(), pages: Vec::new(), rest: inner };
    for text in pages {
        let asked = part.rest.take();
        part.rest = next(str::from_utf8(text).ok()?);
        part.pages.push(Page { asked, text: text.clone() });
    }
    Some(part)
}

/// The cursor of the page behind this one.
fn next(page: &str) -> Option<String> {
    let next = Raw::parse(page).ok()?.find(&["nextCursor"])?.text()?;
    Some(next.into_owned())
}
