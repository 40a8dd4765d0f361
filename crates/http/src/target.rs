//! Target of a request: a checked URL.

use std::{fmt, sync::Arc};

use ::http::{HeaderValue, Uri, uri::PathAndQuery};
use url::Url;

use super::basic;

/// Checked http or https URL, cheap to clone and to use.
///
/// User and password of the URL become the `Authorization: Basic` header of each request without one of its
/// own. They are stored in no other place, and neither `Display` nor `Debug` shows them or the query.
///
/// ```
/// use stayput_http::Target;
///
/// let target = Target::parse("https://ann:secret@Example.com:443/mcp?key=secret")?;
/// assert_eq!(target.to_string(), "https://example.com/mcp");
/// assert_eq!(target.origin(), "https://example.com");
/// # Ok::<(), stayput_http::TargetError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target(Arc<Parts>);

#[derive(PartialEq, Eq, Hash)]
struct Parts {
    /// URI without user, password and fragment.
    uri: Uri,
    origin: Arc<str>,
    authorization: Option<HeaderValue>,
}

/// Problem of a URL. The URL is not repeated, because it may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The text is no URL.
    #[error("the URL cannot be read: {0}; write it like https://example.com/mcp")]
    Malformed(url::ParseError),
    /// The scheme is neither http nor https.
    #[error("the URL begins with {0}: and must begin with http: or https:")]
    Scheme(String),
    /// The URL has characters that HTTP cannot send.
    #[error("the URL cannot be sent: {0}; write other characters as %XX")]
    Unsendable(String),
}

impl Target {
    /// Checks `text`, an absolute URL.
    ///
    /// # Errors
    /// If it is not an absolute http or https URL.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let url = Url::parse(text).map_err(TargetError::Malformed)?;
        let authorization = basic::authorization(&url);
        Self::new(url, authorization)
    }

    /// Returns the parts that make two targets different, for a hash. They hold secrets.
    pub fn secret_parts(&self) -> impl Iterator<Item = Vec<u8>> {
        let uri = self.0.uri.to_string().into_bytes();
        let authorization = self.0.authorization.as_ref().map(|it| it.as_bytes().to_vec());
        [uri, authorization.unwrap_or_default()].into_iter()
    }

    /// Resolves `reference`, a path, a query or a whole URL, against `self`.
    ///
    /// At the same origin the credentials of `self` are kept; at any other origin there are none. Credentials
    /// in `reference` are dropped: the server that sent it does not choose what we sign in with.
    ///
    /// # Errors
    /// If the result is not an http or https URL.
    pub fn join(&self, reference: &str) -> Result<Self, TargetError> {
        let base = Url::parse(&self.0.uri.to_string()).map_err(TargetError::Malformed)?;
        let url = base.join(reference).map_err(TargetError::Malformed)?;
        let same = url.origin() == base.origin();
        Self::new(url, self.0.authorization.clone().filter(|_| same))
    }

    /// Returns the target with another path and query at the same origin, with the same credentials. The path is sent as
    /// it is: no `..` in it is resolved, and no character is escaped.
    ///
    /// # Errors
    /// If no request can carry the path.
    pub fn with_path(&self, path: &str) -> Result<Self, TargetError> {
        let unsendable = |error: &dyn fmt::Display| TargetError::Unsendable(error.to_string());
        let path = PathAndQuery::try_from(path).map_err(|error| unsendable(&error))?;
        let mut parts = self.0.uri.clone().into_parts();
        parts.path_and_query = Some(path);
        let uri = Uri::from_parts(parts).map_err(|error| unsendable(&error))?;
        let Parts { origin, authorization, .. } = &*self.0;
        let (origin, authorization) = (origin.clone(), authorization.clone());
        Ok(Self(Arc::new(Parts { uri, origin, authorization })))
    }

    fn new(mut url: Url, authorization: Option<HeaderValue>) -> Result<Self, TargetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme(url.scheme().to_owned()));
        }
        // Both calls fail only for a URL without a host, and these two schemes always have one.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let uri = Uri::try_from(url.as_str());
        let uri = uri.map_err(|error| TargetError::Unsendable(error.to_string()))?;
        let origin = url.origin().ascii_serialization().into();
        Ok(Self(Arc::new(Parts { uri, origin, authorization })))
    }

    /// Returns scheme, host and port, the port only where it is not the default. Two targets with the same
    /// origin are the same server, as in a browser.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    /// Returns the URI for a request.
    pub(super) fn uri(&self) -> &Uri {
        &self.0.uri
    }

    /// Returns the `Authorization` header, if the URL has credentials.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.0.authorization.as_ref()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0.origin, self.0.uri.path())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text).unwrap()
    }

    #[test]
    fn all_spellings_give_one_origin() {
        let spellings =
            ["http://A.test", "http://a.test:80/x", "HTTP://u:p@a.test/?q", "http://a.test/#f"];
        for text in spellings {
            assert_eq!(target(text).origin(), "http://a.test");
        }
        assert_eq!(target("https://a.test:80").origin(), "https://a.test:80");
        assert_eq!(target("http://[::1]:8080/x").to_string(), "http://[::1]:8080/x");
    }

    /// Invariant 8: neither `Display` nor `Debug` nor an error shows a secret.
    #[test]
    fn secrets_are_not_shown() {
        let target = target("http://ann:s3cret@a.test/mcp?key=s3cret#s3cret");
        assert_eq!(format!("{target} {target:?}"), "http://a.test/mcp Target(http://a.test/mcp)");
        assert_eq!(target.uri(), "http://a.test/mcp?key=s3cret");
        for text in ["ftp://ann:s3cret@a.test/", "//s3cret", "http://s3cret:x@", "http://a:s3cret/"]
        {
            let error = Target::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }

    #[test]
    fn reference_is_resolved_against_its_page() {
        let page = target("http://a.test/one/sse?x=1");
        for (reference, meant) in [
            ("/messages?id=7", "http://a.test/messages?id=7"),
            ("messages", "http://a.test/one/messages"),
            ("?id=7", "http://a.test/one/sse?id=7"),
            ("//b.test/x", "http://b.test/x"),
            ("https://b.test:1/x", "https://b.test:1/x"),
        ] {
            assert_eq!(&page.join(reference).unwrap().uri().to_string(), meant);
        }
        assert!(page.join("file:///etc/passwd").is_err());
        assert!(page.join("http://").is_err());
    }

    #[test]
    fn path_is_replaced_as_it_is() {
        let page = target("http://ann:one@a.test/sse");
        let other = page.with_path("/a/../%2e?x=\u{e9}").unwrap();
        assert_eq!(other.uri().to_string(), "http://a.test/a/../%2e?x=\u{e9}");
        assert_eq!(other.origin(), "http://a.test");
        assert_eq!(other.authorization(), page.authorization());
        for path in ["/a b", "/a\r\nx: y"] {
            assert!(page.with_path(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn credentials_stay_at_their_origin() {
        let page = target("http://ann:one@a.test/sse");
        let signed = |reference: &str| page.join(reference).unwrap().authorization().cloned();
        assert_eq!(signed("/messages"), page.authorization().cloned());
        assert_eq!(signed("http://eve:two@a.test/"), page.authorization().cloned());
        assert_eq!(signed("http://a.test:8080/"), None);
        assert_eq!(signed("https://a.test/"), None);
        assert_eq!(signed("http://eve:two@b.test/"), None);
    }
}
