//! Answers that come, come slowly, or are too large.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use stayput_upstream::{
    Delivery,
    http::{HttpErrorKind, Phase, Request, Target},
};

use super::kit::{Peer, Server, client, fetch, get, post, text};

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_request_arrives_as_it_was_given_and_so_does_its_answer() {
    let server = Server::new(|_, peer| {
        peer.answer("201 Created", "Mcp-Session-Id: abc\r\nX-Two: 1\r\nX-Two: 2\r\n", "{\"id\":1}")
    });
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert("mcp-protocol-version", HeaderValue::from_static("2025-11-25"));
    let request = Request { headers, ..post(server.target("/mcp?x=1%202"), "{}") };
    let response = client().send(request).await.unwrap();
    assert_eq!(response.status, StatusCode::CREATED);
    assert_eq!(response.headers["mcp-session-id"], "abc");
    assert_eq!(response.headers.get_all("x-two").iter().count(), 2);
    assert_eq!(text(response).await, "{\"id\":1}");

    let seen = server.seen().remove(0);
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/mcp?x=1%202"));
    assert_eq!(seen.body, "{}");
    assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(seen.header("host"), Some(server.address.to_string().as_str()));
    assert_eq!(seen.header("accept-encoding"), None);
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.head.lines().filter(|line| !line.is_empty()).count(), 4, "{}", seen.head);
}

#[tokio::test]
async fn an_empty_post_says_that_it_is_empty() {
    let server = Server::new(|_, peer| peer.answer("202 Accepted", "", ""));
    let client = client();
    let response = client.send(post(server.target("/"), "")).await.unwrap();
    assert_eq!(text(response).await, "");
    client.send(get(server.target("/"))).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("content-length"), Some("0"));
    assert_eq!(seen[1].header("content-length"), None);
}

/// R120: an event is there when the server has sent it, not when the stream ends.
#[tokio::test]
async fn events_come_one_by_one() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Server::new(move |_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")?;
        peer.say("Transfer-Encoding: chunked\r\n\r\n")?;
        for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
            peer.chunk(event)?;
            // The next one waits until this one was read.
            let _ = told.lock().unwrap().recv();
        }
        peer.say("0\r\nX-Trailer: no\r\n\r\n")
    });
    let mut body = client().send(get(server.target("/"))).await.unwrap().body;
    for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        assert_eq!(body.chunk().await.unwrap().unwrap(), event);
        tell.send(()).unwrap();
    }
    assert_eq!(body.chunk().await.unwrap(), None);
    assert_eq!(body.chunk().await.unwrap(), None, "the end stays the end");
}

#[tokio::test]
async fn a_chunk_that_was_not_waited_for_is_not_lost() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Server::new(move |_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let _ = told.lock().unwrap().recv();
        for number in 0..100 {
            peer.chunk(&format!("{number};"))?;
        }
        peer.say("0\r\n\r\n")
    });
    let mut body = client().send(get(server.target("/"))).await.unwrap().body;
    for _ in 0..3 {
        tokio::select! {
            biased;
            chunk = body.chunk() => panic!("{chunk:?} before it was sent"),
            () = tokio::task::yield_now() => {}
        }
    }
    tell.send(()).unwrap();
    let (mut all, mut given_up) = (Vec::new(), 0);
    while given_up < 1_000_000 {
        tokio::select! {
            biased;
            chunk = body.chunk() => match chunk.unwrap() {
                Some(chunk) => all.extend_from_slice(&chunk),
                None => break,
            },
            () = tokio::task::yield_now() => given_up += 1,
        }
    }
    let expected: String = (0..100).map(|number| format!("{number};")).collect();
    assert_eq!(String::from_utf8(all).unwrap(), expected);
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_not_waited_for() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")?;
        peer.until_closed()
    });
    let response = client().send(get(server.target("/mcp?key=s3cret"))).await.unwrap();
    let error = response.body.collect(1000).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::TooLarge { limit: 1000 });
    assert_eq!(error.delivery(), Delivery::Unknown);
    let url = server.url("/mcp");
    assert_eq!(
        error.to_string(),
        format!(
            "{url} answers with more than 1000 bytes; raise the limit, or ask for less at a time"
        )
    );
}

#[tokio::test]
async fn a_body_that_turns_out_to_be_too_large_is_left() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        // It never ends, so only the limit can end it.
        loop {
            peer.chunk(&"x".repeat(400))?;
        }
    });
    let response = client().send(get(server.target("/"))).await.unwrap();
    let error = response.body.collect(100_000).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::TooLarge { limit: 100_000 });
    super::kit::until(|| server.open() == 0).await;
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit() {
    let server = Server::new(|seen, peer| {
        let body = "x".repeat(300_000);
        if seen.target == "/length" {
            return peer.answer("200 OK", "", &body);
        }
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        peer.chunk(&body)?;
        peer.say("0\r\n\r\n")
    });
    let client = client();
    for path in ["/length", "/chunked"] {
        let response = client.send(get(server.target(path))).await.unwrap();
        assert_eq!(response.body.collect(300_000).await.unwrap().len(), 300_000);
        let response = client.send(get(server.target(path))).await.unwrap();
        assert!(response.body.collect(299_999).await.is_err());
    }
}

/// Invariant 2: what was written may have been executed.
#[tokio::test]
async fn a_server_that_does_not_answer_is_not_waited_for() {
    let server = Server::new(|_, peer| peer.until_closed());
    let request = Request { first_byte: SHORT, ..post(server.target("/mcp?key=s3cret"), "{}") };
    let error = client().send(request).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Timeout(Phase::FirstByte));
    assert_eq!(error.delivery(), Delivery::Unknown);
    let said = error.to_string();
    assert!(said.contains("/mcp did not begin to answer within 50ms"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    super::kit::until(|| server.open() == 0).await;
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_not_waited_for() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        peer.chunk("one")?;
        peer.until_closed()
    });
    let request = Request { idle: SHORT, ..get(server.target("/")) };
    let mut body = client().send(request).await.unwrap().body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "one");
    let error = body.chunk().await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Timeout(Phase::Idle));
    assert_eq!(error.delivery(), Delivery::Unknown);
    drop(body);
    super::kit::until(|| server.open() == 0).await;
}

/// Who looks after other things meanwhile does not make a silent stream live for ever.
#[tokio::test]
async fn a_wait_that_is_begun_again_is_still_the_same_wait() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        peer.until_closed()
    });
    let request = Request { idle: Duration::from_millis(300), ..get(server.target("/")) };
    let mut body = client().send(request).await.unwrap().body;
    for _ in 0..2000 {
        let other = tokio::time::sleep(Duration::from_millis(10));
        tokio::select! {
            chunk = body.chunk() => {
                assert_eq!(chunk.unwrap_err().kind(), HttpErrorKind::Timeout(Phase::Idle));
                return;
            }
            () = other => {}
        }
    }
    panic!("it waits for ever");
}

#[tokio::test]
async fn a_time_that_never_comes_is_no_limit() {
    let server = Server::new(|_, peer| peer.json("{}"));
    let (first_byte, idle) = (Duration::MAX, Duration::MAX);
    let request = Request { first_byte, idle, ..get(server.target("/")) };
    assert_eq!(text(client().send(request).await.unwrap()).await, "{}");
}

#[tokio::test]
async fn a_request_that_would_lie_about_its_length_is_refused() {
    let server = Server::new(|_, peer| peer.json("{}"));
    for name in ["content-length", "transfer-encoding"] {
        let mut request = post(server.target("/"), "{}");
        request.headers.insert(name, HeaderValue::from_static("s3cret"));
        let error = client().send(request).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Invalid, Delivery::NotSent));
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
    let request = Request { method: http::Method::CONNECT, ..get(server.target("/")) };
    let error = client().send(request).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Invalid);
    assert_eq!(server.accepted(), 0);
}

/// E36, invariant 8: credentials of a URL are sent as a header and shown nowhere.
#[tokio::test]
async fn credentials_of_a_url_are_sent_and_not_shown() {
    let server = Server::new(|_, peer| peer.json("{}"));
    let url = format!("http://ann:s3cret@{}/mcp?key=s3cret", server.address);
    let target = Target::parse(&url).unwrap();
    let client = client();
    fetch(&client, target.clone()).await.unwrap();
    let mut request = get(target);
    request.headers.insert("authorization", HeaderValue::from_static("Bearer s3cret"));
    let shown = format!("{request:?}");
    assert!(!shown.contains("s3cret") && shown.contains("authorization"), "{shown}");
    let response = client.send(request).await.unwrap();
    assert!(!format!("{response:?} {client:?}").contains("s3cret"));
    text(response).await;

    let seen = server.seen();
    assert_eq!(seen[0].header("authorization"), Some("Basic YW5uOnMzY3JldA=="));
    assert_eq!(seen[0].header("host"), Some(server.address.to_string().as_str()));
    assert_eq!(seen[0].target, "/mcp?key=s3cret");
    assert_eq!(seen[1].header("authorization"), Some("Bearer s3cret"));
}

/// The head of an answer is bounded.
#[tokio::test]
async fn a_head_without_end_is_not_read_to_its_end() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\n")?;
        for number in 0..1_000_000 {
            peer.say(&format!("X-Header-{number}: {}\r\n", "x".repeat(1000)))?;
        }
        Peer::end()
    });
    let error = fetch(&client(), server.target("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Broken, Delivery::Unknown));
}
