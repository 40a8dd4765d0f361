//! Admin API, for operators. It is served on the Unix socket of the data folder, and over HTTP to principals with the
//! role `admin`.
//!
//! | path | file |
//! |---|---|
//! | `/admin/sessions`, `/admin/sessions/{id}`, `/admin/sessions/{id}/links/{server}` | `sessions.rs`, `search.rs`, `detail.rs` |
//! | `/admin/servers` | `servers.rs` |
//! | `/admin/status` | `status.rs` |
//! | `/admin/drain` | `drain.rs` |
//! | `/admin/events`, `/admin/samples` | `events.rs`, `sampler.rs` |
//! | `/admin/openapi.json` | `openapi.json`, which describes all of them |
//!
//! `dashboard.rs` serves the page that uses it.

pub(crate) mod dashboard;
mod detail;
mod drain;
mod events;
mod query;
mod sampler;
mod search;
mod servers;
mod sessions;
mod status;
mod view;

use std::sync::Arc;

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde::Serialize;
use stayput_wire::percent;

use crate::{
    auth::Principal,
    reply::{self, HeldBy, Reply},
    state::AppState,
};
use query::Query;
pub(crate) use query::encoded;
use stayput_core::Holder;

/// OpenAPI document of the admin API.
const OPENAPI: &str = include_str!("openapi.json");

/// Error answer of the admin API.
struct Refusal {
    status: StatusCode,
    sentence: String,
    /// Replica that holds the session of the request.
    held_by: Option<Box<HeldBy>>,
}

type Answer = Result<Response<Reply>, Refusal>;

impl Refusal {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into(), held_by: None }
    }

    /// Refuses a request for a session that another process holds. It is forwarded to a process with an address.
    fn held_by(holder: &Holder) -> Self {
        let sentence = format!("the session is held by {}", holder.id);
        let held_by = (!holder.address.is_empty()).then(|| HeldBy::unnamed(holder.clone()));
        Self { held_by, ..Self::new(StatusCode::CONFLICT, sentence) }
    }

    fn response(&self) -> Response<Reply> {
        let mut response = json(&serde_json::json!({ "error": self.sentence }));
        *response.status_mut() = self.status;
        reply::held_elsewhere(&mut response, self.held_by.clone());
        response
    }
}

impl From<stayput_core::SessionOpenError> for Refusal {
    fn from(error: stayput_core::SessionOpenError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

/// Whether a path belongs to the admin API.
pub(crate) fn has(path: &str) -> bool {
    path.strip_prefix("/admin").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request of an administrator. Other principals get 403.
pub(crate) async fn answer(
    app: &Arc<AppState>,
    principal: &Principal,
    head: &Parts,
) -> Response<Reply> {
    if !principal.admin {
        let sentence = "this is for who runs the gateway: come with a token that has the role `admin`, or by \
                        the socket, as `stayput sessions` does";
        return Refusal::new(StatusCode::FORBIDDEN, sentence).response();
    }
    let mut response = match route(app, principal, head).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(),
    };
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

/// Operations of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    ListSessions,
    ShowSession,
    EndSession,
    EndLink,
    ListServers,
    ShowStatus,
    ShowDrain,
    BeginDrain,
    ShowSamples,
    FollowEvents,
    ShowDocument,
}

/// All operations, as in `openapi.json`.
const ROUTES: [(Route, Method, &str); 11] = [
    (Route::ListSessions, Method::GET, "/admin/sessions"),
    (Route::ShowSession, Method::GET, "/admin/sessions/{id}"),
    (Route::EndSession, Method::DELETE, "/admin/sessions/{id}"),
    (Route::EndLink, Method::DELETE, "/admin/sessions/{id}/links/{server}"),
    (Route::ListServers, Method::GET, "/admin/servers"),
    (Route::ShowStatus, Method::GET, "/admin/status"),
    (Route::ShowDrain, Method::GET, "/admin/drain"),
    (Route::BeginDrain, Method::POST, "/admin/drain"),
    (Route::ShowSamples, Method::GET, "/admin/samples"),
    (Route::FollowEvents, Method::GET, "/admin/events"),
    (Route::ShowDocument, Method::GET, "/admin/openapi.json"),
];

/// Returns the parts of a path at the braces of its form, at most two. `None` if the path does not match.
fn parts<'p>(form: &str, path: &'p str) -> Option<[&'p str; 2]> {
    let (mut form, mut path) = (form.split('/'), path.split('/'));
    let (mut found, mut count) = ([""; 2], 0);
    loop {
        match (form.next(), path.next()) {
            (None, None) => return Some(found),
            (Some(name), Some(part)) if name.starts_with('{') && !part.is_empty() => {
                *found.get_mut(count)? = part;
                count += 1;
            }
            (Some(name), Some(part)) if name == part => {}
            _ => return None,
        }
    }
}

async fn route(app: &Arc<AppState>, principal: &Principal, head: &Parts) -> Answer {
    let Parts { method, uri, headers, .. } = head;
    let (query, path) = (Query::parse(uri)?, uri.path());
    let here = || ROUTES.iter().filter_map(|it| Some((it.0, &it.1, parts(it.2, path)?)));
    let Some((route, _, [id, server])) = here().find(|(_, known, _)| *known == method) else {
        let methods: Vec<_> = here().map(|(_, method, _)| method.as_str()).collect();
        return Err(match methods.is_empty() {
            true => {
                let sentence = "there is nothing here; /admin/openapi.json tells what there is";
                Refusal::new(StatusCode::NOT_FOUND, sentence)
            }
            false => only(&methods.join(" and ")),
        });
    };
    if !matches!(route, Route::ListSessions | Route::FollowEvents) {
        query.only(&[])?;
    }
    match route {
        Route::ListSessions => sessions::list(app, &query).await,
        Route::ShowSession => sessions::show(app, id).await,
        Route::EndSession => sessions::end(app, id).await,
        Route::EndLink => {
            let server =
                percent::decode_text(server).ok_or_else(|| query::bad("the server is not text"))?;
            sessions::end_link(app, id, &server).await
        }
        Route::ListServers => servers::list(app).await,
        Route::ShowStatus => Ok(status::show(app)),
        Route::ShowDrain => Ok(drain::show(app)),
        Route::BeginDrain => drain::begin(app).await,
        Route::ShowSamples => Ok(events::samples(app)),
        Route::FollowEvents => events::follow(app, &query, (principal, headers)),
        Route::ShowDocument => Ok(reply::message(OPENAPI)),
    }
}

fn only(methods: &str) -> Refusal {
    let sentence = format!("there is only {methods} here");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, sentence)
}

fn json(value: &impl Serialize) -> Response<Reply> {
    // Serialisation cannot fail: all map keys are strings, and all numbers have a JSON form.
    reply::message(serde_json::to_vec(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The document contains exactly the routes.
    #[test]
    fn openapi_document_has_exactly_the_routes() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let mut described: Vec<(String, String)> = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(!id.is_empty() && operation["summary"].is_string(), "{path}");
                described.push((method.to_uppercase(), path.clone()));
            }
        }
        let routes = ROUTES.map(|(_, method, path)| (method.to_string(), path.to_owned()));
        let mut routes = routes.to_vec();
        described.sort();
        routes.sort();
        assert_eq!(described, routes);
    }

    #[test]
    fn path_matches_one_form() {
        assert_eq!(parts("/admin/sessions/{id}", "/admin/sessions/7"), Some(["7", ""]));
        assert_eq!(parts("/admin/sessions", "/admin/sessions"), Some(["", ""]));
        let link = "/admin/sessions/{id}/links/{server}";
        assert_eq!(parts(link, "/admin/sessions/7/links/a%20b"), Some(["7", "a%20b"]));
        assert_eq!(parts(link, "/admin/sessions/7/links"), None);
        for path in ["/admin/sessions/", "/admin/sessions/7/8", "/admin/sessions7"] {
            assert_eq!(parts("/admin/sessions/{id}", path), None, "{path}");
            assert_eq!(parts("/admin/sessions", path), None, "{path}");
        }
        assert!(has("/admin") && has("/admin/x") && !has("/administration") && !has("/mcp/admin"));
    }
}
