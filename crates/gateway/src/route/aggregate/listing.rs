//! Lists of all servers as one.

use std::{borrow::Cow, sync::Arc, time::Duration};

use stayput_upstream::{Asking, CallOptions, Held, Isolation, Profile, Server};
use stayput_wire::{Raw, json};

use super::Refusal;
use crate::{
    call::{self, sessionless::Sessionless},
    catalog::{
        cursor::Cursor,
        index::Indexed,
        list::{self, List, Page, Part, TOOLS},
        tool_argument,
    },
    identify::RequestContext,
    route::{aggregate::cache_ttl::CacheTtl, lists},
    session_tools,
    state::{
        AppState,
        roster::{Present, Roster},
    },
};
use futures_util::future::join_all;

/// About how long a page may be. Many clients read the first one only, so all should fit on it.
const PAGE: usize = 1 << 20;

/// How long servers whose lists changed are waited for, each for all its pages.
const PATIENCE: Duration = Duration::from_secs(4);

/// The most pages of one server that are asked for at once.
const PAGES: usize = 100;

/// A list that a client of all servers asked for.
pub(super) struct Listing<'a> {
    pub(super) app: &'a Arc<AppState>,
    pub(super) claim: &'a RequestContext<'a>,
    pub(super) list: &'static List,
}

/// One page of the list of all servers.
pub(crate) struct Listed {
    list: &'static List,
    /// With commas in between.
    entries: String,
    /// Where it goes on, sealed.
    next: Option<String>,
    /// How long it may be kept, in milliseconds, and whether by anybody. Only the modern era asks.
    pub(crate) kept: CacheTtl,
}

impl Listed {
    /// As a result, which begins with `head`.
    pub(crate) fn result(&self, head: &str) -> String {
        let Self { list, entries, next, .. } = self;
        let next = next.as_ref().map(|next| format!(r#","nextCursor":{}"#, json::quote(next)));
        format!(r#"{{{head}"{}":[{entries}]{}}}"#, list.member, next.unwrap_or_default())
    }
}

impl Listing<'_> {
    /// The page that a request asks for.
    pub(super) async fn page(&self) -> Result<Listed, Refusal> {
        let cursor = self.cursor()?;
        let place = self.claim.place();
        let roll = Roster::call(self.app, self.claim.owner, place.clone()).await;
        let parts = roll.present.iter().filter_map(|present| {
            let inner = match &cursor {
                Some(cursor) if present.name < cursor.server => return None,
                Some(cursor) if present.name == cursor.server => cursor.inner.clone(),
                _ => None,
            };
            let has = present.profile.greeting().has(self.list.capability);
            has.then(|| self.part(present, inner))
        });
        let parts = join_all(parts).await;
        let indexes = self.indexes(&roll);
        let show = |server: &str, entry| self.show(&indexes, server, entry);
        let mut merged = list::merge(self.list, &parts, PAGE, show);
        if cursor.is_none() && *self.list == TOOLS {
            self.add_own(&mut merged.entries).await;
        }
        let seal = |next: Cursor| {
            let sealed = next.seal(&self.app.seal, self.claim.owner, self.list.method);
            sealed.ok_or_else(|| Refusal::internal("this machine cannot seal a cursor"))
        };
        let next = merged.next.map(seal).transpose()?;
        let kept = CacheTtl::of(self.app, &roll, self.list);
        Ok(Listed { list: self.list, entries: merged.entries, next, kept })
    }

    /// Our own tools stand once beside those of all servers, on the first page, which every client reads.
    async fn add_own(&self, entries: &mut String) {
        let (app, claim) = (self.app, self.claim);
        if !app.shows_tools(claim) || !app.keeps(claim).await {
            return;
        }
        let own = session_tools::listed(&app.identify, claim, false);
        if !entries.is_empty() {
            entries.push(',');
        }
        entries.push_str(&own);
    }

    fn cursor(&self) -> Result<Option<Cursor>, Refusal> {
        let said = self.claim.message.params().and_then(|params| params.find(&["cursor"]));
        let Some(said) = said.filter(|said| !said.is_null()) else { return Ok(None) };
        let open = |said: Cow<'_, str>| {
            Cursor::open(&self.app.seal, self.claim.owner, self.list.method, &said)
        };
        said.text().and_then(open).map(Some).ok_or_else(|| {
            let method = self.list.method;
            Refusal::invalid(format!(
                "this cursor was not given out for `{method}`; ask again without one for the first page"
            ))
        })
    }

    /// What each server lists as far as it is known, in their order.
    fn indexes(&self, roll: &Roster) -> Vec<(String, Indexed)> {
        if self.list.is_named() {
            return Vec::new();
        }
        let aggregate = &self.app.aggregate;
        let index = |it: &Present| (it.name.clone(), aggregate.indexed(self.claim, it, self.list));
        roll.present.iter().map(index).collect()
    }

    /// An entry as it is shown. What is denied is not, nor what leads to another server.
    fn show<'a>(
        &self,
        indexes: &[(String, Indexed)],
        server: &str,
        entry: Raw<'a>,
    ) -> Option<Cow<'a, str>> {
        let called = self.list.called(entry)?;
        let denied = || self.app.tools.get(server).is_some_and(|tools| !tools.allows(&called));
        if *self.list == TOOLS && denied() {
            return None;
        }
        let mut earlier = indexes.iter().take_while(|(name, _)| name != server);
        if earlier.any(|(_, index)| index.has(&called)) {
            return None;
        }
        self.list.shown(&self.app.aggregate.names, server, entry)
    }

    /// What one server gives, as this client sees it.
    async fn part(&self, present: &Present, inner: Option<String>) -> Part {
        let Some(server) = self.app.servers.get(&present.name) else { return Part::default() };
        let profile = self.current(server, &present.profile).await;
        let mut part = self.told(server, &profile, inner).await;
        let takes = self.app.identify.takes_argument(server.name(), self.claim.front());
        let sight = self.app.sight_of(server, self.claim.owner, &profile);
        if *self.list == TOOLS && takes && sight.kept {
            for page in &mut part.pages {
                let Ok(text) = str::from_utf8(&page.text) else { continue };
                let shown = tool_argument::listed(text, &sight.argument).into_owned();
                page.text = shown.into();
            }
        }
        part
    }

    /// What is known of a server, its lists as they are now; as they were if that takes too long.
    async fn current(&self, server: &Server, known: &Arc<Profile>) -> Arc<Profile> {
        let current = self.app.current(server, self.claim.owner, self.list.method);
        let current = tokio::time::timeout(PATIENCE, current).await;
        current.ok().and_then(Result::ok).unwrap_or_else(|| known.clone())
    }

    /// What one server lists: out of its profile, or as it tells whoever has a link once something changed.
    async fn told(&self, server: &Server, profile: &Profile, inner: Option<String>) -> Part {
        let link = self.link(server);
        let changed = |link: &Held| link.lists_changed() > 0 || profile.is_relearned();
        let changed = link.as_ref().is_some_and(changed) && self.claim.connection.is_some();
        let pages = profile.pages(self.list.method);
        let at = lists::position(pages, inner.as_deref());
        let known = |at: Option<usize>| known(server.name(), pages.get(at?..)?, inner.clone());
        let fresh = || self.claim.connection.is_some() || self.is_fresh(server, profile);
        if !changed && at.is_some() && fresh() {
            return known(at).unwrap_or_default();
        }
        // For a list that the server may not even have, nothing is started.
        if link.is_none() && inner.is_none() && at.is_none() && *self.list != TOOLS {
            return Part::default();
        }
        let asked = self.asked((server, profile), link, inner.clone()).await;
        if !asked.pages.is_empty() {
            if let Some(connection) = self.claim.connection {
                connection.see(server.name(), self.list, &asked.pages);
            }
            return asked;
        }
        // What was known before is better than nothing.
        known(at).unwrap_or_default()
    }

    /// The link that the client can be told by: that of a session of its own, or one that all share.
    fn link(&self, server: &Server) -> Option<Held> {
        match self.claim.connection {
            Some(connection) => lists::linked(self.app, server, connection),
            None => {
                let nobody = Sessionless::new(self.app, self.claim.owner, false);
                self.app.links.find(server, nobody.place())
            }
        }
    }

    /// Whether all pages of a server may still be passed on to a client that keeps them no longer than it may.
    fn is_fresh(&self, server: &Server, profile: &Profile) -> bool {
        let pages = profile.pages(self.list.method).iter();
        let mut pages = pages.filter_map(|page| str::from_utf8(page).ok());
        pages.all(|page| lists::is_fresh(server, profile, page))
    }

    /// What the server itself gives.
    async fn asked(
        &self,
        (server, profile): (&Server, &Profile),
        link: Option<Held>,
        inner: Option<String>,
    ) -> Part {
        let mut part = Part { server: server.name().to_owned(), pages: Vec::new(), rest: inner };
        let alone = server.isolation(profile.way().era()) == Isolation::PerSession;
        let nobody = Sessionless::new(self.app, self.claim.owner, alone && link.is_none());
        let asking = async {
            let link = match (link, self.claim.connection) {
                (Some(link), _) => Some(link),
                (None, Some(connection)) => call::link_of(self.app, connection, server).await,
                (None, None) => {
                    let asking = Asking::default();
                    self.app.links.open(server, nobody.place(), &asking).await.ok()
                }
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
