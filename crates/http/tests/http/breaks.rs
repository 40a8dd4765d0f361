//! Connections that fail or break, and whether the request can have run.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use stayput_http::Delivery;
use stayput_http::{Client, ClientSettings, HttpErrorKind, Phase, Proxy, Request, Target};
use tokio::runtime::{self, Handle};

use super::kit::{Peer, Server, client, get, post, settings, text, until};

fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Invariant 2.
#[tokio::test]
async fn request_without_a_server_was_not_sent() {
    let address = closed_port();
    let url = format!("http://ann:s3cret@{address}/mcp?key=s3cret");
    let error = client().send(post(Target::parse(&url).unwrap(), "{}")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Connect, Delivery::NotSent));
    let said = error.to_string();
    let sentence = format!(
        "no connection to http://{address}: Connection refused; check the address and whether the server runs"
    );
    assert_eq!(said, sentence);
    assert!(!format!("{error:?}").contains("s3cret"));
}

/// Invariant 2.
#[tokio::test]
async fn request_without_a_host_was_not_sent() {
    let target = Target::parse("http://no-such-host.invalid/").unwrap();
    let error = client().send(post(target, "{}")).await.unwrap_err();
    // The resolver of this network decides how and when the name fails.
    assert_eq!(error.delivery(), Delivery::NotSent);
    assert!(error.to_string().contains("http://no-such-host.invalid"), "{error}");
}

/// Listener with a full queue: it neither accepts nor refuses connections.
struct Full {
    address: SocketAddr,
    _socket: OwnedFd,
    _queue: Vec<TcpStream>,
}

impl Full {
    fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&socket, 0).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        let next = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let queue: Vec<_> = (0..4).map_while(next).collect();
        assert!(queue.len() < 4, "the queue is not full");
        Self { address, _socket: socket, _queue: queue }
    }

    fn target(&self) -> Target {
        Target::parse(&format!("http://{}/", self.address)).unwrap()
    }
}

/// Invariant 2.
#[tokio::test]
async fn request_that_times_out_while_connecting_was_not_sent() {
    let full = Full::new();
    let short = ClientSettings { connect: Duration::from_millis(100), ..settings() };
    let client = Client::new(&short).unwrap();
    let error = client.send(post(full.target(), "{}")).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Timeout(Phase::Connect));
    assert_eq!(error.delivery(), Delivery::NotSent);

    // The other timeout can be the shorter one.
    let client = Client::new(&settings()).unwrap();
    let request = Request { first_byte: Duration::from_millis(100), ..post(full.target(), "{}") };
    let error = client.send(request).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Timeout(Phase::Connect));
    assert_eq!(error.delivery(), Delivery::NotSent);
}

/// Invariant 2: the connect timeout covers all steps, not only TCP.
#[tokio::test]
async fn request_that_times_out_after_tcp_was_not_sent() {
    let silent = Server::new(|_, peer| peer.until_closed());
    let url = format!("https://{}/", silent.address);
    let short = ClientSettings { connect: Duration::from_millis(100), ..settings() };
    let proxy = Proxy::Url { url: silent.target("/"), except: "127.0.0.1".to_owned() };
    let client = Client::new(&ClientSettings { proxy, ..short }).unwrap();
    // The first is a server that never begins TLS, the second is behind a silent proxy.
    for url in [url.as_str(), "https://server.test/"] {
        let error = client.send(post(Target::parse(url).unwrap(), "{}")).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout(Phase::Connect));
        assert_eq!(error.delivery(), Delivery::NotSent);
        assert!(error.to_string().contains("it took longer than 100ms"), "{error}");
    }
    until(|| silent.open() == 0).await;
}

/// Invariant 2: a written request may have run, however the connection ends.
#[tokio::test]
async fn request_without_an_answer_may_have_run() {
    let server = Server::new(|seen, peer| match seen.target.as_str() {
        "/reset" => peer.reset(),
        "/garbage" => {
            peer.say("hello\r\n\r\n")?;
            peer.until_closed()
        }
        "/half" => {
            peer.say("HTTP/1.1 200 O")?;
            Peer::end()
        }
        _ => Peer::end(),
    });
    let client = client();
    for path in ["/close", "/reset", "/garbage", "/half"] {
        let error = client.send(post(server.target(path), "{}")).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Broken, "{path}");
        assert_eq!(error.delivery(), Delivery::Unknown, "{path}");
        assert!(error.to_string().contains(&server.url(path)), "{error}");
    }
    assert_eq!(server.seen().len(), 4, "none was sent twice");
}

/// Invariant 2.
#[tokio::test]
async fn truncated_response_is_an_error() {
    let server = Server::new(|seen, peer| {
        match seen.target.as_str() {
            "/chunked" => {
                peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                peer.chunk("half")?;
            }
            _ => peer.say("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")?,
        }
        if seen.body == "reset" { peer.reset() } else { Peer::end() }
    });
    let client = client();
    for path in ["/chunked", "/length"] {
        for how in ["reset", "close"] {
            let sent = client.send(post(server.target(path), how)).await;
            // A reset can overtake the head that was sent before it.
            let error = match sent {
                Ok(response) => response.body.collect(1000).await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.kind(), HttpErrorKind::Broken, "{path} {how}");
            assert_eq!(error.delivery(), Delivery::Unknown, "{path} {how}");
        }
    }
    assert_eq!(server.seen().len(), 4);
}

/// Invariant 6: the closed connection shows the server that the client is gone.
#[tokio::test]
async fn dropped_body_closes_its_connection() {
    let server = Server::new(|_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        peer.chunk("one")?;
        peer.until_closed()
    });
    let client = client();
    let mut response = client.send(get(server.target("/"))).await.unwrap();
    assert_eq!(response.body.chunk().await.unwrap().unwrap(), "one");
    assert_eq!(server.open(), 1);
    drop(response);
    until(|| server.open() == 0).await;
}

/// Invariant 6.
#[tokio::test]
async fn dropped_send_closes_its_connection() {
    let server = Server::new(|_, peer| peer.until_closed());
    let client = client();
    {
        let sending = client.send(post(server.target("/"), "{}"));
        tokio::pin!(sending);
        tokio::select! {
            answer = &mut sending => panic!("{answer:?}"),
            () = until(|| server.seen().len() == 1) => {}
        }
    }
    until(|| server.open() == 0).await;
    assert_eq!(server.seen().len(), 1);
}

/// Invariant 6: a dropped send does not connect in the background.
#[tokio::test]
async fn dropped_send_stops_connecting() {
    let full = Full::new();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let patient = ClientSettings { connect: Duration::from_secs(600), ..settings() };
    let (before, client) = (tasks(), Client::new(&patient).unwrap());
    {
        let sending = client.send(post(full.target(), "{}"));
        tokio::pin!(sending);
        tokio::select! {
            answer = &mut sending => panic!("{answer:?}"),
            () = until(|| tasks() > before) => {}
        }
    }
    until(|| tasks() == before).await;
}

/// R123: a connection belongs to the client, not to the runtime of its first caller.
#[test]
fn connection_outlives_the_runtime_that_asked_for_it() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Server::new(move |_, peer| {
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")?;
        let _ = told.lock().unwrap().recv();
        peer.say("}")
    });
    let single = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let home = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    assert!(Client::new(&settings()).is_err(), "there is no runtime to live on");
    let settings = ClientSettings { runtime: Some(home.handle().clone()), ..settings() };
    let client = Client::new(&settings).unwrap();

    let response = single().block_on(client.send(get(server.target("/")))).unwrap();
    // The runtime of the first caller is gone.
    tell.send(()).unwrap();
    assert_eq!(single().block_on(text(response)), "{}");

    home.shutdown_timeout(super::kit::LONG);
    let error = single().block_on(client.send(get(server.target("/")))).unwrap_err();
    assert_eq!(error.delivery(), Delivery::NotSent);
}
