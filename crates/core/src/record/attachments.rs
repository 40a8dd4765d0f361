//! Attachments of a session by server.

use std::{fmt, ops::Index};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::Generation;

/// Data to reconnect to one server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Generation of the link.
    pub generation: Generation,
    /// Text that only the creator of the link reads. The creator seals the secrets in it.
    #[serde(default)]
    pub body: String,
    /// Generation up to which the client has acknowledged losses on this server.
    #[serde(default)]
    pub acknowledged: Generation,
}

impl Attachment {
    /// Builds the attachment of a link of this generation.
    #[must_use]
    pub fn new(generation: Generation, body: impl Into<String>) -> Self {
        Self { generation, body: body.into(), acknowledged: Generation::default() }
    }

    /// Returns the loss on this server that the client has not acknowledged.
    pub(super) fn unacknowledged_loss(&self) -> Option<Generation> {
        (self.generation > self.acknowledged).then_some(self.generation)
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment(generation {}, {} bytes)", self.generation, self.body.len())
    }
}

/// Attachments by server name, in the order of the names.
///
/// A sorted list instead of a tree: most sessions have one server, and the smallest tree takes more
/// memory than the rest of a record.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attachments(Vec<(String, Attachment)>);

impl Attachments {
    /// Builds an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, server: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| name.as_str().cmp(server))
    }

    /// Returns the attachment of `server`.
    #[must_use]
    pub fn get<S: AsRef<str> + ?Sized>(&self, server: &S) -> Option<&Attachment> {
        self.find(server.as_ref())
            .ok()
            .and_then(|at| self.0.get(at))
            .map(|(_, attachment)| attachment)
    }

    /// Returns the attachment of `server` for a change.
    pub fn get_mut(&mut self, server: &str) -> Option<&mut Attachment> {
        let at = self.find(server).ok()?;
        self.0.get_mut(at).map(|(_, attachment)| attachment)
    }

    /// Returns whether `server` has an attachment.
    #[must_use]
    pub fn contains_key(&self, server: &str) -> bool {
        self.find(server).is_ok()
    }

    /// Sets the attachment of `server` and returns the previous one.
    pub fn insert(&mut self, server: String, mut attachment: Attachment) -> Option<Attachment> {
        // The body is kept for as long as the session.
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

    /// Removes all attachments.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Returns whether there is no attachment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of attachments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over servers and attachments.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Attachment)> {
        self.0.iter().map(|(name, attachment)| (name, attachment))
    }

    /// Iterates over the names of the servers.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.iter().map(|(name, _)| name)
    }

    /// Iterates over the attachments.
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
    /// If the server has no attachment.
    fn index(&self, server: &str) -> &Attachment {
        // Panics on a missing key, as a map does.
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
        struct AttachmentsVisitor;

        impl<'de> de::Visitor<'de> for AttachmentsVisitor {
            type Value = Attachments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("attachments by server name")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Attachments, A::Error> {
                let mut all = Attachments::new();
                while let Some((name, attachment)) = map.next_entry()? {
                    all.insert(name, attachment);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(AttachmentsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(body: &str) -> Attachment {
        Attachment::new(Generation(1), body)
    }

    #[test]
    fn last_insert_of_a_server_wins() {
        let mut all = Attachments::new();
        for (name, body) in [("shell", "a"), ("browser", "b"), ("notes", "c"), ("shell", "d")] {
            all.insert(name.to_owned(), attachment(body));
        }
        let listed: Vec<_> = all.iter().map(|(name, it)| (name.as_str(), &*it.body)).collect();
        assert_eq!(listed, [("browser", "b"), ("notes", "c"), ("shell", "d")]);
        assert_eq!(all["notes"], attachment("c"));
        assert!(all.get("other").is_none() && !all.contains_key("Shell"));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Attachments>(&text).unwrap(), all);
        all.clear();
        assert!(all.is_empty() && serde_json::to_string(&all).unwrap() == "{}");
    }
}
