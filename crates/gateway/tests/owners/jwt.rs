//! Valid and invalid tokens of an issuer.

use std::{
    sync::atomic::Ordering,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use http::Method;
use ring::hmac;
use serde_json::{Value, json};

use super::{
    Somebody,
    issuer::{Issuer, Signer},
    support::{Gateway, gone, mark, stdio},
};

pub(super) const AUDIENCE: &str = "https://mcp.example.com";

#[allow(clippy::disallowed_methods, reason = "tokens are of now")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns the claims of a valid token for this subject.
pub(super) fn claims(issuer: &Issuer, subject: &str) -> Value {
    json!({
        "iss": issuer.url, "aud": AUDIENCE, "sub": subject,
        "iat": now(), "exp": now() + 3600, "chat": "one",
    })
}

/// Changes one of the `claims`, or removes it if the value is null.
pub(super) fn but(mut claims: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

async fn gateway(mark: &str, issuer: &Issuer, more: Value) -> Gateway {
    let mut settings = json!({
        "public_url": AUDIENCE,
        "auth": { "jwt": { "issuer": issuer.url } },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Gateway::with(json!({ "test": stdio(mark, &[]) }), settings).await
}

/// Signs a token with HS256, with a public value as the secret.
fn hashed(secret: &[u8], claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = json!({ "alg": "HS256", "typ": "JWT", "kid": "one" });
    let text = format!("{}.{}", part(&head), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes())))
}

fn symmetric(signer: &Signer, claims: &Value) -> String {
    hashed(&signer.point(), claims)
}

/// Signs a token with HS256, with the public key in PEM form as the secret. Libraries are given public keys in this
/// form.
fn symmetric_pem(signer: &Signer, claims: &Value) -> String {
    let prefix = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let text = STANDARD.encode([&prefix[..], &signer.point()].concat());
    let (first, second) = text.split_at(64);
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{first}\n{second}\n-----END PUBLIC KEY-----\n");
    hashed(pem.as_bytes(), claims)
}

/// R139: a valid token is accepted, and a refreshed one keeps the sessions. Each invalid one is refused.
#[tokio::test]
async fn tokens_of_an_issuer_are_checked() {
    let (mark, signer, foreign) = (mark("jwt"), Signer::new("one"), Signer::new("one"));
    let issuer = Issuer::start(&[&signer]).await;
    let gateway = gateway(&mark, &issuer, json!({})).await;
    let url = gateway.at("test");
    let good = claims(&issuer, "ann");
    let first = Somebody::bearer(&signer.signed(&signer.head(), &good));
    let connection = first.connect(&url).await;
    assert_eq!(first.text(&url, &connection, "count").await, "1");
    let later = but(good.clone(), "exp", json!(now() + 7200));
    let refreshed = Somebody::bearer(&signer.signed(&signer.head(), &later));
    assert_eq!(refreshed.text(&url, &connection, "count").await, "2");
    let bob = Somebody::bearer(&signer.signed(&signer.head(), &claims(&issuer, "bob")));
    assert_eq!(bob.call(&url, &connection, "count").await.status, 404);
    let (head, hour) = (signer.head(), 3600);
    let forged = signer.signed(&head, &good);
    let (text, _) = forged.rsplit_once('.').unwrap();
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for (what, token) in [
        ("another key", foreign.signed(&head, &good)),
        ("no signature", format!("{text}.")),
        ("none", format!("{}.{}.", part(&json!({ "alg": "none" })), part(&good))),
        ("HS with the public key", symmetric(&signer, &good)),
        ("HS with the public key in PEM", symmetric_pem(&signer, &good)),
        ("symmetric", signer.signed(&json!({ "alg": "HS256", "kid": "one" }), &good)),
        ("another algorithm", signer.signed(&json!({ "alg": "RS256", "kid": "one" }), &good)),
        ("unknown kid", signer.signed(&json!({ "alg": "ES256", "kid": "two" }), &good)),
        ("kid that is no text", signer.signed(&but(head.clone(), "kid", json!(["one"])), &good)),
        ("kind that is no text", signer.signed(&but(head.clone(), "typ", json!(1)), &good)),
        ("critical", signer.signed(&but(head.clone(), "crit", json!(["b64"])), &good)),
        ("another kind", signer.signed(&but(head.clone(), "typ", json!("dpop+jwt")), &good)),
        ("issuer", signer.signed(&head, &but(good.clone(), "iss", json!("https://evil.example")))),
        ("audience", signer.signed(&head, &but(good.clone(), "aud", json!(["https://other"])))),
        ("no audience", signer.signed(&head, &but(good.clone(), "aud", Value::Null))),
        ("expired", signer.signed(&head, &but(good.clone(), "exp", json!(now() - hour)))),
        ("no end", signer.signed(&head, &but(good.clone(), "exp", Value::Null))),
        ("not yet", signer.signed(&head, &but(good.clone(), "nbf", json!(now() + hour)))),
        ("made later", signer.signed(&head, &but(good.clone(), "iat", json!(now() + hour)))),
        ("nameless", signer.signed(&head, &but(good.clone(), "sub", Value::Null))),
        ("empty name", signer.signed(&head, &but(good.clone(), "sub", json!("")))),
        ("invalid_lines", "a.b.c".to_owned()),
        ("two parts", "a.b".to_owned()),
    ] {
        let answer = Somebody::bearer(&token).greet(&url).await;
        assert_eq!(answer.status, 401, "{what}");
        let challenge = answer.header("www-authenticate");
        assert!(challenge.contains("invalid_token"), "{what}: {challenge}");
        let metadata = format!("{AUDIENCE}/.well-known/oauth-protected-resource/mcp/test");
        assert!(challenge.contains(&metadata), "{what}: {challenge}");
    }
    // The leeway allows for clocks that differ by some seconds.
    let late = but(good, "exp", json!(now() - 5));
    assert_eq!(Somebody::bearer(&signer.signed(&head, &late)).greet(&url).await.status, 200);
    drop(gateway);
    gone(&mark).await;
}

/// RFC 7517 §4.3: a key of the issuer that is for other operations signs no tokens.
#[tokio::test]
async fn key_for_other_operations_signs_no_token() {
    let (mark, signer) = (mark("key-operations"), Signer::new("one"));
    for (operations, status) in
        [(json!(["encrypt", "wrapKey"]), 401), (json!("sign"), 401), (json!(["verify"]), 200)]
    {
        let issuer = Issuer::start(&[]).await;
        issuer.keys.lock().unwrap().push(but(
            but(signer.public(), "use", Value::Null),
            "key_ops",
            operations,
        ));
        let gateway = gateway(&mark, &issuer, json!({})).await;
        let token = signer.signed(&signer.head(), &claims(&issuer, "ann"));
        let answer = Somebody::bearer(&token).greet(&gateway.at("test")).await;
        assert_eq!(answer.status, status);
    }
}

/// A refused client can find the issuer in the protected resource metadata.
#[tokio::test]
async fn refused_client_finds_the_issuer() {
    let (mark, signer) = (mark("metadata"), Signer::new("one"));
    let issuer = Issuer::start(&[&signer]).await;
    let gateway = gateway(&mark, &issuer, json!({})).await;
    let at = format!("{}/.well-known/oauth-protected-resource/mcp/test", gateway.url);
    let answer = Somebody::nobody().ask(Method::GET, &at, "").await;
    assert_eq!(answer.status, 200);
    let told = answer.json().await;
    assert_eq!(told["resource"], format!("{AUDIENCE}/mcp/test"));
    assert_eq!(told["authorization_servers"], json!([issuer.url]));
}

/// Keys change. If the issuer is down, tokens of known keys are still accepted, and tokens of unknown keys get a retry
/// hint.
#[tokio::test]
async fn changed_keys_are_fetched() {
    let (mark, old) = (mark("rotation"), Signer::new("old"));
    let issuer = Issuer::start(&[]).await;
    issuer.up.store(false, Ordering::SeqCst);
    let gateway = gateway(&mark, &issuer, json!({})).await;
    let url = gateway.at("test");
    let ann = Somebody::bearer(&old.signed(&old.head(), &claims(&issuer, "ann")));
    let answer = ann.greet(&url).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), "5");
    issuer.keys.lock().unwrap().push(old.public());
    issuer.up.store(true, Ordering::SeqCst);
    let mut status = 503;
    for _ in 0..300 {
        status = ann.greet(&url).await.status.as_u16();
        if status != 503 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(status, 200);
    // The issuer is not asked for every unknown key id.
    let before = issuer.asked.load(Ordering::SeqCst);
    for kid in 0..20 {
        let head = json!({ "alg": "ES256", "kid": format!("k{kid}") });
        let token = old.signed(&head, &claims(&issuer, "ann"));
        assert_eq!(Somebody::bearer(&token).greet(&url).await.status, 401);
    }
    assert!(issuer.asked.load(Ordering::SeqCst) <= before + 2);
    // The issuer replaces its key. The gateway fetches the new one when a token first names it.
    let new = Signer::new("new");
    *issuer.keys.lock().unwrap() = vec![new.public()];
    let ann = Somebody::bearer(&new.signed(&new.head(), &claims(&issuer, "ann")));
    let mut status = 401;
    for _ in 0..300 {
        status = ann.greet(&url).await.status.as_u16();
        if status != 401 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(status, 200);
    let late = Somebody::bearer(&old.signed(&old.head(), &claims(&issuer, "carl")));
    assert_eq!(late.greet(&url).await.status, 401, "its key was taken back");
    issuer.up.store(false, Ordering::SeqCst);
    let other = Somebody::bearer(&new.signed(&new.head(), &claims(&issuer, "bob")));
    assert_eq!(other.greet(&url).await.status, 200, "its key is known");
    drop(gateway);
    gone(&mark).await;
}

/// R168: a claim of the token can name the conversation.
#[tokio::test]
async fn claim_names_the_conversation() {
    let (mark, signer) = (mark("claim"), Signer::new("one"));
    let issuer = Issuer::start(&[&signer]).await;
    let more = json!({ "identify": { "custom": ["claim:chat"] } });
    let gateway = gateway(&mark, &issuer, more).await;
    let url = gateway.at("test");
    let chat = |name: &str| {
        let said = but(claims(&issuer, "ann"), "chat", json!(name));
        Somebody::bearer(&signer.signed(&signer.head(), &said))
    };
    let (one, two) = (chat("one"), chat("two"));
    let (first, again) = (one.connect(&url).await, one.connect(&url).await);
    assert_eq!(one.text(&url, &first, "count").await, "1");
    assert_eq!(one.text(&url, &again, "count").await, "2", "the same conversation");
    let other = two.connect(&url).await;
    assert_eq!(two.text(&url, &other, "count").await, "1", "another one");
    drop(gateway);
    gone(&mark).await;
}
