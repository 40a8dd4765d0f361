//! Behaviour that HTTP/1.1 allows: all kinds of lengths, early responses, and unrequested ones.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver},
    thread,
};

use http::StatusCode;
use stayput_http::Delivery;
use stayput_http::{HttpErrorKind, Target};

use super::kit::{Peer, Server, client, fetch, get, post, text, until};

/// The end of the connection can be the end of the response. Such a connection is not reused.
#[tokio::test]
async fn response_without_a_length_ends_with_its_connection() {
    let server = Server::new(|seen, peer| {
        peer.say(&format!("HTTP/1.{} 200 OK\r\n\r\n", &seen.target[1..]))?;
        for part in ["one", " and ", "two"] {
            peer.say(part)?;
        }
        Peer::end()
    });
    let client = client();
    for path in ["/1", "/0"] {
        assert_eq!(fetch(&client, server.target(path)).await.unwrap(), "one and two");
    }
    assert_eq!(server.accepted(), 2);
}

/// A connection that the server declares closed is not reused, even if the server leaves it open.
#[tokio::test]
async fn connection_that_the_server_declares_closed_is_not_reused() {
    let server = Server::new(|seen, peer| match seen.target.as_str() {
        "/close" => peer.answer("200 OK", "Connection: close\r\n", "{}"),
        "/old" => peer.say("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        "/both" => {
            let both = "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n";
            peer.say(&format!("HTTP/1.1 200 OK\r\n{both}\r\n2\r\n{{}}\r\n0\r\n\r\n"))
        }
        // There are more bytes than announced.
        _ => peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 500 No\r\n\r\n"),
    });
    let client = client();
    for (before, path) in ["/close", "/old", "/both", "/more"].into_iter().enumerate() {
        assert_eq!(fetch(&client, server.target(path)).await.unwrap(), "{}", "{path}");
        assert_eq!(server.accepted(), before + 1, "{path}");
    }
    until(|| server.open() == 0).await;
}

/// Invariant 1: bytes that a server sends on an idle connection answer no request.
#[tokio::test]
async fn unrequested_response_answers_no_request() {
    let (tell, told) = mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Server::new(move |seen, peer| {
        peer.json(&seen.body)?;
        if seen.body == "first" {
            let _ = told.lock().unwrap().recv();
            peer.json("of another")?;
            return peer.until_closed();
        }
        Ok(())
    });
    let client = client();
    let first = client.send(post(server.target("/"), "first")).await.unwrap();
    assert_eq!(text(first).await, "first");
    tell.send(()).unwrap();
    // The connection is closed without being used.
    until(|| server.open() == 0).await;
    let second = client.send(post(server.target("/"), "second")).await.unwrap();
    assert_eq!(text(second).await, "second");
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn response_may_be_split_and_preceded_by_interim_responses() {
    let server = Server::new(|seen, peer| {
        let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nX-One: 1\r\n";
        let rest = match seen.target.as_str() {
            "/length" => "Content-Length: 5\r\n\r\nhello",
            _ => "Transfer-Encoding: chunked\r\n\r\n2;x\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n",
        };
        for byte in format!("{early}{head}{rest}").chars() {
            peer.say(&byte.to_string())?;
        }
        Ok(())
    });
    let client = client();
    for path in ["/length", "/chunked", "/length"] {
        let response = client.send(get(server.target(path))).await.unwrap();
        assert_eq!(
            (response.status, response.headers["x-one"].as_bytes()),
            (StatusCode::OK, &b"1"[..])
        );
        assert_eq!(text(response).await, "hello");
    }
    assert_eq!(server.accepted(), 1);
}

/// An ambiguous response is an error.
#[tokio::test]
async fn response_with_two_lengths_is_refused() {
    let server = Server::new(|seen, peer| {
        let lengths = match seen.target.as_str() {
            "/two" => "Content-Length: 2\r\nContent-Length: 3\r\n",
            "/sign" => "Content-Length: +2\r\n",
            _ => "Transfer-Encoding: chunked\r\n",
        };
        peer.say(&format!("HTTP/1.1 200 OK\r\n{lengths}\r\n{{}}}}"))?;
        peer.until_closed()
    });
    for path in ["/two", "/sign", "/chunked"] {
        let error = fetch_any(&server, path).await;
        assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Broken, Delivery::Unknown));
    }
}

async fn fetch_any(server: &Server, path: &str) -> stayput_http::HttpError {
    match client().send(post(server.target(path), "{}")).await {
        Ok(response) => response.body.collect(100).await.unwrap_err(),
        Err(error) => error,
    }
}

/// A large request is sent completely, however slowly it is read.
#[tokio::test]
async fn large_request_arrives_complete() {
    let server = Server::new(|seen, peer| peer.json(&seen.body.len().to_string()));
    let client = client();
    for length in [0, 1, 16 << 10, (16 << 10) + 1, 6 << 20] {
        let response = client.send(post(server.target("/"), &"x".repeat(length))).await.unwrap();
        assert_eq!(text(response).await, length.to_string());
    }
    assert_eq!(server.accepted(), 1);
}

/// A server may answer before it has read the whole request. The rest is then not written, and the connection is not
/// reused.
#[tokio::test]
async fn response_before_the_end_of_the_request_is_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let (tell, heard) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            enough(listener.accept().unwrap().0, &heard);
        }
    });
    let client = client();
    for _ in 0..2 {
        let response = client.send(post(target.clone(), &"x".repeat(32 << 20))).await.unwrap();
        assert_eq!(response.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(response).await, "no");
        tell.send(()).unwrap();
    }
    server.join().unwrap();
}

/// Reads the head, answers, and reads on only after the client has `heard` the answer. Otherwise the request could be
/// written completely after all, and the connection would rightly be reused.
fn enough(mut tcp: TcpStream, heard: &Receiver<()>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(tcp.read(&mut byte).unwrap(), 1);
        head.push(byte[0]);
    }
    tcp.write_all(b"HTTP/1.1 413 Enough\r\nContent-Length: 2\r\n\r\nno").unwrap();
    heard.recv().unwrap();
    let mut rest = [0; 4096];
    // The client closes it before the request is complete, which may appear as an error here.
    while tcp.read(&mut rest).is_ok_and(|read| read > 0) {}
}
