//! Lists that servers sent to one client after a change notification.

use std::{collections::HashMap, sync::Arc};

use crate::catalog::{
    index::Index,
    list::{List, Page},
};

/// Lists of servers, as one client got them last.
#[derive(Debug, Default)]
pub(crate) struct ClientLists(HashMap<(String, &'static str), Arc<Index>>);

impl ClientLists {
    pub(crate) fn get(&self, server: &str, list: &List) -> Option<Arc<Index>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(server.to_owned(), list.method)).cloned()
    }

    /// Adds pages. A first page replaces the list.
    pub(crate) fn add(&mut self, server: &str, list: &'static List, pages: &[Page]) {
        let index = self.0.entry((server.to_owned(), list.method)).or_default();
        let index = Arc::make_mut(index);
        if pages.first().is_some_and(|page| page.asked.is_none()) {
            *index = Index::default();
        }
        index.add(list, pages.iter().map(|page| &page.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::list::RESOURCES;

    #[test]
    fn first_page_replaces_the_list() {
        let page = |asked: Option<&str>, uri: &str| Page {
            asked: asked.map(str::to_owned),
            text: format!(r#"{{"resources":[{{"uri":"{uri}"}}]}}"#).into(),
        };
        let mut lists = ClientLists::default();
        assert!(lists.get("a", &RESOURCES).is_none());
        lists.add("a", &RESOURCES, &[page(None, "x:1")]);
        lists.add("a", &RESOURCES, &[page(Some("2"), "x:2")]);
        let index = lists.get("a", &RESOURCES).unwrap();
        assert!(index.has("x:1") && index.has("x:2"));
        lists.add("a", &RESOURCES, &[page(None, "x:3")]);
        let index = lists.get("a", &RESOURCES).unwrap();
        assert!(!index.has("x:1") && index.has("x:3"));
        assert!(lists.get("b", &RESOURCES).is_none());
    }
}
