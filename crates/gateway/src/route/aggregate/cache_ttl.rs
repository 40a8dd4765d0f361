//! Cache lifetime of merged lists.

use stayput_wire::Era;

use crate::{
    catalog::list::{List, PageFacts},
    route::lists,
    state::{AppState, roster::Roster},
};

/// Cache lifetime while a server is unavailable, in milliseconds.
const INCOMPLETE_TTL: u64 = 5_000;

/// Cache lifetime and scope of a merged list: the shortest and narrowest of all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheTtl {
    /// Lifetime in milliseconds.
    ttl: u64,
    /// Whether only the client itself may cache the list.
    private: bool,
}

impl CacheTtl {
    /// Returns the default for these servers.
    pub(crate) fn new(roster: &Roster) -> Self {
        let ttl = if roster.absent.is_empty() { crate::catalog::list::TTL } else { INCOMPLETE_TTL };
        Self { ttl, private: false }
    }

    /// Returns the limits of a list, from those that modern servers sent with their pages.
    pub(super) fn for_list(app: &AppState, roster: &Roster, list: &List) -> Self {
        let modern = roster.present.iter().filter(|it| it.profile.era() == Era::Modern);
        let shared = modern.filter(|it| app.servers.contains_key(&it.name));
        let pages = shared.flat_map(|it| it.profile.pages(list.method));
        pages.fold(Self::new(roster), |all, page| all.narrowed_by(&lists::facts(app, page)))
    }

    /// Applies the limits of one more page.
    fn narrowed_by(self, page: &PageFacts) -> Self {
        Self { ttl: self.ttl.min(page.ttl), private: self.private || page.is_private }
    }

    /// Returns the limits as members of a result, each followed by a comma.
    pub(crate) fn members(self) -> String {
        let scope = if self.private { "private" } else { "public" };
        format!(r#""ttlMs":{},"cacheScope":"{scope}","#, self.ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_lifetime_and_narrowest_scope_win() {
        let page = |text: &str| PageFacts::read(text.as_bytes());
        let all = CacheTtl::new(&Roster::default());
        assert_eq!(all.members(), r#""ttlMs":60000,"cacheScope":"public","#);
        let some = all.narrowed_by(&page(r#"{"ttlMs":300000,"cacheScope":"private"}"#));
        assert_eq!(some, CacheTtl { ttl: 60_000, private: true });
        let none = some.narrowed_by(&page(r#"{"tools":[],"cacheScope":"public"}"#));
        assert_eq!(none, CacheTtl { ttl: 0, private: true });
    }
}
