//! Keys of `auth`, and the URL that clients are told.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::{
    issuer::{Issuer, Signer},
    kit::{Key, Peer, Stage, get, greet_as, hello, token},
};

/// Audience of the tokens.
const AUDIENCE: &str = "https://mcp.example.com";

/// Issuer with one key.
struct Scene {
    signer: Signer,
    issuer: Issuer,
}

impl Scene {
    async fn new() -> Self {
        let signer = Signer::new("one");
        let issuer = Issuer::start(&[&signer]).await;
        Self { signer, issuer }
    }

    /// Adds `auth.jwt` to the file of a key.
    fn on(&self, key: Key) -> Key {
        key.with(&json!({ "auth": { "jwt": { "issuer": self.issuer.url, "audience": AUDIENCE } } }))
    }

    /// Client with a token of these claims.
    #[allow(clippy::disallowed_methods, reason = "tokens are of now")]
    fn peer(&self, more: &Value, age: u64) -> Peer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": self.issuer.url, "aud": AUDIENCE, "sub": "ann",
            "iat": now - age - 60, "exp": now - age + if age == 0 { 60 } else { 0 },
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        Peer::bearer(&self.signer.signed(&self.signer.head(), &claims))
    }
}

/// Observer: whether the admin API tells the arguments of a call.
async fn shown_arguments(stage: Stage, peer: &Peer) -> String {
    let gateway = stage.gateway().await;
    let client = peer.connect(&gateway).await.unwrap();
    client.call(&gateway, "echo", json!({ "word": "argument-of-the-call" })).await;
    let list = get(&gateway, "/admin/sessions", peer).await.message().await;
    let path = format!("/admin/sessions/{}", list["sessions"][0]["id"].as_str().unwrap());
    let shown = get(&gateway, &path, peer).await.message().await;
    assert_eq!(shown["recent_calls"][0]["label"], "echo", "{shown}");
    let is_there = shown.to_string().contains("argument-of-the-call");
    if is_there { "argument" } else { "none" }.to_owned()
}

/// Observer: status of the admin API for this client.
async fn admin(stage: Stage, peer: &Peer) -> String {
    let gateway = stage.gateway().await;
    get(&gateway, "/admin/status", peer).await.status.as_str().to_owned()
}

keys! {
    "stayput.auth.tokens.*" token_lets_its_bearer_in |key| {
        let ((ann, hash), (_, other)) = (token("ann"), token("bob"));
        let key = key.with(&json!({ "auth": { "tokens": { "bob": other } } }));
        let observe = async |stage| greet_as(stage, &Peer::bearer(&ann)).await;
        key.set(json!(hash)).shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.tokens.*.hash" hash_is_that_of_the_token |key| {
        let ((ann, hash), (_, other)) = (token("ann"), token("ann"));
        let observe = async |stage| greet_as(stage, &Peer::bearer(&ann)).await;
        key.set(json!(hash)).instead_of(json!(other)).shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.tokens.*.claims" claims_of_a_token_count |key| {
        let (ann, hash) = token("ann");
        let key = key.with(&json!({ "auth": { "tokens": { "ann": { "hash": hash } } } }));
        let choices = json!({ "stayput": { "for": { "team": "ops" } } });
        let key = key.on(&json!({ "mcpServers": { "test": choices } }));
        let observe = async |stage| greet_as(stage, &Peer::bearer(&ann)).await;
        key.set(json!({ "team": "ops" })).shows(observe, ["200", "404"]).await;
    }
    "stayput.ui.show_arguments" dashboard_shows_arguments |key| {
        let (ann, hash) = token("ann");
        let key = key.with(&json!({ "auth": { "tokens": { "ann": { "hash": hash, "admin": true } } } }));
        let observe = async |stage| shown_arguments(stage, &Peer::bearer(&ann)).await;
        key.set(json!(true)).shows(observe, ["argument", "none"]).await;
    }
    "stayput.auth.tokens.*.admin" token_may_be_of_an_admin |key| {
        let (ann, hash) = token("ann");
        let key = key.with(&json!({ "auth": { "tokens": { "ann": { "hash": hash } } } }));
        let observe = async |stage| admin(stage, &Peer::bearer(&ann)).await;
        key.set(json!(true)).shows(observe, ["200", "403"]).await;
    }
    "stayput.auth.tokens_file" token_of_a_file_lets_its_bearer_in |key| {
        let ((ann, hash), (_, other)) = (token("ann"), token("bob"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("ann {hash}\n")).unwrap();
        let key = key.with(&json!({ "auth": { "tokens": { "bob": other } } }));
        let observe = async |stage| greet_as(stage, &Peer::bearer(&ann)).await;
        key.set(json!(path)).shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.jwt.issuer" issuer_is_that_of_the_token |key| {
        let scene = Scene::new().await;
        let jwks = format!("{}/keys", scene.issuer.url);
        let key = key.with(&json!({ "auth": { "jwt": { "audience": AUDIENCE, "jwks": jwks } } }));
        let key = key.set(json!(scene.issuer.url)).instead_of(json!("http://127.0.0.1:1"));
        let observe = async |stage| greet_as(stage, &scene.peer(&json!({}), 0)).await;
        key.shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.jwt.audience" audience_is_that_of_the_token |key| {
        let scene = Scene::new().await;
        let jwt = json!({ "jwt": { "issuer": scene.issuer.url } });
        let key = key.with(&json!({ "public_url": AUDIENCE, "auth": jwt }));
        let peer = scene.peer(&json!({ "aud": "https://other.example.com" }), 0);
        let observe = async |stage| greet_as(stage, &peer).await;
        key.set(json!("https://other.example.com")).shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.jwt.jwks" jwks_is_where_the_keys_are |key| {
        let scene = Scene::new().await;
        let issuer = format!("{}/realm", scene.issuer.url);
        let jwt = json!({ "jwt": { "issuer": issuer, "audience": AUDIENCE } });
        let peer = scene.peer(&json!({ "iss": issuer }), 0);
        let observe = async |stage| greet_as(stage, &peer).await;
        let jwks = json!(format!("{}/keys", scene.issuer.url));
        key.with(&json!({ "auth": jwt })).set(jwks).shows(observe, ["200", "503"]).await;
    }
    "stayput.auth.jwt.subject" subject_is_the_claim_of_the_owner |key| {
        let scene = Scene::new().await;
        let peer = scene.peer(&json!({ "sub": null, "email": "ann@example.com" }), 0);
        let observe = async |stage| greet_as(stage, &peer).await;
        scene.on(key).set(json!("email")).shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.jwt.leeway" leeway_is_the_time_after_the_end |key| {
        let scene = Scene::new().await;
        let observe = async |stage| greet_as(stage, &scene.peer(&json!({}), 20)).await;
        scene.on(key).set(json!("1s")).shows(observe, ["401", "200"]).await;
    }
    "stayput.auth.proxy.header" proxy_header_is_the_one_that_counts |key| {
        let observe = async |stage| greet_as(stage, &Peer::with("x-user", "ann")).await;
        let key = key.set(json!("X-User")).instead_of(json!("X-Other"));
        key.shows(observe, ["200", "401"]).await;
    }
    "stayput.auth.proxy.from" proxy_is_believed_from_its_address |key| {
        let key = key.with(&json!({ "auth": { "proxy": { "header": "X-User" } } }));
        let observe = async |stage| greet_as(stage, &Peer::with("x-user", "ann")).await;
        key.set(json!(["10.0.0.7"])).shows(observe, ["401", "200"]).await;
    }
    "stayput.auth.admin" claims_may_be_of_an_admin |key| {
        let (ann, hash) = token("ann");
        let entry = json!({ "hash": hash, "claims": { "roles": "boss" } });
        let key = key.with(&json!({ "auth": { "tokens": { "ann": entry } } }));
        let observe = async |stage| admin(stage, &Peer::bearer(&ann)).await;
        key.set(json!({ "roles": "boss" })).shows(observe, ["200", "403"]).await;
    }
    "stayput.auth.metrics" metrics_can_be_for_every_credential |key| {
        let (ann, hash) = token("ann");
        let key = key.with(&json!({ "auth": { "tokens": { "ann": hash } } }));
        let observe = async |stage: Stage| {
            let gateway = stage.gateway().await;
            get(&gateway, "/metrics", &Peer::bearer(&ann)).await.status.as_str().to_owned()
        };
        key.set(json!("authenticated")).shows(observe, ["200", "403"]).await;
    }
    "stayput.public_url" public_url_is_told_to_clients |key| {
        let scene = Scene::new().await;
        let observe = async |stage: Stage| {
            let gateway = stage.gateway().await;
            let answer = Peer::default().post(&gateway, "test", &hello()).await;
            answer.header("www-authenticate").contains("https://gateway.example.com").to_string()
        };
        let key = scene.on(key).set(json!("https://gateway.example.com"));
        key.shows(observe, ["true", "false"]).await;
    }
}
