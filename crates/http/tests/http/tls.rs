//! TLS connections and trusted certificates.

use std::{
    io::{self, Write},
    net::TcpStream,
    path::PathBuf,
    sync::Arc,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use stayput_http::Delivery;
use stayput_http::{Client, ClientSettings, HttpErrorKind, Target, Trust};

use super::kit::{Bytes, Peer, Seen, Server, client, fetch, post, settings};

/// Certificate authority and a server with a certificate of it.
pub(crate) struct Authority(stayput_testkit::Authority);

impl Authority {
    pub(crate) fn new() -> Self {
        Self(stayput_testkit::Authority::default())
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.file()
    }

    pub(crate) fn trusted(&self) -> ClientSettings {
        let trust = Trust { system: true, ca_files: vec![self.file()] };
        ClientSettings { trust, ..settings() }
    }

    pub(crate) fn server(
        &self,
        does: impl Fn(&Seen, &mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Server {
        let certificate = CertificateDer::from_pem_file(self.0.server_cert()).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.0.server_key()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let config = Arc::new(config);
        let wrap = move |tcp: TcpStream| -> Box<dyn Bytes> {
            Box::new(StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), tcp))
        };
        Server::wrapped("https", wrap, does)
    }
}

/// R139.
#[tokio::test]
async fn configured_authority_is_trusted() {
    let authority = Authority::new();
    let server = authority.server(|seen, peer| peer.json(&seen.body));
    let named = Client::new(&authority.trusted()).unwrap();
    for _ in 0..5 {
        assert_eq!(fetch(&named, server.target("/")).await.unwrap(), "");
    }
    assert_eq!(server.accepted(), 1);
    let only = Trust { system: false, ca_files: vec![authority.file()] };
    let only = Client::new(&ClientSettings { trust: only, ..settings() }).unwrap();
    assert_eq!(fetch(&only, server.target("/")).await.unwrap(), "");
}

/// Invariant 2: nothing is sent to an untrusted server.
#[tokio::test]
async fn unknown_authority_is_not_trusted() {
    let authority = Authority::new();
    let server = authority.server(|_, peer| peer.json("{}"));
    let error = client().send(post(server.target("/"), "{}")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Tls, Delivery::NotSent));
    assert_eq!(
        error.to_string(),
        format!(
            "no secure connection to {} could be made: invalid peer certificate: UnknownIssuer; if \
             its certificate comes from an authority of your own, name that authority's file in \
             SSL_CERT_FILE or in `ca_file`",
            server.url("")
        )
    );
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn certificate_for_another_name_is_refused() {
    let authority =
        stayput_testkit::Authority::signing_for("DNS:localhost,DNS:other.test,IP:127.0.0.9");
    let authority = Authority(authority);
    let server = authority.server(|_, peer| peer.json("{}"));
    let client = Client::new(&authority.trusted()).unwrap();
    let error = client.send(post(server.target("/"), "{}")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Tls, Delivery::NotSent));
    assert!(error.to_string().contains("not valid for name \"127.0.0.1\""), "{error}");
    let url = format!("https://LOCALHOST:{}/", server.address.port());
    assert_eq!(fetch(&client, Target::parse(&url).unwrap()).await.unwrap(), "{}");
}

#[tokio::test]
async fn server_without_tls_is_reported() {
    let talkative = |mut tcp: TcpStream| -> Box<dyn Bytes> {
        tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        Box::new(tcp)
    };
    let server = Server::wrapped("https", talkative, |_, _| Peer::end());
    let error = client().send(post(server.target("/"), "{}")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (HttpErrorKind::Tls, Delivery::NotSent));
    assert!(error.to_string().contains(&server.url("")), "{error}");
}
