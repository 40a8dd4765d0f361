//! What HTTP/1.1 allows and servers do: lengths of all kinds, answers before their time, and what
//! nobody asked for.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver},
    thread,
};

use http::StatusCode;
use stayput_upstream::{
    Delivery,
    http::{HttpErrorKind, Target},
};

use super::kit::{Peer, Server, client, fetch, get, post, text, until};

/// The end of the connection can be the end of the answer, and such a connection is not used again.
#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
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

/// Who says that he closes the connection is not asked on it again, also if he does not close it.
#[tokio::test]
async fn a_connection_is_not_used_again_by_the_word_of_the_server() {
    let server = Server::new(|seen, peer| match seen.target.as_str() {
        "/close" => peer.answer("200 OK", "Connection: close\r\n", "{}"),
        "/old" => peer.say("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        "/both" => {
            let both = "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n";
            peer.say(&format!("HTTP/1.1 200 OK\r\n{both}\r\n2\r\n{{}}\r\n0\r\n\r\n"))
        }
        // There is more than was announced.
        _ => peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 500 No\r\n\r\n"),
    });
    let client = client();
    for (before, path) in ["/close", "/old", "/both", "/more"].into_iter().enumerate() {
        assert_eq!(fetch(&client, server.target(path)).await.unwrap(), "{}", "{path}");
        assert_eq!(server.accepted(), before + 1, "{path}");
    }
    until(|| server.open() == 0).await;
}

/// Invariant 1: what a server says on a connection that nobody uses is nobody's answer.
#[tokio::test]
async fn what_nobody_asked_for_is_nobodys_answer() {
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
    // It is closed without being used.
    until(|| server.open() == 0).await;
    let second = client.send(post(server.target("/"), "second")).await.unwrap();
    assert_eq!(text(second).await, "second");
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn an_answer_may_come_in_the_smallest_pieces_and_behind_others() {
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

/// What can be read in two ways is an error and not a guess.
#[tokio::test]
async fn an_answer_with_two_ends_is_refused() {
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

async fn fetch_any(server: &Server, path: &str) -> stayput_upstream::http::HttpError {
    match client().send(post(server.target(path), "{}")).await {
        Ok(response) => response.body.collect(100).await.unwrap_err(),
        Err(error) => error,
    }
}

/// A large request goes out whole, however slowly it is read.
#[tokio::test]
async fn a_large_request_arrives_whole() {
    let server = Server::new(|seen, peer| peer.json(&seen.body.len().to_string()));
    let client = client();
    for length in [0, 1, 16 << 10, (16 << 10) + 1, 6 << 20] {
        let response = client.send(post(server.target("/"), &"x".repeat(length))).await.unwrap();
        assert_eq!(text(response).await, length.to_string());
    }
    assert_eq!(server.accepted(), 1);
}

/// A server that has heard enough answers before it has read all. What was not written then stays
/// unwritten, and the connection is not used again.
#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_an_answer() {
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

/// Reads the head, answers, and reads no more until the client has `heard` it: else the request could
/// be written to its end after all, and the connection would rightly be used again.
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
    // The client closes it without having written all, which may be told as an error.
    while tcp.read(&mut rest).is_ok_and(|read| read > 0) {}
}
