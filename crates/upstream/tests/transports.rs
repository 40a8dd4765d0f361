//! Behaviour that is the same on every transport and in both eras.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use stayput_testkit::mcp::TestServer;
use stayput_upstream::{
    CallError, CallOptions, ClientCapabilities, EraChoice, Http, Incoming, Isolation, Options,
    Server, ServerProtocol, TransportConfig,
};
use stayput_wire::Message;
use support::{LONG, call, close, links, open, params, place, server_with, stdio, try_call};

/// Server on one transport, and the objects that keep it running.
struct Reached {
    name: &'static str,
    server: Server,
    protocol: ServerProtocol,
    _http: Option<TestServer>,
}

impl Reached {
    fn new(
        name: &'static str,
        transport: impl Into<TransportConfig>,
        protocol: ServerProtocol,
        http: Option<TestServer>,
    ) -> Self {
        let era = match protocol {
            ServerProtocol::Modern => EraChoice::Modern,
            _ => EraChoice::Auto,
        };
        let isolation = Some(Isolation::PerSession);
        let options = Options { era, isolation, ..Options::default() };
        Self { name, server: server_with(transport, options), protocol, _http: http }
    }
}

/// Returns the test server on every transport, in both eras.
async fn every_way() -> Vec<Reached> {
    let mut all = vec![
        Reached::new("legacy stdio", stdio(&["--era", "legacy"]), ServerProtocol::Legacy, None),
        Reached::new("dual stdio", stdio(&["--lock-era"]), ServerProtocol::Legacy, None),
        Reached::new("modern stdio", stdio(&["--era", "modern"]), ServerProtocol::Modern, None),
    ];
    for (name, args, protocol) in [
        ("legacy http", &["--era", "legacy"][..], ServerProtocol::Legacy),
        ("legacy http, all streams", &["--era", "legacy", "--sse"], ServerProtocol::Legacy),
        (
            "legacy http, cut streams",
            &["--era", "legacy", "--sse", "--quirk", "close-stream"],
            ServerProtocol::Legacy,
        ),
        ("dual http", &[], ServerProtocol::Legacy),
        ("modern http", &["--era", "modern"], ServerProtocol::Modern),
        ("modern http, all streams", &["--era", "modern", "--sse"], ServerProtocol::Modern),
    ] {
        let http = TestServer::http(args).await;
        all.push(Reached::new(name, Http::new(http.url()), protocol, Some(http)));
    }
    let http = TestServer::sse(&["--era", "legacy"]).await;
    let sse = TransportConfig::Sse(Http::new(http.url()));
    all.push(Reached::new("http+sse", sse, ServerProtocol::Sse, Some(http)));
    all
}

/// R013, R016, R065, R102, R103.
#[tokio::test]
async fn state_is_kept_between_calls() {
    let links = links();
    for reached in every_way().await {
        let (name, server) = (reached.name, &reached.server);
        let ann = place();
        let link = open(&links, server, &ann).await;
        let era = link.initialize_result().era();
        assert_eq!(era, reached.protocol.era(), "{name}");
        let first: u64 = call(&link, "count", "{}").await.parse().unwrap();
        drop(link);
        let again = open(&links, server, &ann).await;
        let second: u64 = call(&again, "count", "{}").await.parse().unwrap();
        assert_eq!((first, second), (1, 2), "{name}");
    }
    close(&links).await;
}

#[tokio::test]
async fn request_and_answer_pass_unchanged() {
    let links = links();
    for reached in every_way().await {
        let link = open(&links, &reached.server, &place()).await;
        let said = r#"{"jsonrpc":"2.0", "id":"a\/1","method":"tools/call","params":{"name":"echo","arguments":{ "n":1.10,"big":123456789012345678901234567890, "t":"\u00e4" }}}"#;
        let call =
            link.send(&Message::parse(said.as_bytes()).unwrap(), CallOptions::default()).await;
        let answer = call.unwrap().answer().await.unwrap();
        assert!(answer.as_bytes().windows(6).any(|it| it == br#""a\/1""#), "{}", reached.name);
        let echoed = support::text(&answer);
        assert_eq!(
            echoed, r#"{ "n":1.10,"big":123456789012345678901234567890, "t":"\u00e4" }"#,
            "{}",
            reached.name
        );
    }
    close(&links).await;
}

#[tokio::test]
async fn progress_comes_in_order_under_the_callers_token() {
    let links = links();
    for reached in every_way().await {
        let name = reached.name;
        let link = open(&links, &reached.server, &place()).await;
        let params =
            r#"{"name":"slow","arguments":{"ms":50,"steps":5},"_meta":{"progressToken":"t\/1"}}"#;
        let mut call = link.call("tools/call", Some(params), CallOptions::default()).await.unwrap();
        let mut seen = Vec::new();
        loop {
            match tokio::time::timeout(LONG, call.next()).await.unwrap() {
                Some(Incoming::Notification(text)) => {
                    let text = String::from_utf8(text.to_vec()).unwrap();
                    assert!(text.contains(r#""progressToken":"t\/1""#), "{name}: {text}");
                    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                    seen.push(value["params"]["progress"].as_f64().unwrap());
                }
                Some(Incoming::Answer(answer)) => {
                    answer.unwrap_or_else(|error| panic!("{name}: {error}"));
                    break;
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(seen.len() >= 4 && seen.is_sorted(), "{name}: {seen:?}");
        assert!(call.next().await.is_none(), "{name}");
    }
    close(&links).await;
}

/// E38: one failed request does not affect the others.
#[tokio::test]
async fn many_calls_share_a_link() {
    let links = links();
    for reached in every_way().await {
        let link = open(&links, &reached.server, &place()).await;
        let calls = (0..40).map(|n| {
            let link = &link;
            async move {
                let arguments = format!(r#"{{"n":{n}}}"#);
                if n % 7 == 0 {
                    let failed = try_call(link, "no_such_tool", "{}").await.unwrap();
                    assert!(
                        failed.error().is_some() || failed.result().unwrap().contains("isError")
                    );
                } else {
                    assert_eq!(call(link, "echo", &arguments).await, arguments);
                }
            }
        });
        futures_util::future::join_all(calls).await;
        assert_eq!(link.in_flight(), 0, "{}", reached.name);
    }
    close(&links).await;
}

#[tokio::test]
async fn call_that_takes_too_long_fails_and_is_cancelled() {
    let links = links();
    for reached in every_way().await {
        let name = reached.name;
        let link = open(&links, &reached.server, &place()).await;
        let options =
            CallOptions { limit: Some(Duration::from_millis(300)), ..CallOptions::default() };
        let slow = params("slow", r#"{"ms":60000}"#);
        let call = link.call("tools/call", Some(&slow), options).await.unwrap();
        let error = tokio::time::timeout(LONG, call.answer()).await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::TimedOut { .. }), "{name}: {error}");
        assert!(error.delivery().may_have_run());
        cancelled(&link, name, 1).await;
        // Progress extends the time of a call beyond its timeout.
        let slow =
            r#"{"name":"slow","arguments":{"ms":600,"steps":12},"_meta":{"progressToken":1}}"#;
        let call = link.call("tools/call", Some(slow), options).await.unwrap();
        call.answer().await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    close(&links).await;
}

/// Waits until the server has received this number of cancellations.
async fn cancelled(link: &stayput_upstream::Link, name: &str, count: u64) {
    let counted = async || {
        let stats: serde_json::Value =
            serde_json::from_str(&call(link, "stats", "{}").await).unwrap();
        (stats["cancels"].as_u64() == Some(count)).then_some(())
    };
    stayput_testkit::until_some(&format!("{name}: {count} cancellations"), counted).await;
}

#[tokio::test]
async fn dropped_call_is_cancelled_once() {
    let links = links();
    for reached in every_way().await {
        let name = reached.name;
        let link = open(&links, &reached.server, &place()).await;
        let slow = params("slow", r#"{"ms":60000}"#);
        let call = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
        // The call has to arrive before it can be cancelled.
        support::call(&link, "count", "{}").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(call);
        cancelled(&link, name, 1).await;
        assert_eq!(link.in_flight(), 0, "{name}");
    }
    close(&links).await;
}

#[tokio::test]
async fn legacy_server_can_send_requests_during_a_call() {
    let links = links();
    for reached in every_way().await.into_iter().filter(|it| it.protocol != ServerProtocol::Modern)
    {
        let name = reached.name;
        let ann = place();
        let client_info = stayput_upstream::ClientInfo::new(
            r#"{"name":"t","version":"1"}"#,
            r#"{"elicitation":{}}"#,
        );
        let asking = stayput_upstream::LinkOpenOptions {
            client_info: client_info.unwrap(),
            ..Default::default()
        };
        let link = links.open(&reached.server, &ann, &asking).await.unwrap();
        let capabilities =
            ClientCapabilities { elicitation: true, ..ClientCapabilities::default() };
        let options = CallOptions { capabilities, ..CallOptions::default() };
        let ask = params("elicit", "{}");
        let mut call = link.call("tools/call", Some(&ask), options).await.unwrap();
        let answer = loop {
            match tokio::time::timeout(LONG, call.next()).await.unwrap().unwrap() {
                Incoming::Request(asked) => {
                    assert_eq!(asked.method(), "elicitation/create", "{name}");
                    asked.reply(r#"{"action":"accept","content":{"answer":"forty-two"}}"#);
                }
                Incoming::Answer(answer) => break answer.unwrap(),
                other => panic!("{name}: {other:?}"),
            }
        };
        assert!(answer.result().unwrap().contains("forty-two"), "{name}: {:?}", answer.result());
        // Without a reader the server gets a refusal, and nothing hangs.
        let refused = try_call(&link, "elicit", "{}").await;
        assert!(refused.is_ok(), "{name}: {refused:?}");
    }
    close(&links).await;
}

#[tokio::test]
async fn listener_gets_messages_outside_of_calls() {
    let links = links();
    for reached in every_way().await {
        let name = reached.name;
        let link = open(&links, &reached.server, &place()).await;
        let interest = r#"{"toolsListChanged":true}"#;
        let mut listener = link.listen(interest, ClientCapabilities::default()).await.unwrap();
        let heard = async {
            loop {
                let Some(incoming) = listener.next().await else { panic!("{name}: it ended") };
                let Incoming::Notification(text) = incoming else { panic!("{name}: {incoming:?}") };
                if text.windows(18).any(|it| it == b"tools/list_changed") {
                    break;
                }
            }
        };
        let notify = async {
            loop {
                call(&link, "notify", "{}").await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = heard => {}
            () = notify => {}
            () = tokio::time::sleep(LONG) => panic!("{name}: nothing was heard"),
        }
    }
    close(&links).await;
}
