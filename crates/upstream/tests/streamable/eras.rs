//! Finding out how a server is spoken to.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{EraChoice, Hello, Http, Isolation, LinkOpenError, Options, Server, Way};

use crate::world::{
    close, links, open, place,
    remote::{count, count_once, error, status},
    server_with, stdio, try_open,
};

fn at(url: &str, isolation: Option<Isolation>) -> Server {
    server_with(Http::new(url), Options { isolation, ..Options::default() })
}

/// §4.5: legacy where state is kept, modern where it is shared, and what there is where there is no choice.
#[tokio::test]
async fn the_era_is_found_out() {
    let (kept, shared) = (Some(Isolation::PerSession), Some(Isolation::Shared));
    for (args, isolation, way) in [
        (&["--era", "legacy"][..], None, Way::Legacy),
        (&["--era", "legacy"], shared, Way::Legacy),
        (&["--era", "modern"], None, Way::Modern),
        (&["--era", "modern"], kept, Way::Modern),
        (&["--era", "dual"], None, Way::Legacy),
        (&["--era", "dual"], kept, Way::Legacy),
        (&["--era", "dual"], shared, Way::Modern),
    ] {
        let (links, http) = (links(), TestServer::http(args).await);
        let (server, ann) = (at(http.url(), isolation), place());
        let link = open(&links, &server, &ann).await;
        let profile = links.profile(&server, &ann).await.unwrap();
        assert_eq!(profile.way(), way, "{args:?} {isolation:?}");
        assert_eq!((count(&link).await, link.greeting().era()), (1, way.era()));
        assert!(!profile.pages("tools/list").is_empty());
        // The probe is thrown away, and its session with it.
        let sessions = u64::from(way == Way::Legacy);
        assert_eq!(http.counted("sessions").await, sessions, "{args:?} {isolation:?}");
        let asked = http.stats().await;
        count_once(&links, &server, &place()).await;
        assert_eq!(http.counted("discover").await, asked["discover"].as_u64().unwrap());
        close(&links).await;
    }
}

/// R099: a server may list more for who can be asked something, so it is asked once for each kind of client.
/// How it is spoken to is known from any of them.
#[tokio::test]
async fn each_kind_of_client_is_learned_once() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let (server, ann) = (at(http.url(), None), place());
    let (all, some, none) = (r#"{"sampling":{},"roots":{}}"#, r#"{"roots":{}}"#, "{}");
    for (capabilities, asked) in [(all, 1), (all, 1), (some, 2), (some, 2)] {
        let hello = Hello::new("{}", capabilities).unwrap();
        let profile = links.profile_for(&server, &ann, &hello).await.unwrap();
        assert!(!profile.pages("tools/list").is_empty());
        assert_eq!(http.counted("initialize").await, asked, "{capabilities}");
    }
    // The link itself, and nothing before it.
    let link = open(&links, &server, &ann).await;
    assert_eq!(count(&link).await, 1);
    drop(link);
    assert_eq!(http.counted("initialize").await, 3);
    // Who cannot be asked anything is like Stayput itself.
    let hello = Hello::new(r#"{"name":"x","version":"1"}"#, none).unwrap();
    links.profile_for(&server, &ann, &hello).await.unwrap();
    links.profile(&server, &ann).await.unwrap();
    assert_eq!(http.counted("initialize").await, 4);
    close(&links).await;
}

/// What several share declares nothing, whoever comes.
#[tokio::test]
async fn a_shared_server_is_learned_once_for_all() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let server = at(http.url(), Some(Isolation::Shared));
    for capabilities in ["{}", r#"{"sampling":{}}"#] {
        let hello = Hello::new("{}", capabilities).unwrap();
        links.profile_for(&server, &place(), &hello).await.unwrap();
    }
    assert_eq!(http.counted("initialize").await, 1);
    close(&links).await;
}

/// §1.12 (c): a process that locks its era at the first word hears the right one first.
#[tokio::test]
async fn a_server_that_locks_its_era_hears_the_right_word_first() {
    let links = links();
    for (isolation, era) in [
        (Isolation::PerSession, stayput_wire::Era::Legacy),
        (Isolation::Shared, stayput_wire::Era::Modern),
    ] {
        let options = Options { isolation: Some(isolation), ..Options::default() };
        let server = server_with(stdio(&["--lock-era"]), options);
        let link = open(&links, &server, &place()).await;
        assert_eq!((link.greeting().era(), count(&link).await), (era, 1));
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

/// §1.12 (a), (b): whatever a server says to a modern word, one that speaks legacy versions only is spoken to
/// as that.
#[tokio::test]
async fn a_legacy_server_is_known_by_many_answers() {
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
        let era = link.greeting().era();
        assert_eq!((era, count(&link).await), (stayput_wire::Era::Legacy, 1), "{code} {body}");
        close(&links).await;
    }
}

/// §1.12: a server that only takes the modern era says so with an error, and is believed.
#[tokio::test]
async fn a_modern_server_is_known_by_many_answers() {
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
        let era = link.greeting().era();
        assert_eq!((era, count(&link).await), (stayput_wire::Era::Modern, 1), "{code} {body}");
        close(&links).await;
    }
}

/// A URL that leads to the transport of 2024-11-05 is found out, also where legacy is all that was chosen.
#[tokio::test]
async fn the_old_transport_is_found_by_its_url() {
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
        assert_eq!(links.profile(&server, &ann).await.unwrap().way(), Way::Sse);
        close(&links).await;
    }
}

/// Where nothing is spoken, the first refusal is told: it says most.
#[tokio::test]
async fn a_server_that_speaks_nothing_is_told_as_what_it_is() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let all: Value = json!([{ "on": "*", "do": status(400, error(-32600, "out of order")) }]);
    http.script(&all).await;
    let failed = try_open(&links, &at(http.url(), None), &place()).await.unwrap_err();
    assert!(matches!(&*failed, LinkOpenError::Refused { code: -32600, .. }), "{failed:?}");
    assert!(failed.to_string().contains("out of order"), "{failed}");
    assert_eq!(links.used().links, 0);
    close(&links).await;
}
