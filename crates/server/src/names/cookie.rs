//! The cookie `mcp_session_id`, where it is switched on.

use http::{HeaderMap, HeaderValue, header};
use stayput_core::{Expiry, Handle};
use stayput_wire::header as mcp;

/// How the cookie is set. Scripts never see it, whatever is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cookie {
    /// Whether it goes over TLS alone. Defaults to yes; browsers make an exception for this machine.
    pub secure: bool,
    /// Which sites it is sent from. Defaults to [`SameSite::Strict`].
    pub same_site: SameSite,
}

/// Which sites a cookie is sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SameSite {
    /// This one alone.
    Strict,
    /// And links to this one.
    Lax,
    /// All. Only with [`Cookie::secure`].
    None,
}

impl Default for Cookie {
    fn default() -> Self {
        Self { secure: true, same_site: SameSite::Strict }
    }
}

impl Cookie {
    /// The same, also without TLS.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.secure = false;
        self
    }

    /// The same, sent from these sites.
    #[must_use]
    pub fn same_site(mut self, sites: SameSite) -> Self {
        self.same_site = sites;
        self
    }

    /// `Set-Cookie` for a handle, or to forget one. R046, R047: it ends with the session.
    pub(crate) fn set_cookie(self, handle: Option<&Handle>, expiry: Expiry) -> Option<HeaderValue> {
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

/// What the cookie of a request says.
pub(crate) fn read(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.find_map(mcp::session_cookie)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// R047: what no script reads, what goes over TLS, to no other site, and for how long.
    #[test]
    fn a_cookie_says_all_that_keeps_it() {
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
    fn the_cookie_is_found_among_others() {
        let header = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            read(&headers).map(str::to_owned)
        };
        assert_eq!(header(&["a=b; mcp_session_id=sp_x; c=d"]).as_deref(), Some("sp_x"));
        assert_eq!(header(&["a=b", "mcp_session_id=y"]).as_deref(), Some("y"));
        assert_eq!(header(&["xmcp_session_id=y"]), None);
    }
}
