//! URLs of stores.

use std::{fmt, path::PathBuf, str::FromStr};

use url::Url;

/// Address of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// `memory:`
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://…` or `postgresql://…`
    Postgres(PostgresAddress),
    /// `redis://…` or `rediss://…`
    Redis(RedisAddress),
}

/// Address of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    /// URL without the parts in the other fields. It may hold a password.
    pub(crate) url: String,
    pub(crate) tls: Tls,
}

/// Address of a Redis or Valkey server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// URL without the parts in the other fields. It may hold a password.
    pub(crate) url: String,
    /// Prefix of every key.
    pub(crate) prefix: String,
    pub(crate) tls: Tls,
}

/// Encryption of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// No encryption.
    Off,
    /// Verified certificate for the host's name, by a public authority or by the one in this PEM
    /// file.
    Verified(Option<PathBuf>),
}

/// Error in the URL of a store. The URL is not repeated, because it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The kind of store is not known.
    #[error(
        "the URL of a store begins with memory:, sqlite:, postgres:// or redis://, not with '{0}'"
    )]
    Scheme(String),
    /// The URL has no scheme.
    #[error("the URL of a store begins with memory:, sqlite:, postgres:// or redis://")]
    NoScheme,
    /// `memory:` takes no parameters.
    #[error("memory: stands alone; for a file write sqlite:PATH")]
    Memory,
    /// The path of the file is missing.
    #[error("sqlite: needs the path of a file, like sqlite:stayput.db; for no file write memory:")]
    NoPath,
    /// The URL has a host.
    #[error(
        "sqlite: has no host; write sqlite:PATH, or sqlite:///PATH for one that begins at the root"
    )]
    SqliteHost,
    /// The text is not a URL.
    #[error("the URL of the {kind} store cannot be read: {problem}")]
    Malformed {
        /// Kind of store.
        kind: &'static str,
        /// Error of the parser.
        problem: url::ParseError,
    },
    /// A part is missing.
    #[error("the URL of the {kind} store names no {part}")]
    Missing {
        /// Kind of store.
        kind: &'static str,
        /// Name of the part.
        part: &'static str,
    },
    /// A parameter has an invalid value.
    #[error("{name} in the URL of the {kind} store must be {expected}")]
    Parameter {
        /// Kind of store.
        kind: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// Valid values.
        expected: &'static str,
    },
}

const POSTGRES: &str = "postgres";
const REDIS: &str = "redis";

impl Address {
    /// Returns the kind of store, which is also the name of its feature.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => POSTGRES,
            Self::Redis(_) => REDIS,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once(':').ok_or(AddressError::NoScheme)?;
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(AddressError::Memory),
            "sqlite" if matches!(rest, "" | ":memory:" | "//") || rest.contains('\0') => {
                Err(AddressError::NoPath)
            }
            // As in other URLs, two slashes introduce a host, and there is none.
            "sqlite" if rest.starts_with("//") && !rest.starts_with("///") => {
                Err(AddressError::SqliteHost)
            }
            "sqlite" => Ok(Self::Sqlite(rest.into())),
            "postgres" | "postgresql" => postgres(text).map(Self::Postgres),
            "redis" | "rediss" => redis(text, scheme == "rediss").map(Self::Redis),
            // Only a short word is repeated: the text before the first colon of a mistyped URL may
            // be a user.
            _ if scheme.len() <= 16 && scheme.bytes().all(|c| c.is_ascii_alphanumeric()) => {
                Err(AddressError::Scheme(scheme.to_owned()))
            }
            _ => Err(AddressError::NoScheme),
        }
    }
}

fn postgres(text: &str) -> Result<PostgresAddress, AddressError> {
    let mut url = parse(POSTGRES, text)?;
    let mode = take(&mut url, "sslmode");
    let authority = take(&mut url, "sslrootcert").map(PathBuf::from);
    let tls = match mode.as_deref() {
        // Encryption without verification does not protect, so there is no such mode: all three
        // verify.
        Some("require" | "verify-ca" | "verify-full") => Tls::Verified(authority),
        None if authority.is_some() => Tls::Verified(authority),
        Some("disable") | None => Tls::Off,
        Some(_) => {
            let expected = "disable, require or verify-full";
            return Err(AddressError::Parameter { kind: POSTGRES, name: "sslmode", expected });
        }
    };
    Ok(PostgresAddress { url: url.into(), tls })
}

fn redis(text: &str, encrypted: bool) -> Result<RedisAddress, AddressError> {
    let mut url = parse(REDIS, text)?;
    let prefix = take(&mut url, "prefix").unwrap_or_else(|| "stayput".to_owned());
    let authority = take(&mut url, "sslrootcert").map(PathBuf::from);
    let word = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(word) {
        // A brace would be a hash tag and put all sessions on one node of a cluster.
        let expected = "1 to 64 letters, digits, '-', '_' and '.'";
        return Err(AddressError::Parameter { kind: REDIS, name: "prefix", expected });
    }
    if authority.is_some() && !encrypted {
        let expected = "used with rediss:// only";
        return Err(AddressError::Parameter { kind: REDIS, name: "sslrootcert", expected });
    }
    let tls = if encrypted { Tls::Verified(authority) } else { Tls::Off };
    Ok(RedisAddress { url: url.into(), prefix, tls })
}

fn parse(kind: &'static str, text: &str) -> Result<Url, AddressError> {
    let url = Url::parse(text).map_err(|problem| AddressError::Malformed { kind, problem })?;
    match url.host_str() {
        Some(host) if !host.is_empty() => Ok(url),
        _ => Err(AddressError::Missing { kind, part: "host" }),
    }
}

/// Takes a parameter out of a URL. The last one of several counts.
fn take(url: &mut Url, name: &str) -> Option<String> {
    let pairs: Vec<(String, String)> =
        url.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
    let (taken, kept): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| key == name);
    if !taken.is_empty() {
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
            // A plus is a space in a form only; drivers read it as a plus.
            let query = url.query().map(|query| query.replace('+', "%20"));
            url.set_query(query.as_deref());
        }
    }
    taken.into_iter().last().map(|(_, value)| value)
}

/// Shows only the host: in a mistyped URL a password may be anywhere else.
fn fmt_host(f: &mut fmt::Formatter<'_>, name: &str, url: &str) -> fmt::Result {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    write!(f, "{name}({host})")
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_host(f, "PostgresAddress", &self.url)
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_host(f, "RedisAddress", &self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> String {
        text.parse::<Address>().unwrap_err().to_string()
    }

    #[test]
    fn every_kind_of_url_parses() {
        assert_eq!("memory:".parse(), Ok(Address::Memory));
        assert_eq!("sqlite:a b.db".parse(), Ok(Address::Sqlite("a b.db".into())));
        assert_eq!("sqlite:///x/y".parse(), Ok(Address::Sqlite("///x/y".into())));
        let Ok(Address::Postgres(address)) =
            "postgres://u:p@h/d?sslmode=verify-full&a=b%20%2Bc&sslrootcert=%2Fca.pem".parse()
        else {
            panic!()
        };
        assert_eq!(address.url, "postgres://u:p@h/d?a=b%20%2Bc");
        assert_eq!(address.tls, Tls::Verified(Some("/ca.pem".into())));
        let Ok(Address::Redis(address)) = "rediss://:p@h:1/2?prefix=x".parse() else { panic!() };
        assert_eq!((address.url.as_str(), address.prefix.as_str()), ("rediss://:p@h:1/2", "x"));
        assert_eq!(address.tls, Tls::Verified(None));
    }

    #[test]
    fn invalid_url_is_explained() {
        assert_eq!(
            parse_error(""),
            "the URL of a store begins with memory:, sqlite:, postgres:// or redis://"
        );
        assert!(parse_error("mysql://h/d").ends_with("not with 'mysql'"));
        assert!(parse_error("memory:x").contains("sqlite:PATH"));
        assert!(parse_error("sqlite:").contains("memory:"));
        assert!(parse_error("sqlite://x.db").contains("sqlite:PATH"));
        assert!(parse_error("postgres://").contains("postgres"));
        assert!(parse_error("postgres://h/d?sslmode=prefer").contains("sslmode"));
        assert!(parse_error("redis://h/?prefix=a{b}").contains("prefix"));
        assert!(parse_error("redis://h/?sslrootcert=x").contains("rediss://"));
    }

    /// Invariant 8: no error and no `Debug` shows a password.
    #[test]
    fn password_is_never_shown() {
        for text in [
            "postgres://u:secret@h/d?sslmode=x",
            "redis://:secret@h:x",
            "u:secret@h",
            "secret secret:x",
        ] {
            assert!(!parse_error(text).contains("secret"), "{}", parse_error(text));
        }
        for text in ["postgres://u:secret@h:5/d?password=secret", "redis://:secret@h/2"] {
            let shown = format!("{:?}", text.parse::<Address>().unwrap());
            assert!(!shown.contains("secret") && shown.contains('h'), "{shown}");
        }
    }
}
