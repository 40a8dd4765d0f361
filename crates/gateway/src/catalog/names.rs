//! How tools and prompts of many servers are called where all are behind one path.

use std::collections::HashMap;

/// What stands between a server and what it has.
pub(crate) const SEPARATOR: &str = "__";

/// The longest name, in characters: makers of models take no longer ones.
const LIMIT: usize = 64;

/// The longest beginning, so that something is left for the name itself.
const PREFIX_LIMIT: usize = 40;

/// How much of a hash stands in for what was cut off.
const HASH: usize = 8;

/// The names of servers as beginnings of other names, and back.
///
/// A beginning has letters, digits, `-` and single `_`, and no `_` at its end. So the first `__` of a
/// name is always ours, whatever the server calls its tools, and no two names meet.
#[derive(Debug, Default)]
pub(crate) struct Names {
    servers: HashMap<String, String>,
    prefixes: HashMap<String, String>,
}

impl Names {
    /// The names of these servers. The same servers give the same names.
    pub(crate) fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        // Who can keep the own name does, whoever else there is.
        let (fit, odd): (Vec<&str>, Vec<&str>) =
            servers.into_iter().partition(|server| fitting(server) == *server);
        let mut names = Self::default();
        for server in fit.into_iter().chain(odd) {
            let wish = fitting(server);
            let more = (2..).map(|number: u32| format!("{wish}_{number}"));
            let mut free = std::iter::once(wish.clone())
                .chain(more)
                .filter(|prefix| !names.servers.contains_key(prefix));
            let prefix = free.next().unwrap_or(wish.clone());
            names.servers.insert(prefix.clone(), server.to_owned());
            names.prefixes.insert(server.to_owned(), prefix);
        }
        names
    }

    /// What the names of a server begin with, without the separator.
    pub(crate) fn prefix<'a>(&'a self, server: &'a str) -> &'a str {
        self.prefixes.get(server).map_or(server, String::as_str)
    }

    /// What clients call `inner` of `server`.
    pub(crate) fn outer(&self, server: &str, inner: &str) -> String {
        let whole = format!("{}{SEPARATOR}{inner}", self.prefix(server));
        if whole.chars().count() <= LIMIT {
            return whole;
        }
        let head: String = whole.chars().take(LIMIT - HASH - 1).collect();
        format!("{head}_{}", hash(inner))
    }

    /// The server that a client's name leads to, and what it is called there; only the whole list of
    /// that server tells what a name was that [`is_cut`].
    pub(crate) fn split<'a>(&'a self, outer: &'a str) -> Option<(&'a str, &'a str)> {
        let (prefix, inner) = outer.split_once(SEPARATOR)?;
        Some((self.servers.get(prefix)?, inner))
    }
}

/// Whether a name looks as if its end was cut off.
pub(crate) fn is_cut(outer: &str) -> bool {
    let tail = outer.rsplit_once('_').map_or("", |(_, tail)| tail);
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    outer.chars().count() == LIMIT && tail.len() == HASH && tail.bytes().all(digit)
}

/// A name of a server as a beginning.
fn fitting(server: &str) -> String {
    let mut prefix = String::new();
    for letter in server.chars() {
        let kept = letter.is_ascii_alphanumeric() || letter == '-';
        let letter = if kept { letter } else { '_' };
        if letter != '_' || !prefix.ends_with('_') {
            prefix.push(letter);
        }
    }
    if prefix.len() > PREFIX_LIMIT {
        prefix.truncate(PREFIX_LIMIT - HASH - 1);
        prefix = format!("{}_{}", prefix.trim_end_matches('_'), hash(server));
    }
    match prefix.trim_end_matches('_') {
        "" => "server".to_owned(),
        prefix => prefix.to_owned(),
    }
}

fn hash(text: &str) -> String {
    let digest = stayput_core::content_digest(text.as_bytes()).to_hex();
    digest.get(..HASH).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_server() {
        let servers = ["notes", "a", "a_b", "a-b", "a__b", "a_", "_a", "x.y", "x_y", "_", "ü"];
        let names = Names::new(servers);
        let tools = ["count", "b__c", "_x", "__", "b", "_", "a.b/c", "", "é__é"];
        let mut all = std::collections::HashSet::new();
        for server in servers {
            for tool in tools {
                let outer = names.outer(server, tool);
                assert_eq!(names.split(&outer), Some((server, tool)), "{outer}");
                assert!(all.insert(outer), "{server} {tool}");
            }
        }
        assert_eq!(names.outer("notes", "count"), "notes__count");
        for unknown in ["count", "other__count", "", "__", "notes_count", "NOTES__count"] {
            assert_eq!(names.split(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn who_can_keep_the_own_name_does() {
        let names = Names::new(["a.b", "a_b", "a_b_2", "a__b"]);
        let prefixes = ["a.b", "a_b", "a_b_2", "a__b"].map(|server| names.prefix(server));
        assert_eq!(prefixes, ["a_b_3", "a_b", "a_b_2", "a_b_4"]);
    }

    #[test]
    fn names_stay_short() {
        let (long, longer) = ("s".repeat(64), format!("{}t", "s".repeat(63)));
        let names = Names::new([&*long, &*longer, "db"]);
        let tools = ["x".repeat(100), format!("{}y", "x".repeat(99)), "é".repeat(90)];
        let mut all = std::collections::HashSet::new();
        for server in [&*long, &*longer, "db"] {
            for tool in &tools {
                let outer = names.outer(server, tool);
                assert_eq!(outer.chars().count(), LIMIT);
                assert!(is_cut(&outer), "{outer}");
                assert_eq!(names.split(&outer).unwrap().0, server);
                assert!(all.insert(outer));
            }
            assert!(names.prefix(server).len() <= PREFIX_LIMIT);
        }
        let fits = "x".repeat(LIMIT - 4);
        assert_eq!(names.outer("db", &fits), format!("db__{fits}"));
        assert!(!is_cut(&names.outer("db", &fits)));
    }
}
