//! What is needed to come back to each server.

use std::{fmt, ops::Index};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::Attachment;

/// What is needed to come back to each server, by the server's name, in the order of names.
///
/// A list and no tree: a session has few servers, most have one, and the smallest tree takes more room than
/// the rest of a record.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attachments(Vec<(String, Attachment)>);

impl Attachments {
    /// None so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, server: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| name.as_str().cmp(server))
    }

    /// What leads to `server`.
    #[must_use]
    pub fn get<S: AsRef<str> + ?Sized>(&self, server: &S) -> Option<&Attachment> {
        self.find(server.as_ref())
            .ok()
            .and_then(|at| self.0.get(at))
            .map(|(_, attachment)| attachment)
    }

    /// What leads to `server`, to be changed.
    pub fn get_mut(&mut self, server: &str) -> Option<&mut Attachment> {
        let at = self.find(server).ok()?;
        self.0.get_mut(at).map(|(_, attachment)| attachment)
    }

    /// Whether something leads to `server`.
    #[must_use]
    pub fn contains_key(&self, server: &str) -> bool {
        self.find(server).is_ok()
    }

    /// Puts what leads to `server` in the place of what was there, and gives that back.
    pub fn insert(&mut self, server: String, mut attachment: Attachment) -> Option<Attachment> {
        // It stays for as long as the session does.
        attachment.body.shrink_to_fit();
        match self.find(&server) {
            Ok(at) => self.0.get_mut(at).map(|(_, before)| std::mem::replace(before, attachment)),
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (server, attachment));
                None
            }
        }
    }

    /// Takes all of them out.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Servers and what leads to them.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Attachment)> {
        self.0.iter().map(|(name, attachment)| (name, attachment))
    }

    /// The names of the servers.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.iter().map(|(name, _)| name)
    }

    /// What leads to each.
    pub fn values(&self) -> impl Iterator<Item = &Attachment> {
        self.iter().map(|(_, attachment)| attachment)
    }
}

impl<'a> IntoIterator for &'a Attachments {
    type Item = (&'a String, &'a Attachment);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'a, (String, Attachment)>,
        fn(&'a (String, Attachment)) -> (&'a String, &'a Attachment),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(name, attachment)| (name, attachment))
    }
}

impl Index<&str> for Attachments {
    type Output = Attachment;

    /// # Panics
    /// If nothing leads to this server.
    fn index(&self, server: &str) -> &Attachment {
        // As a map does.
        &self.0[self.find(server).unwrap_or(self.0.len())].1
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Attachments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, attachment) in self {
            map.serialize_entry(name, attachment)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Attachments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl<'de> de::Visitor<'de> for Named {
            type Value = Attachments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("attachments by the names of servers")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Attachments, A::Error> {
                let mut all = Attachments::new();
                while let Some((name, attachment)) = map.next_entry()? {
                    all.insert(name, attachment);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;

    fn to(body: &str) -> Attachment {
        Attachment::new(Generation(1), body)
    }

    #[test]
    fn names_lead_to_what_was_put_under_them_last() {
        let mut all = Attachments::new();
        for (name, body) in [("shell", "a"), ("browser", "b"), ("notes", "c"), ("shell", "d")] {
            all.insert(name.to_owned(), to(body));
        }
        let listed: Vec<_> = all.iter().map(|(name, it)| (name.as_str(), &*it.body)).collect();
        assert_eq!(listed, [("browser", "b"), ("notes", "c"), ("shell", "d")]);
        assert_eq!(all["notes"], to("c"));
        assert!(all.get("other").is_none() && !all.contains_key("Shell"));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Attachments>(&text).unwrap(), all);
        all.clear();
        assert!(all.is_empty() && serde_json::to_string(&all).unwrap() == "{}");
    }
}
