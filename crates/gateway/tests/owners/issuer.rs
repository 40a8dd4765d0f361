//! Token issuer: a key pair, and a server that publishes the public key.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// Key pair with a key id.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pair: EcdsaKeyPair,
}

impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        let (how, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(how, made.as_ref(), &random).unwrap();
        Self { kid: kid.to_owned(), pair }
    }

    /// Returns the public key as a point of the curve.
    pub(crate) fn point(&self) -> Vec<u8> {
        self.pair.public_key().as_ref().to_vec()
    }

    pub(crate) fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.kid, "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]),
            "y": URL_SAFE_NO_PAD.encode(&point[33..]),
        })
    }

    /// Signs a token with this head and these claims.
    pub(crate) fn signed(&self, head: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(head), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    pub(crate) fn head(&self) -> Value {
        json!({ "alg": "ES256", "typ": "at+jwt", "kid": self.kid })
    }
}

/// JWKS server, which can be switched off.
pub(crate) struct Issuer {
    pub(crate) url: String,
    pub(crate) keys: Arc<Mutex<Vec<Value>>>,
    pub(crate) up: Arc<AtomicBool>,
    /// Number of JWKS requests.
    pub(crate) asked: Arc<AtomicUsize>,
}

impl Issuer {
    pub(crate) async fn start(signers: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = signers.iter().map(|signer| signer.public()).collect();
        let issuer = Self {
            url,
            keys: Arc::new(Mutex::new(keys)),
            up: Arc::new(AtomicBool::new(true)),
            asked: Arc::default(),
        };
        let (url, keys) = (issuer.url.clone(), issuer.keys.clone());
        let (up, asked) = (issuer.up.clone(), issuer.asked.clone());
        tokio::runtime::Handle::current().spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match socket.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let (status, body) = if !up.load(Ordering::SeqCst) {
                    ("503 Service Unavailable", json!({}))
                } else if head.starts_with("GET /.well-known/openid-configuration ") {
                    ("200 OK", json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }))
                } else if head.starts_with("GET /keys ") {
                    asked.fetch_add(1, Ordering::SeqCst);
                    ("200 OK", json!({ "keys": *keys.lock().unwrap() }))
                } else {
                    ("404 Not Found", json!({}))
                };
                let body = body.to_string();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        issuer
    }
}
