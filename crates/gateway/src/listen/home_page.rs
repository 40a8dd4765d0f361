//! Page for people who open a URL of the gateway in a browser.

use http::{HeaderValue, Method, Response, header, request::Parts};
use stayput_wire::header as mcp;

use crate::{
    reply::{self, Reply},
    state::AppState,
};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:3em auto;padding:0 1em}code{background:#8882;\
                     padding:.1em .3em}";

/// Policy of the page: it loads and runs nothing.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
);

/// Whether a browser asks for `/`, or for the URL of a server. Clients that do not name `text/html`, or want an event
/// stream, are served as MCP clients.
pub(super) fn is_wanted(head: &Parts) -> bool {
    if head.method != Method::GET {
        return false;
    }
    let path = head.uri.path();
    let is_known = path == "/" || path == "/mcp" || path.starts_with("/mcp/");
    let accepted = head.headers.get_all(header::ACCEPT);
    let has = |kind: &str| accepted.iter().any(|it| it.to_str().is_ok_and(|it| it.contains(kind)));
    is_known && has("text/html") && !has(mcp::EVENT_STREAM)
}

/// Builds the page. `seen` is the application state as the client sees it, or `None` if the client has no credentials:
/// then the page names no server.
pub(super) fn answer(seen: Option<&AppState>) -> Response<Reply> {
    let content = match seen {
        Some(app) => servers(app),
        None => "<p>This gateway asks its clients for credentials. An MCP client connects to \
                 <code>/mcp</code> or <code>/mcp/SERVER</code> with its token.</p>"
            .to_owned(),
    };
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Stayput</title><style>{STYLE}</style></head>\n\
         <body><h1>Stayput</h1>\n<p>This is a gateway for MCP clients. Give one of its URLs to such a client; a browser gets this page \
         at each of them.</p>\n\
         {content}\n</body></html>\n"
    );
    let mut response = reply::page(page);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Lists the servers with their paths.
fn servers(app: &AppState) -> String {
    if app.servers.is_empty() {
        return "<p>No server is configured.</p>".to_owned();
    }
    let item = |name: &String| {
        let name = escape(name);
        format!("<li><b>{name}</b>: <code>/mcp/{name}</code></li>")
    };
    let items: Vec<String> = app.servers.keys().map(item).collect();
    format!(
        "<p>Its servers:</p>\n<ul>\n{}\n</ul>\n<p>All of them at once: <code>/mcp</code>. Your own program names its conversation \
         behind the URL, <code>/~NAME</code>. On the machine of the gateway, <code>stayput status</code> and <code>stayput \
         sessions</code> show what runs.</p>",
        items.join("\n")
    )
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("<b>&\"x\""), "&lt;b&gt;&amp;&quot;x&quot;");
    }
}
