//! Cookie `mcp_session_id`.

use http::{HeaderMap, HeaderValue, header};
use stayput_core::{Expiry, Handle};
use stayput_wire::header as mcp;

/// Attributes of the cookie. It is always `HttpOnly`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cookie {
    /// Whether the cookie is sent over TLS only. Defaults to true; browsers make an exception for localhost.
    pub secure: bool,
    /// Sites that the cookie is sent from. Defaults to [`SameSite::Strict`].
    pub same_site: SameSite,
}

/// Attribute `SameSite` of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SameSite {
    /// Requests from the same site only.
    Strict,
    /// Requests of this site, and links from other sites.
    Lax,
    /// All requests. Implies [`Cookie::secure`].
    None,
}

impl Default for Cookie {
    fn default() -> Self {
        Self { secure: true, same_site: SameSite::Strict }
    }
}

impl Cookie {
    /// Returns the cookie without `Secure`.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.secure = false;
        self
    }

    /// Returns the cookie with this `SameSite`.
    #[must_use]
    pub fn same_site(mut self, sites: SameSite) -> Self {
        self.same_site = sites;
        self
    }

    /// Returns `Set-Cookie` with a handle, or to delete the cookie. R046, R047: it expires with the session.
    #[must_use]
    pub fn set_cookie(self, handle: Option<&Handle>, expiry: Expiry) -> Option<HeaderValue> {
        let age = [expiry.idle, expiry.absolute].into_iter().flatten().min();
        let age = if handle.is_some() { age.map(|age| age.as_secs()) } else { Some(0) };
        let secure = self.secure || self.same_site == SameSite::None;
        let sites = match self.same_site {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        };
        let value = handle.map_or("", Handle::expose);
        let line = mcp::set_session_cookie(value, secure, sites, age);
        let mut line = HeaderValue::try_from(line).ok()?;
        line.set_sensitive(true);
        Some(line)
    }
}

/// Returns the value of the session cookie of a request. If there are two with different values, neither counts, and
/// the result is empty, which names no session: a neighbouring host can add a cookie in a browser, and must not choose
/// the session.
#[must_use]
pub fn read_cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut values = lines.flat_map(mcp::session_cookies);
    let first = values.next()?;
    Some(if values.all(|value| value == first) { first } else { "" })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// R047: HttpOnly, Secure, SameSite and Max-Age are set.
    #[test]
    fn cookie_header_has_all_attributes() {
        let handle = Handle::generate();
        let header = |cookie: Cookie, handle: Option<&Handle>, expiry| {
            cookie.set_cookie(handle, expiry).unwrap().to_str().unwrap().to_owned()
        };
        let plain = header(Cookie::default(), Some(&handle), Expiry::default());
        let value = handle.expose();
        assert_eq!(
            plain,
            format!(
                "mcp_session_id={value}; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=1800"
            )
        );
        let idle = Expiry::idle(Duration::from_secs(60));
        let open = Cookie::default().insecure().same_site(SameSite::Lax);
        assert!(header(open, Some(&handle), idle).ends_with("HttpOnly; SameSite=Lax; Max-Age=60"));
        assert!(
            header(open.same_site(SameSite::None), None, idle)
                .ends_with("Secure; SameSite=None; Max-Age=0")
        );
        assert!(!header(open, Some(&handle), Expiry::NEVER).contains("Max-Age"));
    }

    #[test]
    fn session_cookie_is_found_among_others() {
        let header = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            read_cookie(&headers).map(str::to_owned)
        };
        assert_eq!(header(&["a=b; mcp_session_id=sp_x; c=d"]).as_deref(), Some("sp_x"));
        assert_eq!(header(&["a=b", "mcp_session_id=y"]).as_deref(), Some("y"));
        assert_eq!(header(&["xmcp_session_id=y"]), None);
        assert_eq!(header(&["mcp_session_id=y; mcp_session_id=y"]).as_deref(), Some("y"));
        assert_eq!(header(&["mcp_session_id=y; mcp_session_id=z"]).as_deref(), Some(""));
        assert_eq!(header(&["mcp_session_id=y", "mcp_session_id=z"]).as_deref(), Some(""));
    }
}
