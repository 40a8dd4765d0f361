//! Headers of requests, and secrets in them.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};
use serde_json::json;
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{
    CallError, Delivery, EraChoice, HeaderProvider, HeaderRequest, Http, Isolation, LinkOpenError,
    Options, ProviderError,
};

use crate::support::{
    call, close, links, open, place,
    remote::{count, error, once, over, status},
    server, server_with, try_call, try_open,
};

const SECRET: &str = "tok-4f1d9a7c55";

/// Provider of `token-1`, and of the next token after each refusal.
#[derive(Debug, Default)]
struct Tokens {
    given: Mutex<(u64, Vec<bool>)>,
    empty: AtomicBool,
}

#[async_trait]
impl HeaderProvider for Tokens {
    fn identity(&self) -> Cow<'_, str> {
        "tokens".into()
    }

    async fn headers(
        &self,
        ask: &HeaderRequest<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderError> {
        tokio::task::yield_now().await;
        if self.empty.load(Ordering::SeqCst) {
            return Err(ProviderError::new("log in again"));
        }
        let mut given = self.given.lock().unwrap();
        given.0 += u64::from(ask.rejected);
        given.1.push(ask.rejected);
        let token = format!("Bearer {SECRET}-{}", given.0);
        Ok(vec![(http::header::AUTHORIZATION, HeaderValue::try_from(token).unwrap())])
    }
}

impl Tokens {
    fn asks(&self) -> Vec<bool> {
        std::mem::take(&mut self.given.lock().unwrap().1)
    }
}

const AUTHORIZATION: &str = r#"{"name":"authorization"}"#;

/// R113, R139: configured headers are on every request.
#[tokio::test]
async fn configured_headers_are_on_every_request() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let transport = Http::new(http.url()).bearer(SECRET).header("x-tenant", "${owner.hash}");
    let link = open(&links, &server(transport, EraChoice::Legacy), &place()).await;
    for _ in 0..2 {
        assert_eq!(call(&link, "header", AUTHORIZATION).await, format!("Bearer {SECRET}"));
        assert!(call(&link, "header", r#"{"name":"x-tenant"}"#).await.len() >= 8);
    }
    close(&links).await;
}

/// R113: the provider is asked for each request, and once more after a refusal. The call runs once.
#[tokio::test]
async fn provider_is_asked_for_every_request() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let tokens = Arc::new(Tokens::default());
    let transport = Http::new(http.url()).provider(tokens.clone());
    let link = open(&links, &server(transport, EraChoice::Legacy), &place()).await;
    assert_eq!(tokens.asks(), [false, false]);
    assert_eq!(count(&link).await, 1);
    http.script(&once("tools/call", &status(401, ""))).await;
    assert_eq!(count(&link).await, 2);
    assert_eq!(tokens.asks(), [false, false, true]);
    assert_eq!(http.counted("tools/count").await, 2);
    assert_eq!(call(&link, "header", AUTHORIZATION).await, format!("Bearer {SECRET}-1"));
    // A second refusal is an error, not another retry.
    http.script(&json!([{ "on": "tools/call", "do": status(401, "") }])).await;
    tokens.asks();
    let refused = try_call(&link, "count", "{}").await.unwrap_err();
    assert!(matches!(refused, CallError::Unauthorized { status: 401, .. }), "{refused:?}");
    assert_eq!((tokens.asks(), over(&link)), (vec![false, true], None));
    close(&links).await;
}

/// If the provider has no token, nothing is sent, and the error says why.
#[tokio::test]
async fn nothing_is_sent_without_credentials() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let tokens = Arc::new(Tokens::default());
    let transport = Http::new(http.url()).provider(tokens.clone());
    let server = server(transport, EraChoice::Legacy);
    let link = open(&links, &server, &place()).await;
    tokens.empty.store(true, Ordering::SeqCst);
    let posts = http.counted("posts").await;
    let failed = try_call(&link, "count", "{}").await.unwrap_err();
    assert_eq!(failed.delivery(), Delivery::NotSent);
    assert!(failed.to_string().contains("log in again"), "{failed}");
    let failed = try_open(&links, &server, &place()).await.unwrap_err();
    assert!(failed.to_string().contains("log in again"), "{failed}");
    assert_eq!((http.counted("posts").await, over(&link)), (posts, None));
    tokens.empty.store(false, Ordering::SeqCst);
    assert_eq!(count(&link).await, 1);
    close(&links).await;
}

/// The challenge of a server reaches the caller, whatever the body contains.
#[tokio::test]
async fn refusal_contains_its_challenge() {
    let challenge = r#"Bearer resource_metadata="https://example.com/x""#;
    let deny = |code: u16, body: &str| {
        let headers = json!([["www-authenticate", challenge]]);
        json!([{ "on": "*", "do": { "status": { "code": code, "body": body, "headers": headers } } }])
    };
    let unauthorized = error(-32001, "Unauthorized");
    for (code, body) in [(401, ""), (403, ""), (401, unauthorized.as_str())] {
        let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
        for era in [EraChoice::Legacy, EraChoice::Auto] {
            http.script(&deny(code, body)).await;
            let server = server(Http::new(http.url()), era);
            let failed = try_open(&links, &server, &place()).await.unwrap_err();
            let LinkOpenError::Unauthorized { status, challenge: said, .. } = &*failed else {
                panic!("{failed:?}")
            };
            assert_eq!((*status, said.as_deref()), (code, Some(challenge)));
            http.script(&json!([])).await;
        }
        let link = open(&links, &server(Http::new(http.url()), EraChoice::Legacy), &place()).await;
        http.script(&deny(code, body)).await;
        let failed = try_call(&link, "count", "{}").await.unwrap_err();
        let CallError::Unauthorized { challenge: Some(said), .. } = &failed else {
            panic!("{failed:?}")
        };
        assert_eq!((&**said, failed.delivery(), over(&link)), (challenge, Delivery::Refused, None));
        close(&links).await;
    }
}

/// Invariant 8: no error of a call or an opening shows a secret, even if a server repeats what it was sent.
#[tokio::test]
async fn no_error_shows_a_secret() {
    let (links, mut http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let url = http.url().replace("127.0.0.1", &format!("ann:{SECRET}@127.0.0.1"));
    let url = format!("{url}?key={SECRET}");
    let transport = Http::new(url).header("x-api-key", SECRET).bearer(SECRET);
    let server = server(transport, EraChoice::Legacy);
    let link = open(&links, &server, &place()).await;
    let session = call(&link, "header", r#"{"name":"mcp-session-id"}"#).await;
    let mut shown = format!("{server:?} {link:?} {links:?} {:?}", link.key());
    let said = format!("you sent {SECRET} on {session}");
    let deeds = [status(500, &*said), status(400, &*said), status(429, &*said), json!("cut")];
    for deed in deeds.into_iter().chain([json!("invalid-json"), json!("cut-mid-stream")]) {
        http.script(&once("tools/call", &deed)).await;
        let error = try_call(&link, "count", "{}").await.unwrap_err();
        shown += &format!("{error} {error:?}");
    }
    let redirect = json!({ "redirect": { "to": "http://127.0.0.1:1/x" } });
    let other = format!("you sent {SECRET}");
    for deed in [redirect, status(500, &*other), status(404, &*other), status(401, &*other)] {
        http.script(&json!([{ "on": "*", "do": deed }])).await;
        let error = try_open(&links, &server, &place()).await.unwrap_err();
        shown += &format!("{error} {error:?}");
    }
    let lost = try_call(&link, "count", "{}").await.unwrap_err();
    shown += &format!("{lost} {lost:?}");
    http.script(&once("tools/call", &status(404, &*said))).await;
    let lost = try_call(&link, "count", "{}").await.unwrap_err();
    shown += &format!("{lost} {lost:?} {}", lost.loss().unwrap().detail());
    http.kill();
    let error = try_open(&links, &server, &place()).await.unwrap_err();
    shown += &format!("{error} {error:?}");
    assert!(!shown.contains(SECRET) && !shown.contains(&session), "{shown}");
    assert!(shown.contains("you sent"), "{shown}");
    close(&links).await;
}

/// Provider whose headers name the session.
#[derive(Debug)]
struct SessionHeaders;

#[async_trait]
impl HeaderProvider for SessionHeaders {
    fn identity(&self) -> Cow<'_, str> {
        "sessions".into()
    }

    fn varies_by_session(&self) -> bool {
        true
    }

    async fn headers(
        &self,
        ask: &HeaderRequest<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderError> {
        let session = ask.scope.session().map_or("none".to_owned(), |it| it.to_string());
        Ok(vec![(http::header::AUTHORIZATION, HeaderValue::try_from(session).unwrap())])
    }
}

/// Headers that differ between sessions are never on a request of another session, also if the server is configured as
/// shared: then each session has a link of its own.
#[tokio::test]
async fn headers_of_a_session_are_not_shared() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    for era in [EraChoice::Auto, EraChoice::Legacy] {
        let isolation = Some(Isolation::Shared);
        let transport = Http::new(http.url()).provider(Arc::new(SessionHeaders));
        let server = server_with(transport, Options { era, isolation, ..Options::default() });
        for _ in 0..2 {
            let ann = place();
            let link = open(&links, &server, &ann).await;
            let seen = call(&link, "header", AUTHORIZATION).await;
            assert_eq!(seen, ann.session.to_string(), "{era:?}");
        }
    }
    close(&links).await;
}
