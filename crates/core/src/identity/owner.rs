//! Security principal that owns sessions.

use std::{
    borrow::Cow,
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
};

use crate::identity::text::{self, InvalidText, serde_as_text};

/// Security principal that a session belongs to, and the first part of every key.
///
/// An owner is the principal behind the credentials, not the credentials: a refreshed token of the
/// same `(issuer, subject)` is the same owner and keeps its sessions.
///
/// ```
/// use stayput_core::Owner;
///
/// let ann = Owner::verified("https://id.example.com", "ann")?;
/// assert_eq!(ann, Owner::verified("https://id.example.com", "ann")?);
/// assert_ne!(ann, Owner::verified("https://id.example.org", "ann")?);
/// # Ok::<(), stayput_core::InvalidText>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

const LOCAL: &str = "local";
const ANONYMOUS: &str = "anonymous";

impl Owner {
    /// Maximum length of an issuer or a subject in bytes.
    pub const MAX_PART_BYTES: usize = 512;

    /// Returns the owner of all sessions in a process that serves one user, as the agent library
    /// does.
    #[must_use]
    pub fn local() -> Self {
        // Every session stores its owner: all local ones share one string.
        static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner(LOCAL.into()));
        OWNER.clone()
    }

    /// Returns the owner of callers without credentials, where these are allowed.
    #[must_use]
    pub fn anonymous() -> Self {
        static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner(ANONYMOUS.into()));
        OWNER.clone()
    }

    /// Returns the principal `subject` of `issuer`. The caller has verified it.
    ///
    /// # Errors
    /// If either is empty, longer than [`Owner::MAX_PART_BYTES`] or unprintable.
    pub fn verified(issuer: &str, subject: &str) -> Result<Self, InvalidText> {
        text::check("the issuer of an owner", issuer, Self::MAX_PART_BYTES)?;
        text::check("the subject of an owner", subject, Self::MAX_PART_BYTES)?;
        Ok(Self(format!("{}#{subject}", escape(issuer)).into()))
    }

    /// Returns the issuer of a verified owner.
    #[must_use]
    pub fn issuer(&self) -> Option<Cow<'_, str>> {
        self.0.split_once('#').map(|(issuer, _)| unescape(issuer))
    }

    /// Returns the subject of a verified owner.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.0.split_once('#').map(|(_, subject)| subject)
    }

    /// Returns the text form, `issuer#subject` for a verified owner. [`str::parse`] reads it back.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes `#` in an issuer, because `#` separates issuer and subject.
fn escape(issuer: &str) -> String {
    issuer.replace('%', "%25").replace('#', "%23")
}

fn unescape(issuer: &str) -> Cow<'_, str> {
    if issuer.contains('%') {
        Cow::Owned(issuer.replace("%23", "#").replace("%25", "%"))
    } else {
        Cow::Borrowed(issuer)
    }
}

impl FromStr for Owner {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let form = || InvalidText::form("an owner", "'local', 'anonymous' or 'issuer#subject'");
        match text {
            LOCAL => Ok(Self::local()),
            ANONYMOUS => Ok(Self::anonymous()),
            _ => {
                let (issuer, subject) = text.split_once('#').ok_or_else(form)?;
                let owner = Self::verified(&unescape(issuer), subject)?;
                // Only one spelling is accepted: a second one would be a second key.
                if owner.as_str() == text { Ok(owner) } else { Err(form()) }
            }
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

serde_as_text!(Owner, as_str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_and_subject_with_separators_stay_distinct() {
        let pairs = [("a", "b#c"), ("a#b", "c"), ("a%23b", "c"), ("a%", "23b#c"), ("a%2", "3b#c")];
        let owners: Vec<_> = pairs
            .iter()
            .map(|(issuer, subject)| Owner::verified(issuer, subject).unwrap())
            .collect();
        for (n, owner) in owners.iter().enumerate() {
            assert_eq!(owner.issuer().as_deref(), Some(pairs[n].0));
            assert_eq!(owner.subject(), Some(pairs[n].1));
            assert_eq!(&owner.as_str().parse::<Owner>().unwrap(), owner);
            assert!(owners[..n].iter().all(|other| other != owner), "{owner} twice");
        }
    }

    #[test]
    fn verified_owner_never_equals_a_built_in_one() {
        assert!(Owner::verified("local", "x").unwrap() != Owner::local());
        assert!(Owner::verified("", "local").is_err());
        assert!("somebody".parse::<Owner>().is_err());
        assert!("a%zz#b".parse::<Owner>().is_err(), "a second spelling of that owner");
    }
}
