//! Pooled connections.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use stayput_http::Delivery;
use stayput_http::{Client, ClientSettings};
use tokio::{runtime::Handle, task::JoinSet};

use super::kit::{Peer, Server, client, fetch, get, post, settings, text, until};

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// R123, R141: two sessions that call one server one after the other use one connection.
#[tokio::test]
async fn sequential_requests_use_one_connection() {
    let server = Server::new(|seen, peer| {
        if seen.target == "/chunked" {
            peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            peer.chunk("{}")?;
            return peer.say("0\r\n\r\n");
        }
        if seen.target == "/empty" {
            return peer.answer("202 Accepted", "", "");
        }
        peer.json("{}")
    });
    let one = client();
    let other = one.clone();
    for round in 0..30 {
        let client = if round % 2 == 0 { &one } else { &other };
        let path = ["/json", "/chunked", "/empty"][round % 3];
        fetch(client, server.target(path)).await.unwrap();
    }
    assert_eq!(server.seen().len(), 30);
    assert_eq!(server.accepted(), 1);
}

/// Invariant 2: a pooled connection that the server has closed is not used, and does not fail the next caller.
#[tokio::test]
async fn pooled_connection_that_the_server_closed_is_replaced() {
    let server = Server::new(|_, peer| {
        peer.json("{}")?;
        Peer::end()
    });
    let client = client();
    for number in 1..=5 {
        let response = client.send(post(server.target("/"), "{}")).await.unwrap();
        assert_eq!(text(response).await, "{}");
        // Closed by the server and noticed here: only the task that maintains the pool is left.
        until(|| server.open() == 0 && tasks() <= 1).await;
        assert_eq!((server.accepted(), server.seen().len()), (number, number));
    }
}

/// Server that closes a connection without notice after this many responses.
fn ending_after(answers: usize) -> Server {
    let answered = AtomicUsize::new(0);
    Server::new(move |_, peer| {
        peer.json("{}")?;
        match (answered.fetch_add(1, Ordering::Relaxed) + 1) % answers {
            0 => Peer::end(),
            _ => Ok(()),
        }
    })
}

/// Invariant 2: the same holds for a connection that was reused before and is trusted for a moment.
#[tokio::test]
async fn reused_connection_that_the_server_closed_is_replaced() {
    let (server, client) = (ending_after(3), client());
    for number in 1..=5 {
        for _ in 0..3 {
            fetch(&client, server.target("/")).await.unwrap();
        }
        until(|| server.open() == 0 && tasks() <= 1).await;
        assert_eq!((server.accepted(), server.seen().len()), (number, 3 * number));
    }
}

/// Invariant 2: however a closing connection and the next request race, no request runs twice, and a request reported
/// as not sent was not sent. The connection is closed after its first response or a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_runs_twice_while_the_server_closes_connections() {
    for answers in [1, 3] {
        meet(&ending_after(answers)).await;
    }
}

async fn meet(server: &Server) {
    let client = client();
    let mut outcomes = HashMap::new();
    for number in 0..500 {
        let body = number.to_string();
        let outcome = match client.send(post(server.target("/"), &body)).await {
            Ok(response) => response.body.collect(100).await.map(drop),
            Err(error) => Err(error),
        };
        outcomes.insert(body, outcome);
    }
    let mut executed = HashMap::new();
    for seen in server.seen() {
        *executed.entry(seen.body).or_insert(0) += 1;
    }
    for (body, outcome) in outcomes {
        let times = executed.get(&body).copied().unwrap_or(0);
        match outcome {
            Ok(()) => assert_eq!(times, 1),
            Err(error) if error.delivery() == Delivery::NotSent => assert_eq!(times, 0),
            Err(_) => assert!(times <= 1),
        }
    }
}

/// Design §8: an idle client has no socket.
#[tokio::test]
async fn pooled_connection_is_closed_after_a_while() {
    let server = Server::new(|_, peer| peer.json("{}"));
    let settings = ClientSettings { idle: Duration::from_millis(100), ..settings() };
    let client = Client::new(&settings).unwrap();
    let before = tasks();
    fetch(&client, server.target("/")).await.unwrap();
    until(|| server.open() == 0).await;
    until(|| tasks() == before).await;
    fetch(&client, server.target("/")).await.unwrap();
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn number_of_pooled_connections_is_limited() {
    let server = Server::new(|_, peer| peer.json("{}"));
    let client = Client::new(&ClientSettings { max_idle: 3, ..settings() }).unwrap();
    many(&client, &server, 20).await;
    until(|| server.open() <= 3).await;
}

#[tokio::test]
async fn two_hundred_concurrent_requests_are_answered() {
    let server = Server::new(|seen, peer| peer.json(&seen.body));
    let client = client();
    many(&client, &server, 200).await;
    let mut bodies: Vec<usize> =
        server.seen().iter().map(|seen| seen.body.parse().unwrap()).collect();
    bodies.sort_unstable();
    assert!(bodies.into_iter().eq(0..200), "each exactly once");
}

async fn many(client: &Client, server: &Server, count: usize) {
    let mut all = JoinSet::new();
    for number in 0..count {
        let (client, url) = (client.clone(), server.target("/"));
        all.spawn(async move {
            let response = client.send(post(url, &number.to_string())).await.unwrap();
            assert!(!text(response).await.is_empty());
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}

/// Invariant 6: nothing is left, not even of requests that were dropped midway.
#[tokio::test]
async fn dropped_client_leaves_nothing() {
    let server = Server::new(|seen, peer| match seen.target.as_str() {
        "/silent" => peer.until_closed(),
        "/stream" => {
            peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            peer.chunk("one")?;
            peer.until_closed()
        }
        _ => peer.json("{}"),
    });
    let before = tasks();
    let client = client();
    many(&client, &server, 20).await;
    let stream = client.send(get(server.target("/stream"))).await.unwrap();
    let silent = {
        let (client, url) = (client.clone(), server.target("/silent"));
        Handle::current().spawn(async move { client.send(get(url)).await })
    };
    until(|| server.seen().iter().any(|seen| seen.target == "/silent")).await;
    silent.abort();
    assert!(silent.await.unwrap_err().is_cancelled());
    drop(client);
    drop(stream);
    until(|| tasks() == before && server.open() == 0).await;
}
