//! Names of tools and prompts on the path for all servers.

use std::collections::HashMap;

/// Separator between the server's prefix and the name.
pub(crate) const SEPARATOR: &str = "__";

/// Longest name, in characters. Model vendors do not accept longer ones.
const MAX_NAME_LEN: usize = 64;

/// Longest prefix, so that some characters are left for the name itself.
const PREFIX_LIMIT: usize = 40;

/// Number of hash digits that replace a truncated end.
const HASH_DIGITS: usize = 8;

/// Maps names of servers to prefixes of names, and back.
///
/// A prefix has letters, digits, `-` and single `_`, and does not end with `_`. So the first `__` of a name is always
/// the separator, however the server names its tools, and all names are unique.
#[derive(Debug, Default)]
pub(crate) struct Names {
    servers: HashMap<String, String>,
    prefixes: HashMap<String, String>,
}

impl Names {
    /// Assigns prefixes to these servers. The same servers get the same prefixes.
    pub(crate) fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        // A server whose name is a valid prefix keeps it, whatever other servers there are.
        let (fit, odd): (Vec<&str>, Vec<&str>) =
            servers.into_iter().partition(|server| to_prefix(server) == *server);
        let mut names = Self::default();
        for server in fit.into_iter().chain(odd) {
            let preferred = to_prefix(server);
            let more = (2..).map(|number: u32| format!("{preferred}_{number}"));
            let mut free = std::iter::once(preferred.clone())
                .chain(more)
                .filter(|prefix| !names.servers.contains_key(prefix));
            let prefix = free.next().unwrap_or(preferred.clone());
            names.servers.insert(prefix.clone(), server.to_owned());
            names.prefixes.insert(server.to_owned(), prefix);
        }
        names
    }

    /// Prefix of a server's names, without the separator.
    pub(crate) fn prefix<'a>(&'a self, server: &'a str) -> &'a str {
        self.prefixes.get(server).map_or(server, String::as_str)
    }

    /// Name that clients use for `inner` of `server`. A name that is too long is cut, and ends with a hash.
    pub(crate) fn outer(&self, server: &str, inner: &str) -> String {
        let whole = format!("{}{SEPARATOR}{inner}", self.prefix(server));
        if whole.chars().count() <= MAX_NAME_LEN {
            return whole;
        }
        let head: String = whole.chars().take(MAX_NAME_LEN - HASH_DIGITS - 1).collect();
        format!("{head}_{}", hash(inner))
    }

    /// Splits a client's name into the server and the name there. If the name [`is_cut`], only the full list of the
    /// server tells the original.
    pub(crate) fn split<'a>(&'a self, outer: &'a str) -> Option<(&'a str, &'a str)> {
        let (prefix, inner) = outer.split_once(SEPARATOR)?;
        Some((self.servers.get(prefix)?, inner))
    }
}

/// Whether a name looks truncated.
pub(crate) fn is_cut(outer: &str) -> bool {
    let tail = outer.rsplit_once('_').map_or("", |(_, tail)| tail);
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    outer.chars().count() == MAX_NAME_LEN && tail.len() == HASH_DIGITS && tail.bytes().all(digit)
}

/// Turns the name of a server into a valid prefix.
fn to_prefix(server: &str) -> String {
    let mut prefix = String::new();
    for letter in server.chars() {
        let kept = letter.is_ascii_alphanumeric() || letter == '-';
        let letter = if kept { letter } else { '_' };
        if letter != '_' || !prefix.ends_with('_') {
            prefix.push(letter);
        }
    }
    if prefix.len() > PREFIX_LIMIT {
        prefix.truncate(PREFIX_LIMIT - HASH_DIGITS - 1);
        prefix = format!("{}_{}", prefix.trim_end_matches('_'), hash(server));
    }
    match prefix.trim_end_matches('_') {
        "" => "server".to_owned(),
        prefix => prefix.to_owned(),
    }
}

fn hash(text: &str) -> String {
    let digest = stayput_core::content_digest(text.as_bytes()).to_hex();
    digest.get(..HASH_DIGITS).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_split_back_into_server_and_tool() {
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
    fn valid_server_name_is_kept_as_prefix() {
        let names = Names::new(["a.b", "a_b", "a_b_2", "a__b"]);
        let prefixes = ["a.b", "a_b", "a_b_2", "a__b"].map(|server| names.prefix(server));
        assert_eq!(prefixes, ["a_b_3", "a_b", "a_b_2", "a_b_4"]);
    }

    #[test]
    fn long_names_are_truncated_and_unique() {
        let (long, longer) = ("s".repeat(64), format!("{}t", "s".repeat(63)));
        let names = Names::new([&*long, &*longer, "db"]);
        let tools = ["x".repeat(100), format!("{}y", "x".repeat(99)), "é".repeat(90)];
        let mut all = std::collections::HashSet::new();
        for server in [&*long, &*longer, "db"] {
            for tool in &tools {
                let outer = names.outer(server, tool);
                assert_eq!(outer.chars().count(), MAX_NAME_LEN);
                assert!(is_cut(&outer), "{outer}");
                assert_eq!(names.split(&outer).unwrap().0, server);
                assert!(all.insert(outer));
            }
            assert!(names.prefix(server).len() <= PREFIX_LIMIT);
        }
        let fits = "x".repeat(MAX_NAME_LEN - 4);
        assert_eq!(names.outer("db", &fits), format!("db__{fits}"));
        assert!(!is_cut(&names.outer("db", &fits)));
    }
}
