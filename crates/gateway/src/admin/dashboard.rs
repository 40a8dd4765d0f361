//! Files of the dashboard, a page that shows the admin API in a browser. They hold no data, so anybody may load them.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use super::Refusal;
use crate::reply::{self, Reply};

/// Path to which a browser posts its token, and path that ends its login.
pub(crate) const LOGIN: &str = "/ui/login";
pub(crate) const LOGOUT: &str = "/ui/logout";

/// Policy of the page: it loads its own files only, and talks to nothing but the gateway.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";

/// File of the page: its name, content type and content.
type File = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($($name:literal: $kind:ident,)*) => {
        [$(($name, $kind, include_str!(concat!("../../ui/", $name)))),*]
    };
}

const FILES: [File; 16] = files! {
    "index.html": HTML,
    "app.css": STYLE,
    "icon.svg": ICON,
    "app.js": SCRIPT,
    "api.js": SCRIPT,
    "dom.js": SCRIPT,
    "format.js": SCRIPT,
    "theme.js": SCRIPT,
    "confirm-dialog.js": SCRIPT,
    "spark-line.js": SCRIPT,
    "virtual-table.js": SCRIPT,
    "view-login.js": SCRIPT,
    "view-overview.js": SCRIPT,
    "view-sessions.js": SCRIPT,
    "view-session.js": SCRIPT,
    "view-events.js": SCRIPT,
};

/// Answers a request for a file of the page. `None` if the path does not belong to it.
pub(crate) fn file(method: &Method, path: &str) -> Option<Response<Reply>> {
    let rest = path.strip_prefix("/ui")?;
    if rest.is_empty() {
        return Some(redirect());
    }
    let name = rest.strip_prefix('/').filter(|_| path != LOGIN && path != LOGOUT)?;
    let name = if name.is_empty() { "index.html" } else { name };
    let Some((_, kind, text)) = FILES.iter().find(|file| file.0 == name) else {
        return Some(refusal(StatusCode::NOT_FOUND, "the page has no such file"));
    };
    if method != Method::GET && method != Method::HEAD {
        return Some(super::only("GET").response());
    }
    let body =
        if method == Method::HEAD { Bytes::new() } else { Bytes::from_static(text.as_bytes()) };
    let mut response = Response::new(Reply::Whole(body, None));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    protect(headers);
    Some(response)
}

/// Leads a browser to the page. With the slash at its end, the names in the page lead below `/ui`, also behind a proxy
/// that adds a prefix.
pub(crate) fn redirect() -> Response<Reply> {
    let mut redirect = reply::status(StatusCode::PERMANENT_REDIRECT);
    redirect.headers_mut().insert(header::LOCATION, HeaderValue::from_static("ui/"));
    redirect
}

/// Adds the headers that protect the page and the answers that it reads.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Builds the answer to a login or logout, which sets the cookie.
pub(crate) fn with_cookie(cookie: HeaderValue) -> Response<Reply> {
    let mut response = reply::status(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    protect(response.headers_mut());
    response
}

/// Builds a refusal in the form of the admin API.
pub(crate) fn refusal(status: StatusCode, sentence: &str) -> Response<Reply> {
    let mut response = Refusal::new(status, sentence).response();
    protect(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_served_and_nothing_else() {
        let get = |path| file(&Method::GET, path).map(|answer| answer.status().as_u16());
        assert_eq!((get("/ui"), get("/ui/"), get("/ui/app.js")), (Some(308), Some(200), Some(200)));
        assert_eq!((get("/ui/../app.js"), get("/ui/x.js")), (Some(404), Some(404)));
        assert_eq!((get("/uix"), get("/mcp"), get(LOGIN)), (None, None, None));
        let posted = file(&Method::POST, "/ui/").unwrap();
        assert_eq!(posted.status(), 405);
    }

    /// The policy forbids inline scripts and styles, so the page has none.
    #[test]
    fn page_has_no_inline_code_and_no_foreign_address() {
        for (name, _, text) in FILES {
            let lower = text.to_lowercase();
            for bad in ["<style", " style=", " onclick=", "javascript:", "innerhtml", "eval("] {
                assert!(!lower.contains(bad), "{name} has {bad}");
            }
            let foreign = lower.match_indices("://").filter(|(at, _)| {
                !lower[..*at].ends_with("http") || !lower[*at..].starts_with("://www.w3.org/")
            });
            assert_eq!(foreign.count(), 0, "{name}");
        }
    }
}
