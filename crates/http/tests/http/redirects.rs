//! Redirects.

use http::{HeaderValue, Method};
use stayput_http::Delivery;
use stayput_http::{HttpErrorKind, Request, Target};

use super::kit::{Seen, Server, client, get, post, text};

/// Redirects as the path says: `/STATUS/LOCATION`.
fn sender() -> Server {
    Server::new(|seen, peer| {
        let rest = seen.target.strip_prefix("/to/").and_then(|rest| rest.split_once('/'));
        match rest {
            Some((status, "")) => peer.answer(&format!("{status} On"), "", "nowhere"),
            Some((status, to)) => {
                peer.answer(&format!("{status} On"), &format!("Location: {to}\r\n"), "moved")
            }
            None => peer.json(&format!("{} {} {}", seen.method, seen.target, seen.body)),
        }
    })
}

fn paths(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| seen.target.as_str()).collect()
}

#[tokio::test]
async fn post_is_redirected_complete_or_not_at_all() {
    let server = sender();
    let client = client();
    for status in [307, 308] {
        let mut request = post(server.target(&format!("/to/{status}//there?x=1")), "body");
        request.headers.insert("authorization", HeaderValue::from_static("Bearer one"));
        let answer = client.send(request).await.unwrap();
        assert_eq!(text(answer).await, "POST /there?x=1 body");
    }
    assert!(server.seen().iter().all(|seen| seen.header("authorization") == Some("Bearer one")));
    for status in [301, 302, 303] {
        let before = server.seen().len();
        let request = post(server.target(&format!("/to/{status}//there?key=s3cret")), "body");
        let error = client.send(request).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Redirect, Delivery::Unknown));
        let said = error.to_string();
        assert!(
            said.contains(&format!("to {} with status {status}", server.url("/there"))),
            "{said}"
        );
        assert!(said.contains("POST") && !said.contains("s3cret"), "{said}");
        assert_eq!(server.seen().len(), before + 1);
    }
}

#[tokio::test]
async fn get_follows_every_redirect_status() {
    let server = sender();
    let client = client();
    for status in [301, 302, 303, 307, 308] {
        for location in ["/there".to_owned(), "../../there".to_owned(), server.url("/there")] {
            let request = get(server.target(&format!("/to/{status}/{location}")));
            assert_eq!(text(client.send(request).await.unwrap()).await, "GET /there ");
        }
    }
    let request = Request { method: Method::HEAD, ..get(server.target("/to/302//there")) };
    assert!(client.send(request).await.is_ok_and(|response| response.status == 200));
    let request = Request { method: Method::DELETE, ..get(server.target("/to/302//there")) };
    assert_eq!(client.send(request).await.unwrap_err().kind(), HttpErrorKind::Redirect);
}

/// E36: credentials never leave the origin.
#[tokio::test]
async fn redirect_to_another_origin_is_refused() {
    let (server, other) = (sender(), sender());
    let port = server.address.port();
    let client = client();
    let others = [
        other.url("/there?key=s3cret"),
        format!("http://eve:s3cret@localhost:{port}/there"),
        format!("https://127.0.0.1:{port}/there"),
    ];
    for (to, origin) in others.iter().zip([
        other.url(""),
        format!("http://localhost:{port}"),
        format!("https://127.0.0.1:{port}"),
    ]) {
        for status in [301, 302, 303, 307, 308] {
            let url = format!("http://ann:s3cret@{}/to/{status}/{to}", server.address);
            let request = get(Target::parse(&url).unwrap());
            let error = client.send(request).await.unwrap_err();
            assert_eq!(error.kind(), HttpErrorKind::Redirect);
            let (said, advice) = (error.to_string(), format!("URL that begins with {origin}"));
            assert!(said.ends_with(&advice), "{said}");
        }
    }
    assert_eq!(other.accepted(), 0);
    assert_eq!(server.seen().len(), 15);
}

#[tokio::test]
async fn number_of_redirects_is_limited() {
    let server = sender();
    let nested = |times: usize| format!("{}/end", "/to/307/".repeat(times));
    let answer = client().send(post(server.target(&nested(5)), "x")).await.unwrap();
    assert_eq!(text(answer).await, "POST /end x");
    assert_eq!(server.seen().len(), 6);

    let circle = Server::new(|_, peer| peer.answer("307 On", "Location: /again\r\n", ""));
    let error = client().send(post(circle.target("/"), "x")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Redirect, Delivery::Unknown));
    assert!(error.to_string().contains("more than 5 times"), "{error}");
    assert_eq!(circle.seen().len(), 6);
    assert_eq!(paths(&circle.seen()), ["/", "/again", "/again", "/again", "/again", "/again"]);
}

#[tokio::test]
async fn redirect_without_a_location_is_an_error() {
    let server = sender();
    for path in ["/to/307/", "/to/307/ftp://host/", "/to/302/http://"] {
        let error = client().send(get(server.target(path))).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Redirect, "{path}");
        assert!(error.to_string().contains("without saying where to"), "{error}");
    }
    // These statuses are normal responses.
    for status in [300, 304] {
        let answer = client().send(get(server.target(&format!("/to/{status}//x")))).await.unwrap();
        assert_eq!(answer.status, status);
    }
}

/// Invariant 2: a request that was sent once is not `NotSent` because its redirect failed.
#[tokio::test]
async fn redirected_request_counts_as_sent() {
    let server = Server::new(|seen, peer| {
        if seen.target == "/second" {
            return super::kit::Peer::end();
        }
        peer.answer("307 On", "Location: /second\r\n", "")
    });
    let error = client().send(post(server.target("/"), "x")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Broken, Delivery::Unknown));
}
