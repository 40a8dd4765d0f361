//! Complete, slow and oversized responses.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use stayput_http::Delivery;
use stayput_http::{HttpErrorKind, Phase, Request, Target};

use super::kit::{Peer, Server, client, fetch, get, post, text};

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn request_and_response_arrive_unchanged() {
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
async fn empty_post_has_a_content_length() {
    let server = Server::new(|_, peer| peer.answer("202 Accepted", "", ""));
    let client = client();
    let response = client.send(post(server.target("/"), "")).await.unwrap();
    assert_eq!(text(response).await, "");
    client.send(get(server.target("/"))).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("content-length"), Some("0"));
    assert_eq!(seen[1].header("content-length"), None);
}

/// R120: an event is available when the server has sent it, not when the stream ends.
#[tokio::test]
async fn events_arrive_one_by_one() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Server::new(move |_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")?;
        peer.say("Transfer-Encoding: chunked\r\n\r\n")?;
        for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
            peer.chunk(event)?;
            // The server sends the next event after this one was read.
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
async fn chunk_survives_a_dropped_read() {
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
async fn body_that_announces_too_much_is_refused() {
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
async fn body_that_exceeds_the_limit_is_abandoned() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        // The body never ends, so only the limit can end it.
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
async fn body_may_be_as_large_as_the_limit() {
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

/// Invariant 2: a request that was written may have run.
#[tokio::test]
async fn server_that_does_not_answer_times_out() {
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
async fn silent_stream_times_out() {
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

/// Repeated reads with other work in between do not extend the idle timeout.
#[tokio::test]
async fn dropped_read_does_not_restart_the_idle_timeout() {
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
async fn maximum_duration_means_no_timeout() {
    let server = Server::new(|_, peer| peer.json("{}"));
    let (first_byte, idle) = (Duration::MAX, Duration::MAX);
    let request = Request { first_byte, idle, ..get(server.target("/")) };
    assert_eq!(text(client().send(request).await.unwrap()).await, "{}");
}

#[tokio::test]
async fn request_with_its_own_length_header_is_refused() {
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

/// E36, invariant 8: credentials of a URL are sent as a header and appear in no output.
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

/// The head of a response is limited.
#[tokio::test]
async fn endless_head_is_refused() {
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
