//! How long a list of all servers may be kept.

use stayput_wire::{Era, Raw};

use crate::{
    catalog::list::List,
    route::lists,
    state::{AppState, roster::Roster},
};

/// How long a list may be kept while a server is not there, in milliseconds.
const SOON: u64 = 5_000;

/// How long a list of all may be kept, and by whom: as the most careful of the servers wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheTtl {
    /// In milliseconds.
    ttl: u64,
    /// By the client alone.
    private: bool,
}

impl CacheTtl {
    /// What may be kept of these servers without asking them.
    pub(crate) fn new(roll: &Roster) -> Self {
        let ttl = if roll.absent.is_empty() { crate::catalog::list::TTL } else { SOON };
        Self { ttl, private: false }
    }

    /// The same for a list that the servers said themselves how long to keep.
    pub(super) fn of(app: &AppState, roll: &Roster, list: &List) -> Self {
        let modern = roll.present.iter().filter(|it| it.profile.way().era() == Era::Modern);
        let shared = modern.filter(|it| app.servers.contains_key(&it.name));
        let pages = shared.flat_map(|it| it.profile.pages(list.method));
        let pages = pages.filter_map(|page| Raw::parse(str::from_utf8(page).ok()?).ok());
        pages.fold(Self::new(roll), Self::and)
    }

    /// As this page wants it, too.
    fn and(self, page: Raw<'_>) -> Self {
        let private =
            page.find(&["cacheScope"]).and_then(Raw::text).is_some_and(|it| it == "private");
        Self { ttl: self.ttl.min(lists::ttl(page)), private: self.private || private }
    }

    /// As members of a result, each with a comma behind it.
    pub(crate) fn members(self) -> String {
        let scope = if self.private { "private" } else { "public" };
        format!(r#""ttlMs":{},"cacheScope":"{scope}","#, self.ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_careful_server_decides() {
        let page = |text| Raw::parse(text).unwrap();
        let all = CacheTtl::new(&Roster::default());
        assert_eq!(all.members(), r#""ttlMs":60000,"cacheScope":"public","#);
        let some = all.and(page(r#"{"ttlMs":300000,"cacheScope":"private"}"#));
        assert_eq!(some, CacheTtl { ttl: 60_000, private: true });
        let none = some.and(page(r#"{"tools":[],"cacheScope":"public"}"#));
        assert_eq!(none, CacheTtl { ttl: 0, private: true });
    }
}
