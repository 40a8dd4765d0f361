//! Lists of servers, and their merge into one list.

use std::borrow::Cow;

use bytes::Bytes;
use stayput_wire::{Edits, Raw, json};

use crate::catalog::{cursor::Cursor, names::Names};

/// Cache lifetime of a legacy server's list, in milliseconds.
pub(crate) const TTL: u64 = 60_000;

/// Cache scope of a list that is the same for every client.
pub(crate) const PUBLIC: &str = r#""public""#;

/// Whether a method requests a list.
pub(crate) fn is_list(method: &str) -> bool {
    matches!(method, "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list")
}

/// Kind of list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// Method that requests the list.
    pub(crate) method: &'static str,
    /// Member of the result that holds the entries.
    pub(crate) member: &'static str,
    /// Member of an entry that identifies it.
    pub(crate) key: &'static str,
    /// Capability that a server with this list declares.
    pub(crate) capability: &'static str,
}

pub(crate) static TOOLS: List =
    List { method: "tools/list", member: "tools", key: "name", capability: "tools" };
pub(crate) static PROMPTS: List =
    List { method: "prompts/list", member: "prompts", key: "name", capability: "prompts" };
pub(crate) static RESOURCES: List =
    List { method: "resources/list", member: "resources", key: "uri", capability: "resources" };
pub(crate) static TEMPLATES: List = List {
    method: "resources/templates/list",
    member: "resourceTemplates",
    key: "uriTemplate",
    capability: "resources",
};

impl List {
    /// Returns the list that a method requests.
    pub(crate) fn by_method(method: &str) -> Option<&'static Self> {
        [&TOOLS, &PROMPTS, &RESOURCES, &TEMPLATES].into_iter().find(|list| list.method == method)
    }

    /// Whether entries get the prefix of their server; URIs stay unchanged.
    pub(crate) fn is_named(&self) -> bool {
        self.key == "name"
    }

    /// Returns the entries of a page.
    pub(crate) fn entries<'a>(&self, page: &'a Bytes) -> impl Iterator<Item = Raw<'a>> {
        let page = str::from_utf8(page).ok().and_then(|text| Raw::parse(text).ok());
        page.and_then(|page| page.find(&[self.member])).into_iter().flat_map(Raw::elements)
    }

    /// Name or URI of an entry; `None` if it cannot be read.
    pub(crate) fn called<'a>(&self, entry: Raw<'a>) -> Option<Cow<'a, str>> {
        entry.find(&[self.key])?.text()
    }

    /// Returns an entry with the name that clients use. Every other byte stays unchanged.
    pub(crate) fn shown<'a>(
        &self,
        names: &Names,
        server: &str,
        entry: Raw<'a>,
    ) -> Option<Cow<'a, str>> {
        let called = self.called(entry)?;
        if !self.is_named() {
            return Some(entry.as_str().into());
        }
        let mut edits = Edits::new(entry.as_str());
        edits.set(&[self.key], &json::quote(&names.outer(server, &called)));
        edits.apply().ok()
    }
}

/// Page of one server.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Cursor that the page was requested with.
    pub(crate) asked: Option<String>,
    /// Result of the request.
    pub(crate) text: Bytes,
}

/// Contribution of one server to a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerPages {
    pub(crate) server: String,
    pub(crate) pages: Vec<Page>,
    /// Cursor of the next page, if there is more.
    pub(crate) rest: Option<String>,
    /// Whether the pages are those of the profile, so that they can be found in a cache.
    pub(crate) is_known: bool,
}

/// Facts about a page that are needed for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageFacts {
    /// Cursor of the page after this one.
    pub(crate) next: Option<String>,
    /// Cache lifetime of a result of a modern server, in milliseconds.
    pub(crate) ttl: u64,
    /// Whether only the client itself may cache the page.
    pub(crate) is_private: bool,
}

impl PageFacts {
    /// Reads the facts. A page that cannot be read has none.
    pub(crate) fn read(page: &[u8]) -> Self {
        let page = str::from_utf8(page).ok().and_then(|text| Raw::parse(text).ok());
        let find = |name| page.and_then(|page| page.find(&[name]));
        let ttl = find("ttlMs").and_then(Raw::integer).and_then(|ttl| u64::try_from(ttl).ok());
        let next = find("nextCursor").and_then(Raw::text).map(Cow::into_owned);
        let scope = find("cacheScope").and_then(Raw::text);
        let is_private = scope.is_some_and(|it| it == "private");
        Self { next, ttl: ttl.unwrap_or_default(), is_private }
    }
}

/// Page of the merged list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MergedPage {
    /// Entries, separated by commas.
    pub(crate) entries: String,
    /// Cursor of the next page.
    pub(crate) next: Option<Cursor>,
}

/// Merges the lists of several servers, such as those of `tools/list`, in their order. A page ends before the server
/// page with which it would exceed `limit`, but holds at least one server page. `show` returns an entry as clients see
/// it, or `None` to hide it.
pub(crate) fn merge<'a>(
    list: &List,
    parts: &'a [ServerPages],
    limit: usize,
    show: impl Fn(&str, Raw<'a>) -> Option<Cow<'a, str>>,
) -> MergedPage {
    let mut entries = String::new();
    let mut begun = false;
    for part in parts {
        let goes_on = |inner: Option<String>| Some(Cursor { server: part.server.clone(), inner });
        for page in &part.pages {
            if begun && entries.len() + page.text.len() > limit {
                return MergedPage { entries, next: goes_on(page.asked.clone()) };
            }
            begun = true;
            for entry in list.entries(&page.text).filter_map(|entry| show(&part.server, entry)) {
                if !entries.is_empty() {
                    entries.push(',');
                }
                entries.push_str(&entry);
            }
        }
        if part.rest.is_some() {
            return MergedPage { entries, next: goes_on(part.rest.clone()) };
        }
    }
    MergedPage { entries, next: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(asked: Option<&str>, text: &'static str) -> Page {
        Page { asked: asked.map(str::to_owned), text: Bytes::from_static(text.as_bytes()) }
    }

    fn part(server: &str, pages: Vec<Page>) -> ServerPages {
        ServerPages { server: server.to_owned(), pages, rest: None, is_known: false }
    }

    fn parts() -> [ServerPages; 3] {
        [
            part(
                "a",
                vec![
                    page(None, r#"{"tools":[{ "n":1.10,"name":"x" }],"nextCursor":"2","z":1}"#),
                    page(Some("2"), r#"{"tools":[{"name":"y\/"},{"title":"nameless"},7]}"#),
                ],
            ),
            part("b.c", vec![page(None, r#"{"tools":[]}"#)]),
            part("d", vec![page(None, r#"{"tools":[{"name":"x","name":"w"}]}"#)]),
        ]
    }

    /// Invariant 10: only the name of an entry is changed.
    #[test]
    fn lists_are_merged_in_order() {
        let names = Names::new(["a", "b.c", "d"]);
        let parts = parts();
        let show = |server: &str, entry| TOOLS.shown(&names, server, entry);
        let merged = merge(&TOOLS, &parts, 1 << 20, show);
        let expected = r#"{ "n":1.10,"name":"a__x" },{"name":"a__y/"},{"name":"d__w"}"#;
        assert_eq!(merged, MergedPage { entries: expected.to_owned(), next: None });
    }

    /// Every entry is on exactly one page, whatever the limit is.
    #[test]
    fn merged_page_ends_between_server_pages() {
        let names = Names::new(["a", "b.c", "d"]);
        let whole = parts();
        let show = |server: &str, entry| TOOLS.shown(&names, server, entry);
        let first = merge(&TOOLS, &whole, 10, show);
        let next = Cursor { server: "a".to_owned(), inner: Some("2".to_owned()) };
        assert_eq!(first.entries, r#"{ "n":1.10,"name":"a__x" }"#);
        assert_eq!(first.next, Some(next));
        let rest = [part("a", whole[0].pages[1..].to_vec()), whole[1].clone(), whole[2].clone()];
        let second = merge(&TOOLS, &rest, 40, show);
        assert_eq!(second.next, Some(Cursor { server: "d".to_owned(), inner: None }));
        let mut cut = parts();
        cut[1].rest = Some("more".to_owned());
        let goes_on = Cursor { server: "b.c".to_owned(), inner: Some("more".to_owned()) };
        assert_eq!(merge(&TOOLS, &cut, 1 << 20, show).next, Some(goes_on));
    }

    #[test]
    fn uris_are_unchanged() {
        let names = Names::new(["a"]);
        let parts =
            [part("a", vec![page(None, r#"{"resources":[{"uri":"a:\/b", "name":"n"},{}]}"#)])];
        let merged =
            merge(&RESOURCES, &parts, 10, |server, it| RESOURCES.shown(&names, server, it));
        assert_eq!(merged.entries, r#"{"uri":"a:\/b", "name":"n"}"#);
        assert_eq!(List::by_method("resources/templates/list"), Some(&TEMPLATES));
        assert_eq!(List::by_method("tools/call"), None);
    }
}
