//! Detection of a server's era.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{
    ClientInfo, EraChoice, Http, Isolation, LinkOpenError, Options, Server, ServerProtocol,
};

use crate::support::{
    close, links, open, place,
    remote::{count, count_once, error, status},
    server_with, stdio, try_open,
};

fn at(url: &str, isolation: Option<Isolation>) -> Server {
    server_with(Http::new(url), Options { isolation, ..Options::default() })
}

/// §4.5: legacy for servers with sessions, modern for shared ones, and the only supported era otherwise.
#[tokio::test]
async fn era_is_detected() {
    let (kept, shared) = (Some(Isolation::PerSession), Some(Isolation::Shared));
    for (args, isolation, protocol) in [
        (&["--era", "legacy"][..], None, ServerProtocol::Legacy),
        (&["--era", "legacy"], shared, ServerProtocol::Legacy),
        (&["--era", "modern"], None, ServerProtocol::Modern),
        (&["--era", "modern"], kept, ServerProtocol::Modern),
        (&["--era", "dual"], None, ServerProtocol::Legacy),
        (&["--era", "dual"], kept, ServerProtocol::Legacy),
        (&["--era", "dual"], shared, ServerProtocol::Modern),
    ] {
        let (links, http) = (links(), TestServer::http(args).await);
        let (server, ann) = (at(http.url(), isolation), place());
        let link = open(&links, &server, &ann).await;
        let profile = links.profile(&server, &ann).await.unwrap();
        assert_eq!(profile.protocol(), protocol, "{args:?} {isolation:?}");
        assert_eq!((count(&link).await, link.initialize_result().era()), (1, protocol.era()));
        assert!(!profile.pages("tools/list").is_empty());
        // The probe is closed, and its session with it.
        let sessions = u64::from(protocol == ServerProtocol::Legacy);
        assert_eq!(http.counted("sessions").await, sessions, "{args:?} {isolation:?}");
        let asked = http.stats().await;
        count_once(&links, &server, &place()).await;
        assert_eq!(http.counted("discover").await, asked["discover"].as_u64().unwrap());
        close(&links).await;
    }
}

/// R099: a server may list more for clients with more capabilities, so it is probed once for each set of capabilities.
/// Its era is known from any of them.
#[tokio::test]
async fn each_set_of_capabilities_is_probed_once() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let (server, ann) = (at(http.url(), None), place());
    let (all, some, none) = (r#"{"sampling":{},"roots":{}}"#, r#"{"roots":{}}"#, "{}");
    for (capabilities, asked) in [(all, 1), (all, 1), (some, 2), (some, 2)] {
        let client_info = ClientInfo::new("{}", capabilities).unwrap();
        let profile = links.profile_for(&server, &ann, &client_info).await.unwrap();
        assert!(!profile.pages("tools/list").is_empty());
        assert_eq!(http.counted("initialize").await, asked, "{capabilities}");
    }
    // Only the link itself.
    let link = open(&links, &server, &ann).await;
    assert_eq!(count(&link).await, 1);
    drop(link);
    assert_eq!(http.counted("initialize").await, 3);
    // A client without capabilities is like Stayput itself.
    let client_info = ClientInfo::new(r#"{"name":"x","version":"1"}"#, none).unwrap();
    links.profile_for(&server, &ann, &client_info).await.unwrap();
    links.profile(&server, &ann).await.unwrap();
    assert_eq!(http.counted("initialize").await, 4);
    close(&links).await;
}

/// A shared link declares no capabilities, whichever client uses it.
#[tokio::test]
async fn shared_server_is_probed_once_for_all() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let server = at(http.url(), Some(Isolation::Shared));
    for capabilities in ["{}", r#"{"sampling":{}}"#] {
        let client_info = ClientInfo::new("{}", capabilities).unwrap();
        links.profile_for(&server, &place(), &client_info).await.unwrap();
    }
    assert_eq!(http.counted("initialize").await, 1);
    close(&links).await;
}

/// §1.12 (c): a process that locks its era at the first message gets the right one first.
#[tokio::test]
async fn server_that_locks_its_era_gets_the_right_message_first() {
    let links = links();
    for (isolation, era) in [
        (Isolation::PerSession, stayput_wire::Era::Legacy),
        (Isolation::Shared, stayput_wire::Era::Modern),
    ] {
        let options = Options { isolation: Some(isolation), ..Options::default() };
        let server = server_with(stdio(&["--lock-era"]), options);
        let link = open(&links, &server, &place()).await;
        assert_eq!((link.initialize_result().era(), count(&link).await), (era, 1));
    }
    close(&links).await;
}

fn discovered(versions: &[&str]) -> String {
    let result = json!({ "supportedVersions": versions, "capabilities": {} });
    format!(r#"{{"jsonrpc":"2.0","id":$id,"result":{result}}}"#)
}

fn unserved(versions: &[&str]) -> String {
    let data = json!({ "supported": versions, "requested": "2026-07-28" });
    format!(
        r#"{{"jsonrpc":"2.0","id":$id,"error":{{"code":-32022,"message":"no","data":{data}}}}}"#
    )
}

/// §1.12 (a), (b): whatever a server answers to a modern message, it is legacy if it supports only legacy versions.
#[tokio::test]
async fn legacy_server_is_detected_by_many_answers() {
    let legacy = ["2025-11-25", "2025-06-18"];
    for (code, body) in [
        (200, discovered(&legacy)),
        (200, discovered(&[])),
        (400, unserved(&legacy)),
        (200, unserved(&legacy)),
        (400, error(-32000, "Bad Request: No valid session ID provided")),
        (404, String::new()),
        (405, String::new()),
        (400, "what?".to_owned()),
        (200, error(-32601, "Method not found")),
    ] {
        let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
        let rule = json!([{ "on": "server/discover", "do": status(code, body.clone()) }]);
        http.script(&rule).await;
        let server = at(http.url(), Some(Isolation::Shared));
        let link = open(&links, &server, &place()).await;
        let era = link.initialize_result().era();
        assert_eq!((era, count(&link).await), (stayput_wire::Era::Legacy, 1), "{code} {body}");
        close(&links).await;
    }
}

/// §1.12: a server that supports only the modern era says so with an error.
#[tokio::test]
async fn modern_server_is_detected_by_many_answers() {
    for (code, body) in [
        (400, unserved(&["2026-07-28"])),
        (200, unserved(&["2026-07-28"])),
        (404, error(-32601, "Method not found")),
        (400, error(-32602, "`_meta` is missing")),
        (404, String::new()),
    ] {
        let (links, http) = (links(), TestServer::http(&["--era", "modern"]).await);
        let rule = json!([{ "on": "initialize", "do": status(code, body.clone()) }]);
        http.script(&rule).await;
        let link = open(&links, &at(http.url(), None), &place()).await;
        let era = link.initialize_result().era();
        assert_eq!((era, count(&link).await), (stayput_wire::Era::Modern, 1), "{code} {body}");
        close(&links).await;
    }
}

/// The URL of a 2024-11-05 transport is detected, even if only legacy is configured.
#[tokio::test]
async fn sse_transport_is_detected_by_its_url() {
    for (era, isolation) in [
        (EraChoice::Auto, None),
        (EraChoice::Auto, Some(Isolation::PerSession)),
        (EraChoice::Auto, Some(Isolation::Shared)),
        (EraChoice::Legacy, None),
    ] {
        let (links, http) = (links(), TestServer::sse(&["--era", "legacy"]).await);
        let options = Options { era, isolation, ..Options::default() };
        let (server, ann) = (server_with(Http::new(http.url()), options), place());
        let link = open(&links, &server, &ann).await;
        assert_eq!(count(&link).await, 1, "{era:?} {isolation:?}");
        assert_eq!(links.profile(&server, &ann).await.unwrap().protocol(), ServerProtocol::Sse);
        close(&links).await;
    }
}

/// If no era works, the first refusal is reported, because it says most.
#[tokio::test]
async fn server_without_a_working_era_is_reported_with_its_refusal() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let all: Value = json!([{ "on": "*", "do": status(400, error(-32600, "out of order")) }]);
    http.script(&all).await;
    let failed = try_open(&links, &at(http.url(), None), &place()).await.unwrap_err();
    assert!(matches!(&*failed, LinkOpenError::Refused { code: -32600, .. }), "{failed:?}");
    assert!(failed.to_string().contains("out of order"), "{failed}");
    assert_eq!(links.used().links, 0);
    close(&links).await;
}
