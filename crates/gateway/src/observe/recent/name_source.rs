//! Part of a request that named its session.

/// Part of a request that named its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSource {
    /// Argument of the tool call.
    Argument,
    /// Member of `_meta`.
    Meta,
    /// Header `Stayput-Session`.
    Header,
    /// Key in the path.
    Path,
    /// Source of `identify.also`.
    Custom,
    /// Hint of the host, such as a thread id.
    Hint,
    /// Connection that the request came on.
    Connection,
    Cookie,
    /// Policy `mint`: the call got a new session.
    Minted,
    /// Policy `owner`: all such calls of the owner share a session.
    Owner,
    /// Session for this one call.
    Ephemeral,
}

/// Class of sources. A request belongs to the session of the first class that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameClass {
    Explicit,
    Hint,
    Connection,
    Policy,
}

impl NameSource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::Meta => "meta",
            Self::Header => "header",
            Self::Path => "path",
            Self::Custom => "custom",
            Self::Hint => "hint",
            Self::Connection => "connection",
            Self::Cookie => "cookie",
            Self::Minted => "minted",
            Self::Owner => "owner",
            Self::Ephemeral => "ephemeral",
        }
    }

    pub(crate) fn class(self) -> NameClass {
        match self {
            Self::Argument | Self::Meta | Self::Header | Self::Path | Self::Custom => {
                NameClass::Explicit
            }
            Self::Hint => NameClass::Hint,
            Self::Connection | Self::Cookie => NameClass::Connection,
            Self::Minted | Self::Owner | Self::Ephemeral => NameClass::Policy,
        }
    }
}

impl NameClass {
    const ALL: [Self; 4] = [Self::Explicit, Self::Hint, Self::Connection, Self::Policy];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Hint => "hint",
            Self::Connection => "connection",
            Self::Policy => "policy",
        }
    }

    /// Returns the classes that would have counted before this one, and were absent.
    pub(crate) fn absent(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().take_while(move |class| *class != self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_before_the_one_that_counted_were_absent() {
        let absent = |source: NameSource| source.class().absent().collect::<Vec<_>>();
        assert_eq!(absent(NameSource::Header), []);
        assert_eq!(absent(NameSource::Connection), [NameClass::Explicit, NameClass::Hint]);
        assert_eq!(absent(NameSource::Ephemeral).len(), 3);
    }
}
