//! Logins of browsers at the dashboard. A browser sends its token once and gets a cookie, which scripts cannot read.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use stayput_core::{Clock as _, SystemClock, Timestamp};
use stayput_sync::Mutex;

use super::TokenHash;

/// Header with a random text that the page has made at its login, and sends with every request. The page of another site
/// cannot add the header, and a server on another port of this machine, to which browsers send the cookie too, does not
/// know the text.
const PAGE_HEADER: HeaderName = HeaderName::from_static("stayput-page");

/// Smallest length of that text: 128 random bits.
const MIN_PAGE_SECRET: usize = 22;

/// Returns the random text of the page that has sent this request.
pub(crate) fn page_secret(headers: &HeaderMap) -> Option<&str> {
    let secret = headers.get(PAGE_HEADER)?.to_str().ok()?;
    (secret.len() >= MIN_PAGE_SECRET).then_some(secret)
}

/// Beginning of the name of the cookie.
pub(crate) const COOKIE_PREFIX: &str = "stayput_page_";

/// Time after which a browser has to log in again.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Largest number of logins. The one that expires first makes room.
const MAX_LOGINS: usize = 256;

/// Logins of browsers, each with its principal.
#[derive(Debug)]
pub(crate) struct Logins<T> {
    /// Name of the cookie. It is random, because browsers send a cookie of one local port to all of them.
    cookie: String,
    known: Mutex<HashMap<TokenHash, Login<T>>>,
}

#[derive(Debug)]
struct Login<T> {
    principal: T,
    until: Timestamp,
}

impl<T> Default for Logins<T> {
    fn default() -> Self {
        let mut bytes = [0; 4];
        // Without randomness all gateways of this machine have the same name, which is only inconvenient.
        let _ = getrandom::fill(&mut bytes);
        let mut cookie = COOKIE_PREFIX.to_owned();
        for byte in bytes {
            let _ = write!(cookie, "{byte:02x}");
        }
        Self { cookie, known: Mutex::default() }
    }
}

impl<T: Clone> Logins<T> {
    /// Adds a login of the page with this secret, until at most `until`. Returns the `Set-Cookie` header. `secure` means
    /// that the browser sends the cookie over TLS only.
    ///
    /// # Errors
    /// If the system has no source of randomness.
    pub(crate) fn add(
        &self,
        principal: T,
        page: &str,
        until: Option<Timestamp>,
        secure: bool,
    ) -> Result<HeaderValue, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        let value = URL_SAFE_NO_PAD.encode(bytes);
        let now = SystemClock.now();
        let latest = now.after(LIFETIME);
        let until = until.map_or(latest, |until| until.min(latest));
        let mut known = self.known.lock();
        known.retain(|_, login| login.until > now);
        if known.len() >= MAX_LOGINS
            && let Some(first) = known.iter().min_by_key(|(_, it)| it.until).map(|(hash, _)| *hash)
        {
            known.remove(&first);
        }
        known.insert(key(&value, page), Login { principal, until });
        Ok(self.line(&value, until.since(now).as_secs(), secure))
    }

    /// Returns the principal of the login whose cookie and page secret a request carries.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<T> {
        let hash = key(self.read(headers)?, page_secret(headers)?);
        let known = self.known.lock();
        let login = known.get(&hash).filter(|login| login.until > SystemClock.now())?;
        Some(login.principal.clone())
    }

    /// Removes the login of a request. Returns the header that removes the cookie.
    pub(crate) fn remove(&self, headers: &HeaderMap) -> HeaderValue {
        if let (Some(value), Some(page)) = (self.read(headers), page_secret(headers)) {
            self.known.lock().remove(&key(value, page));
        }
        self.line("", 0, false)
    }

    fn line(&self, value: &str, seconds: u64, secure: bool) -> HeaderValue {
        let (name, secure) = (&self.cookie, if secure { "; Secure" } else { "" });
        let line =
            format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
        // Base64 and hexadecimal digits are valid in a header.
        HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""))
    }

    fn read<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).map(str::trim);
        pairs.find_map(|pair| pair.strip_prefix(&*self.cookie)?.strip_prefix('='))
    }
}

/// Hash of a cookie and of the secret of its page.
fn key(cookie: &str, page: &str) -> TokenHash {
    TokenHash::new(&format!("{cookie} {page}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "a-secret-of-this-page-1";

    fn headers(cookie: &HeaderValue, page: Option<&'static str>) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("other=1; {pair}").parse().unwrap());
        if let Some(page) = page {
            headers.insert(PAGE_HEADER, HeaderValue::from_static(page));
        }
        headers
    }

    #[test]
    fn cookie_leads_to_the_principal_until_it_expires() {
        let logins = Logins::default();
        let cookie = logins.add("ann", PAGE, None, true).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(text.ends_with("; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"), "{text}");
        assert_eq!(logins.find(&headers(&cookie, Some(PAGE))), Some("ann"));
        assert_eq!(logins.find(&headers(&cookie, None)), None, "a foreign page has no header");
        let other = Some("a-secret-of-this-page-2");
        assert_eq!(logins.find(&headers(&cookie, other)), None, "the cookie alone is stolen");
        assert!(
            logins.remove(&headers(&cookie, Some(PAGE))).to_str().unwrap().contains("Max-Age=0")
        );
        assert_eq!(logins.find(&headers(&cookie, Some(PAGE))), None);
        let past = logins.add("bob", PAGE, Some(SystemClock.now()), false).unwrap();
        assert_eq!(logins.find(&headers(&past, Some(PAGE))), None);
    }

    #[test]
    fn number_of_logins_has_a_limit() {
        let logins = Logins::default();
        let all: Vec<_> =
            (0..MAX_LOGINS + 9).map(|n| logins.add(n, PAGE, None, false).unwrap()).collect();
        let found = all.iter().filter(|it| logins.find(&headers(it, Some(PAGE))).is_some()).count();
        assert_eq!(found, MAX_LOGINS);
    }
}
