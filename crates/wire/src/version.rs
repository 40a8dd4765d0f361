//! Revisions of the protocol, and their eras.

use std::{borrow::Cow, fmt};

/// Revision of MCP, named by its date. Unknown names are kept as they are.
///
/// Revisions are ordered by date. A name that is no date sorts before all dates, so it is never the newest.
///
/// ```
/// use stayput_wire::{Era, Version};
///
/// assert_eq!(Version::from("2025-11-25"), Version::V2025_11_25);
/// assert!(Version::V2025_11_25 < Version::V2026_07_28);
/// assert_eq!(Version::from("2027-01-15").era(), Era::Modern);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Cow<'static, str>);

/// Era of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Up to 2025-11-25: `initialize`, and sessions in the protocol.
    Legacy,
    /// From 2026-07-28 on: every request is self-contained.
    Modern,
}

impl Era {
    /// Name in the configuration and in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }

    /// Returns the era of the revision with this name, without allocation.
    ///
    /// ```
    /// use stayput_wire::Era;
    ///
    /// assert_eq!(Era::from_version("2025-11-25"), Era::Legacy);
    /// assert_eq!(Era::from_version("2026-07-28"), Era::Modern);
    /// assert_eq!(Era::from_version("someday"), Era::Legacy);
    /// ```
    #[must_use]
    pub fn from_version(name: &str) -> Self {
        let modern = name >= Version::V2026_07_28.as_str() && is_date(name);
        if modern { Self::Modern } else { Self::Legacy }
    }
}

fn is_date(name: &str) -> bool {
    let form = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    name.len() == 10 && name.bytes().enumerate().all(form)
}

impl Version {
    /// First revision: HTTP with a separate SSE stream.
    pub const V2024_11_05: Self = Self(Cow::Borrowed("2024-11-05"));
    /// Streamable HTTP, `Mcp-Session-Id`, and batches, which no other revision has.
    pub const V2025_03_26: Self = Self(Cow::Borrowed("2025-03-26"));
    /// Version header, elicitation, no batches.
    pub const V2025_06_18: Self = Self(Cow::Borrowed("2025-06-18"));
    /// Last revision with `initialize`.
    pub const V2025_11_25: Self = Self(Cow::Borrowed("2025-11-25"));
    /// First revision without sessions.
    pub const V2026_07_28: Self = Self(Cow::Borrowed("2026-07-28"));

    /// Known revisions, oldest first.
    pub const KNOWN: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// Newest known revision.
    pub const LATEST: Self = Self::V2026_07_28;

    /// Newest legacy revision.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;

    /// Revision of a legacy HTTP request without version header.
    pub const ASSUMED: Self = Self::V2025_03_26;

    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of a known revision as a static string.
    #[must_use]
    pub fn known_name(&self) -> Option<&'static str> {
        match self.0 {
            Cow::Borrowed(name) => Some(name),
            Cow::Owned(_) => None,
        }
    }

    /// Returns the era.
    #[must_use]
    pub fn era(&self) -> Era {
        Era::from_version(&self.0)
    }

    /// Returns whether this version is one of [`Version::KNOWN`].
    #[must_use]
    pub fn is_known(&self) -> bool {
        Self::KNOWN.contains(self)
    }

    /// Returns whether a body may be a batch.
    #[must_use]
    pub fn has_batches(&self) -> bool {
        *self == Self::V2025_03_26
    }
}

impl From<&str> for Version {
    fn from(name: &str) -> Self {
        // A known name needs no allocation.
        let known = Self::KNOWN.into_iter().find(|version| version.as_str() == name);
        known.unwrap_or_else(|| Self(Cow::Owned(name.to_owned())))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (is_date(&self.0), &self.0).cmp(&(is_date(&other.0), &other.0))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_revisions_are_in_order_and_split_by_era() {
        assert!(Version::KNOWN.is_sorted());
        let modern = |version: &&Version| version.era() == Era::Modern;
        assert_eq!(Version::KNOWN.iter().filter(modern).count(), 1);
        assert_eq!(Version::KNOWN.iter().max(), Some(&Version::LATEST));
        let legacy = Version::KNOWN.iter().filter(|version| !modern(version)).max();
        assert_eq!(legacy, Some(&Version::LATEST_LEGACY));
    }

    #[test]
    fn unknown_versions_are_kept_and_never_preferred() {
        let draft = Version::from("DRAFT-2026-v1");
        assert_eq!(
            (draft.as_str(), draft.era(), draft.is_known()),
            ("DRAFT-2026-v1", Era::Legacy, false)
        );
        assert!(draft < Version::V2024_11_05);
        assert!(Version::from("9999-99-9x") < Version::V2024_11_05);
        let later = Version::from("2026-12-01");
        assert!(later > Version::LATEST && later.era() == Era::Modern && !later.is_known());
    }

    #[test]
    fn only_one_revision_has_batches() {
        assert!(Version::V2025_03_26.has_batches());
        assert_eq!(Version::KNOWN.iter().filter(|version| version.has_batches()).count(), 1);
    }
}
