//! Proxies between client and server.

use std::{
    io,
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
};

use stayput_http::Delivery;
use stayput_http::{Client, ClientSettings, HttpErrorKind, Proxy, Target};

use super::{
    kit::{Peer, Seen, Server, fetch, post, settings},
    tls::Authority,
};

/// Encodes `ann:s3cret`.
const CREDENTIALS: &str = "Basic YW5uOnMzY3JldA==";

/// Proxy to any server that requires credentials.
fn proxy() -> Server {
    Server::new(|seen, peer| {
        if seen.header("proxy-authorization") != Some(CREDENTIALS) {
            return peer.answer("407 Proxy Authentication Required", "", "");
        }
        if seen.method == "CONNECT" { tunnel(seen, peer) } else { forward(seen, peer) }
    })
}

fn tunnel(seen: &Seen, peer: &mut Peer) -> io::Result<()> {
    let server = TcpStream::connect(&seen.target)?;
    peer.say("HTTP/1.1 200 Connection established\r\n\r\n")?;
    let client = peer.tcp.try_clone()?;
    let (mut there, mut back) = ((client.try_clone()?, server.try_clone()?), (server, client));
    let copying = thread::spawn(move || {
        let _ = io::copy(&mut there.0, &mut there.1);
        there.1.shutdown(Shutdown::Write)
    });
    let _ = io::copy(&mut back.0, &mut back.1);
    back.1.shutdown(Shutdown::Write)?;
    let _ = copying.join();
    Peer::end()
}

/// Answers with the request instead of forwarding it.
fn forward(seen: &Seen, peer: &mut Peer) -> io::Result<()> {
    peer.json(&format!("forwarded {} {}", seen.method, seen.target))
}

fn through(proxy: &Server, credentials: &str, except: &str) -> ClientSettings {
    let url = Target::parse(&format!("http://{credentials}{}", proxy.address)).unwrap();
    ClientSettings { proxy: Proxy::Url { url, except: except.to_owned() }, ..settings() }
}

/// R139: a plain HTTP request goes to the proxy with its absolute URL.
#[tokio::test]
async fn plain_request_is_forwarded() {
    let proxy = proxy();
    let client = Client::new(&through(&proxy, "ann:s3cret@", "")).unwrap();
    let target = Target::parse("http://server.test:81/mcp?x=1").unwrap();
    for _ in 0..3 {
        let said = fetch(&client, target.clone()).await.unwrap();
        assert_eq!(said, "forwarded GET http://server.test:81/mcp?x=1");
    }
    assert_eq!(proxy.accepted(), 1);
    assert_eq!(proxy.seen()[0].header("host"), Some("server.test:81"));
}

#[tokio::test]
async fn connection_to_the_proxy_may_use_tls() {
    let authority = Authority::new();
    let proxy = authority.server(forward);
    let url = Proxy::Url { url: proxy.target("/"), except: String::new() };
    let client = Client::new(&ClientSettings { proxy: url, ..authority.trusted() }).unwrap();
    let said = fetch(&client, Target::parse("http://server.test/mcp").unwrap()).await.unwrap();
    assert_eq!(said, "forwarded GET http://server.test/mcp");
}

/// R139: an https request goes through a tunnel. The server does not see the credentials for the proxy.
#[tokio::test]
async fn https_request_goes_through_a_tunnel() {
    let authority = Authority::new();
    let server = authority.server(|_, peer| peer.json("{}"));
    let proxy = proxy();
    let trust = authority.trusted().trust;
    let settings = ClientSettings { trust, ..through(&proxy, "ann:s3cret@", "") };
    let client = Client::new(&settings).unwrap();
    for _ in 0..3 {
        assert_eq!(fetch(&client, server.target("/mcp")).await.unwrap(), "{}");
    }
    let asked = proxy.seen();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].method.as_str(), &asked[0].target),
        ("CONNECT", &server.address.to_string())
    );
    for seen in server.seen() {
        assert_eq!(seen.target, "/mcp");
        assert_eq!(seen.header("proxy-authorization"), None);
    }
    drop(client);
    super::kit::until(|| server.open() == 0 && proxy.open() == 0).await;
}

#[tokio::test]
async fn exception_bypasses_the_proxy() {
    let proxy = proxy();
    let server = Server::new(|_, peer| peer.json("straight"));
    let client = Client::new(&through(&proxy, "ann:s3cret@", "other.test,127.0.0.1")).unwrap();
    assert_eq!(fetch(&client, server.target("/")).await.unwrap(), "straight");
    assert_eq!(proxy.accepted(), 0);
    assert_eq!(server.seen()[0].header("proxy-authorization"), None);
    assert_eq!(server.seen()[0].target, "/");
}

/// Invariants 2 and 8.
#[tokio::test]
async fn refusing_proxy_is_named_without_credentials() {
    let proxy = proxy();
    let client = Client::new(&through(&proxy, "eve:s3cret@", "")).unwrap();
    let target = Target::parse("https://ann:s3cret@server.test/mcp?key=s3cret").unwrap();
    let error = client.send(post(target, "{}")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Proxy, Delivery::NotSent));
    assert_eq!(
        error.to_string(),
        format!(
            "https://server.test cannot be reached through the proxy: http://{}: proxy authorization \
             required; check the proxy's address, user and password, or name the host in NO_PROXY",
            proxy.address
        )
    );
    let shown = format!("{error:?} {client:?} {:?}", through(&proxy, "eve:s3cret@", ""));
    assert!(!shown.contains("s3cret") && !shown.contains("Basic"), "{shown}");
}

/// Invariant 2.
#[tokio::test]
async fn failing_proxy_is_named() {
    let broken = Server::new(|seen, peer| match seen.target.as_str() {
        "refused.test:443" => peer.answer("403 Forbidden", "", ""),
        _ => Peer::end(),
    });
    let client = Client::new(&through(&broken, "", "")).unwrap();
    let closed = Server::new(|_, _| Peer::end()).address;
    let proxy = Target::parse(&format!("http://{closed}")).unwrap();
    let proxy = Proxy::Url { url: proxy, except: String::new() };
    let gone = Client::new(&ClientSettings { proxy, ..settings() }).unwrap();
    super::kit::until(|| TcpStream::connect(closed).is_err()).await;
    for (client, url) in [
        (&client, "https://refused.test"),
        (&client, "https://ended.test"),
        (&gone, "https://server.test"),
        (&gone, "http://server.test"),
    ] {
        let error = client.send(post(Target::parse(url).unwrap(), "{}")).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Proxy, Delivery::NotSent));
        let said = error.to_string();
        assert!(said.starts_with(&format!("{url} cannot be reached through the proxy")), "{said}");
    }
}

/// R139. The environment belongs to the process, so this test runs itself again in another one.
#[test]
fn the_environment_names_the_proxy() {
    const AGAIN: &str = "STAYPUT_TEST_AGAIN";
    if let Ok(straight) = std::env::var(AGAIN) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(ask_by_the_environment(&straight));
    }
    let (proxy, server) = (proxy(), Server::new(|_, peer| peer.json("straight")));
    let me = std::env::current_exe().unwrap();
    let mut again = Command::new(me);
    again.args(["--exact", "proxies::the_environment_names_the_proxy", "--nocapture"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"] {
        again.env_remove(name);
    }
    again.env("http_proxy", format!("http://ann:s3cret@{}", proxy.address));
    let output = again.env(AGAIN, server.url("/")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(proxy.seen().len(), 1);
    assert_eq!(server.seen().len(), 1);
}

async fn ask_by_the_environment(straight: &str) {
    let client = Client::new(&ClientSettings::default()).unwrap();
    let target = Target::parse("http://server.test/").unwrap();
    assert_eq!(fetch(&client, target).await.unwrap(), "forwarded GET http://server.test/");
    let target = Target::parse(straight).unwrap();
    assert_eq!(fetch(&client, target).await.unwrap(), "straight");
}

#[tokio::test]
async fn a_proxy_that_does_not_speak_http_is_refused() {
    const AGAIN: &str = "STAYPUT_TEST_SOCKS";
    if std::env::var_os(AGAIN).is_none() {
        let name = "proxies::a_proxy_that_does_not_speak_http_is_refused";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]).env(AGAIN, "1");
        for name in ["HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"] {
            again.env_remove(name);
        }
        let output = again.env("ALL_PROXY", "socks5://ann:s3cret@127.0.0.1:1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let client = Client::new(&ClientSettings::default()).unwrap();
    let target = Target::parse("http://server.test/").unwrap();
    let error = fetch(&client, target).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Proxy, Delivery::NotSent));
    let said = error.to_string();
    assert!(said.contains("only proxies that speak HTTP") && !said.contains("s3cret"), "{said}");
}
