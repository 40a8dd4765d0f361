//! Merged lists of all servers.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use stayput_upstream::{CallOptions, Isolation, LinkOpenOptions, PooledLink, Profile, Server};
use stayput_wire::{Raw, json};

use super::Refusal;
use crate::{
    call::{open_link, sessionless::Sessionless},
    catalog::{
        cursor::Cursor,
        index::ClientIndex,
        list::{self, List, MergedPage, Page, ServerPages, TOOLS},
        tool_view::ToolView,
    },
    identify::RequestContext,
    route::{aggregate::cache_ttl::CacheTtl, lists},
    session_tools,
    state::{
        AppState,
        roster::{AvailableServer, Roster},
    },
};
use futures_util::future::join_all;

/// Approximate size limit of a page in bytes. Many clients read only the first page, so everything should fit on it.
const PAGE_BYTES: usize = 1 << 20;

/// Timeout for a server whose lists changed, for all its pages together.
const LIST_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of pages that are requested from one server at once.
const PAGES: usize = 100;

/// List request of an aggregate client.
pub(super) struct Listing<'a> {
    pub(super) context: &'a RequestContext<'a>,
    pub(super) list: &'static List,
}

/// Page of the merged list.
pub(super) struct ListPage {
    list: &'static List,
    /// Entries as JSON, separated by commas.
    entries: String,
    /// Sealed cursor of the next page.
    next: Option<String>,
    /// Cache lifetime and scope. Only the modern era uses them.
    pub(super) kept: CacheTtl,
}

impl ListPage {
    /// Builds the result, which begins with `head`.
    pub(super) fn result(&self, head: &str) -> String {
        let Self { list, entries, next, .. } = self;
        let next = next.as_ref().map(|next| format!(r#","nextCursor":{}"#, json::quote(next)));
        format!(r#"{{{head}"{}":[{entries}]{}}}"#, list.member, next.unwrap_or_default())
    }
}

impl Listing<'_> {
    /// Returns the requested page.
    pub(super) async fn page(&self) -> Result<ListPage, Refusal> {
        let cursor = self.cursor()?;
        let roster = Roster::call(self.context.app, &self.context.caller()).await;
        let parts = roster.present.iter().filter_map(|present| {
            let inner = match &cursor {
                Some(cursor) if present.name < cursor.server => return None,
                Some(cursor) if present.name == cursor.server => cursor.inner.clone(),
                _ => None,
            };
            let has = present.profile.initialize_result().has(self.list.capability);
            has.then(|| self.part(present, inner))
        });
        let parts = join_all(parts).await;
        let merged = self.merge_parts(&roster, &parts);
        let mut entries = Cow::Borrowed(merged.entries.as_str());
        if cursor.is_none() && *self.list == TOOLS {
            self.add_own(&mut entries).await;
        }
        let seal = |next: Cursor| {
            let sealed =
                next.seal(self.context.app.engine.seal(), self.context.owner, self.list.method);
            sealed.ok_or_else(|| Refusal::internal("this machine cannot seal a cursor"))
        };
        let next = merged.next.clone().map(seal).transpose()?;
        let kept = CacheTtl::for_list(self.context.app, &roster, self.list);
        Ok(ListPage { list: self.list, entries: entries.into_owned(), next, kept })
    }

    /// Merges the parts. The result is cached if it follows from the pages of the profiles alone: which URIs are hidden
    /// also depends on the client.
    fn merge_parts(&self, roster: &Roster, parts: &[ServerPages]) -> Arc<MergedPage> {
        let indexes = self.indexes(roster);
        let merge = || {
            let show = |server: &str, entry| self.show(&indexes, server, entry);
            Arc::new(list::merge(self.list, parts, PAGE_BYTES, show))
        };
        if !self.list.is_named() || !parts.iter().all(|part| part.is_known) {
            return merge();
        }
        let pages = parts.iter().flat_map(|part| part.pages.iter().map(|page| page.text.clone()));
        let pages: Vec<_> = pages.collect();
        let first = |part: &ServerPages| part.pages.first().and_then(|page| page.asked.clone());
        // The prefix of a server depends on the other servers that the client sees.
        let prefix = |part: &ServerPages| self.context.app.aggregate.names.outer(&part.server, "");
        let view = |part: &ServerPages| {
            format!("{} {} {:?} {:?}", prefix(part), part.pages.len(), first(part), part.rest)
        };
        let view: Vec<_> = parts.iter().map(view).collect();
        let view = format!("{} {}", self.list.method, view.join(" "));
        self.context.app.lists.merged.get(&pages, view, || {
            let merged = merge();
            let size = merged.entries.len();
            (merged, size)
        })
    }

    /// Adds the session tools once for all servers, on the first page, which every client reads.
    async fn add_own(&self, entries: &mut Cow<'_, str>) {
        let (app, context) = (self.context.app, self.context);
        if !app.shows_tools(context) || !app.keeps_state(context).await {
            return;
        }
        let own = session_tools::listed(&app.identify, context, false);
        let entries = entries.to_mut();
        if !entries.is_empty() {
            entries.push(',');
        }
        entries.push_str(&own);
    }

    fn cursor(&self) -> Result<Option<Cursor>, Refusal> {
        let value = self.context.message.params().and_then(|params| params.find(&["cursor"]));
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let open = |value: Cow<'_, str>| {
            Cursor::open(
                self.context.app.engine.seal(),
                self.context.owner,
                self.list.method,
                &value,
            )
        };
        value.text().and_then(open).map(Some).ok_or_else(|| {
            let method = self.list.method;
            Refusal::invalid(format!(
                "this cursor was not given out for `{method}`; ask again without one for the first page"
            ))
        })
    }

    /// Returns the known entries of each server, in the order of the servers.
    fn indexes(&self, roster: &Roster) -> Vec<(String, ClientIndex)> {
        if self.list.is_named() {
            return Vec::new();
        }
        let aggregate = &self.context.app.aggregate;
        let index = |it: &AvailableServer| {
            (it.name.clone(), aggregate.indexed(self.context, it, self.list))
        };
        roster.present.iter().map(index).collect()
    }

    /// Returns an entry as clients see it. Skips denied tools, and URIs that an earlier server lists, because
    /// requests for them go to that server.
    fn show<'a>(
        &self,
        indexes: &[(String, ClientIndex)],
        server: &str,
        entry: Raw<'a>,
    ) -> Option<Cow<'a, str>> {
        let called = self.list.called(entry)?;
        let denied =
            || self.context.app.tools.get(server).is_some_and(|tools| !tools.allows(&called));
        if *self.list == TOOLS && denied() {
            return None;
        }
        let mut earlier = indexes.iter().take_while(|(name, _)| name != server);
        if earlier.any(|(_, index)| index.has(&called)) {
            return None;
        }
        self.list.shown(&self.context.app.aggregate.names, server, entry)
    }

    /// Returns the entries of one server, as this client sees them.
    async fn part(&self, present: &AvailableServer, inner: Option<String>) -> ServerPages {
        let Some(server) = self.context.app.servers.get(&present.name) else {
            return ServerPages::default();
        };
        let server = present.profile.server(server);
        let profile = self.current(server, &present.profile).await;
        let mut part = self.server_pages(server, &profile, inner).await;
        let (kind, in_url) = (self.context.connection_kind(), self.context.path_key.is_some());
        let takes = self.context.app.identify.takes_argument(server.name(), kind, in_url);
        let view = self.context.app.tool_view_of(server, self.context.owner, &profile);
        if *self.list == TOOLS && takes && view.kept {
            for page in &mut part.pages {
                page.text = self.with_argument(&page.text, &view, part.is_known);
            }
        }
        part
    }

    /// Returns a page of tools with the session argument.
    fn with_argument(&self, page: &Bytes, view: &ToolView, is_known: bool) -> Bytes {
        let Ok(text) = str::from_utf8(page) else { return page.clone() };
        let add = || Bytes::from(view.argument.add_to_page(text).into_owned());
        if !is_known {
            return add();
        }
        let key = format!("argument {:?}", view.argument.name());
        self.context.app.lists.pages.get(std::slice::from_ref(page), key, || {
            let page = add();
            let size = page.len();
            (page, size)
        })
    }

    /// Returns the profile with up-to-date lists, or the known one if that takes too long.
    async fn current(&self, server: &Server, known: &Arc<Profile>) -> Arc<Profile> {
        let current = self.context.app.current(server, self.context.owner, self.list.method);
        let current = tokio::time::timeout(LIST_TIMEOUT, current).await;
        current.ok().and_then(Result::ok).unwrap_or_else(|| known.clone())
    }

    /// Returns the list of one server: from its profile, or from the server itself if the list changed and the client
    /// has a link.
    async fn server_pages(
        &self,
        server: &Server,
        profile: &Profile,
        inner: Option<String>,
    ) -> ServerPages {
        let link = self.link(server);
        let changed = |link: &PooledLink| link.lists_changed() > 0 || profile.is_relearned();
        let changed = link.as_ref().is_some_and(changed) && self.context.connection.is_some();
        let pages = profile.pages(self.list.method);
        let at = lists::position(self.context.app, pages, inner.as_deref());
        let app = self.context.app;
        let known = |at: Option<usize>| {
            convert_pages((app, server.name()), pages.get(at?..)?, inner.clone())
        };
        let fresh = || self.context.connection.is_some() || self.is_fresh(server, profile);
        if !changed && at.is_some() && fresh() {
            return known(at).unwrap_or_default();
        }
        // A server is not started for a list that it may not have.
        if link.is_none() && inner.is_none() && at.is_none() && *self.list != TOOLS {
            return ServerPages::default();
        }
        let asked = self.request_list((server, profile), link, inner.clone()).await;
        if !asked.pages.is_empty() {
            if let Some(connection) = self.context.connection {
                connection.store_changed_list(server.name(), self.list, &asked.pages);
            }
            return asked;
        }
        // Falls back to the pages that were known before.
        known(at).unwrap_or_default()
    }

    /// Returns the link on which the client can ask: of one of its sessions, or the shared one.
    fn link(&self, server: &Server) -> Option<PooledLink> {
        match self.context.connection {
            Some(connection) => lists::find_list_link(self.context.app, server, connection),
            None => {
                let sessionless = Sessionless::new(self.context.app, self.context.owner, false);
                self.context.app.links.find(server, sessionless.link_owner())
            }
        }
    }

    /// Returns whether all cached pages of a server are still fresh.
    fn is_fresh(&self, server: &Server, profile: &Profile) -> bool {
        let mut pages = profile.pages(self.list.method).iter();
        pages.all(|page| {
            lists::is_fresh(server, profile, || lists::facts(self.context.app, page).ttl)
        })
    }

    /// Requests the list from the server.
    async fn request_list(
        &self,
        (server, profile): (&Server, &Profile),
        link: Option<PooledLink>,
        inner: Option<String>,
    ) -> ServerPages {
        let mut part =
            ServerPages { server: server.name().to_owned(), rest: inner, ..ServerPages::default() };
        let alone = profile.isolation(server) == Isolation::PerSession;
        let sessionless =
            Sessionless::new(self.context.app, self.context.owner, alone && link.is_none());
        let asking = async {
            let link = match (link, self.context.connection) {
                (Some(link), _) => Some(link),
                (None, Some(connection)) => {
                    open_link::of_connection(self.context.app, connection, server).await
                }
                (None, None) => {
                    let asking = LinkOpenOptions::default();
                    self.context
                        .app
                        .links
                        .open(server, sessionless.link_owner(), &asking)
                        .await
                        .ok()
                }
            };
            if let Some(link) = link {
                drain(&link, self.list, &mut part).await;
            }
        };
        let _ = tokio::time::timeout(LIST_TIMEOUT, asking).await;
        if part.pages.is_empty() {
            part.rest = None;
        }
        part
    }
}

/// Requests page after page. Wherever it stops, `part` has the cursor of the next page.
async fn drain(link: &PooledLink, list: &List, part: &mut ServerPages) {
    while part.pages.len() < PAGES {
        let asked = part.rest.clone();
        let params = asked
            .as_ref()
            .map_or("{}".to_owned(), |it| format!(r#"{{"cursor":{}}}"#, json::quote(it)));
        let options = CallOptions { limit: Some(LIST_TIMEOUT), ..CallOptions::default() };
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

/// Converts the known pages of a server. The first of them was requested with `inner`.
fn convert_pages(
    (app, server): (&AppState, &str),
    pages: &[Bytes],
    inner: Option<String>,
) -> Option<ServerPages> {
    let mut part =
        ServerPages { server: server.to_owned(), pages: Vec::new(), rest: inner, is_known: true };
    for text in pages {
        let asked = part.rest.take();
        part.rest = lists::facts(app, text).next;
        part.pages.push(Page { asked, text: text.clone() });
    }
    Some(part)
}

/// Returns the cursor of the page after this one.
fn next(page: &str) -> Option<String> {
    let next = Raw::parse(page).ok()?.find(&["nextCursor"])?.text()?;
    Some(next.into_owned())
}
