//! Key set of an issuer (JWKS): fetched, cached, and fetched again when it changes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, Method};
use serde_json::Value;
use stayput_http::{Client, Request, Target};
use stayput_sync::Mutex;
use tokio::time::Instant;

use super::jwk::Jwk;

/// Age after which keys are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Maximum age of keys while the issuer cannot be reached, so that an issuer that is down for a night locks out no
/// client.
const MAX_AGE_OFFLINE: Duration = Duration::from_secs(24 * 3600);

/// Minimum interval between two fetches, whatever key ids tokens name.
const REFETCH_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a request to the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer of the issuer.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Maximum number of keys that are read.
const MAX_KEYS: usize = 100;

/// Source of the keys.
#[derive(Clone, Debug)]
pub(crate) enum KeySource {
    /// URL of the key set.
    Set(Target),
    /// Issuer whose metadata names the key set (RFC 8414 or OpenID Connect Discovery).
    Issuer(String),
}

/// Keys of an issuer. Clones share the same keys.
#[derive(Clone)]
pub(crate) struct Keys(Arc<Inner>);

struct Inner {
    /// Distinguishes these keys from those of another configuration.
    number: u64,
    source: KeySource,
    client: Client,
    known: Mutex<CachedKeys>,
    /// Lock that is held during a fetch. Other callers wait for it.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct CachedKeys {
    keys: Arc<[Jwk]>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
}

/// The keys cannot be fetched, and none are cached.
#[derive(Debug)]
pub(super) struct KeysUnavailable;

impl Keys {
    pub(crate) fn new(source: KeySource, client: Client) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (known, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { number, source, client, known, turn }))
    }

    /// Returns a number that only clones of these keys share.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether the keys come from this source.
    pub(crate) fn come_from(&self, source: &KeySource) -> bool {
        match (&self.0.source, source) {
            (KeySource::Set(own), KeySource::Set(other)) => own == other,
            (KeySource::Issuer(own), KeySource::Issuer(other)) => own == other,
            _ => false,
        }
    }

    /// Returns the keys that may have signed a token: the one it names, or all if it names none.
    pub(super) async fn find(&self, kid: Option<&str>) -> Result<Vec<Jwk>, KeysUnavailable> {
        let known = self.0.cached();
        let found = known.with(kid);
        if !found.is_empty() && known.is_usable() {
            if !known.is_fresh() && known.may_ask() {
                // The token is checked with the cached keys, so the caller does not wait for the fetch.
                let inner = self.0.clone();
                tokio::runtime::Handle::current().spawn(async move { inner.fetch().await });
            }
            return Ok(found);
        }
        self.0.fetch().await;
        let known = self.0.cached();
        if known.is_usable() { Ok(known.with(kid)) } else { Err(KeysUnavailable) }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.0.source).finish()
    }
}

impl CachedKeys {
    fn with(&self, kid: Option<&str>) -> Vec<Jwk> {
        let fits = |key: &&Jwk| kid.is_none_or(|kid| key.kid.as_deref() == Some(kid));
        self.keys.iter().filter(fits).cloned().collect()
    }

    fn is_fresh(&self) -> bool {
        self.fetched.is_some_and(|at| at.elapsed() < MAX_AGE)
    }

    fn is_usable(&self) -> bool {
        self.fetched.is_some_and(|at| at.elapsed() < MAX_AGE_OFFLINE)
    }

    fn may_ask(&self) -> bool {
        self.tried.is_none_or(|at| at.elapsed() >= REFETCH_INTERVAL)
    }
}

impl Inner {
    fn cached(&self) -> CachedKeys {
        self.known.lock().clone()
    }

    /// Fetches the keys, unless another caller has just done so.
    async fn fetch(&self) {
        let _turn = self.turn.lock().await;
        if !self.cached().may_ask() {
            return;
        }
        let keys = tokio::time::timeout(FETCH_TIMEOUT, self.ask()).await.ok().flatten();
        let mut known = self.known.lock();
        known.tried = Some(Instant::now());
        if let Some(keys) = keys {
            known.keys = keys.into();
            known.fetched = known.tried;
        }
    }

    /// Requests the keys. Returns `None` if the answer cannot be parsed.
    async fn ask(&self) -> Option<Vec<Jwk>> {
        let set = match &self.source {
            KeySource::Set(url) => url.clone(),
            KeySource::Issuer(issuer) => self.discover(issuer).await?,
        };
        let document = self.get(set).await?;
        let keys = document.get("keys")?.as_array()?;
        Some(keys.iter().filter_map(Jwk::read).take(MAX_KEYS).collect())
    }

    /// Reads the URL of the key set from the metadata of the issuer.
    async fn discover(&self, issuer: &str) -> Option<Target> {
        for url in well_known(issuer) {
            let Ok(url) = Target::parse(&url) else { continue };
            let Some(metadata) = self.get(url).await else { continue };
            // Without this check an issuer could present the keys of another one as its own.
            let same = metadata.get("issuer").and_then(Value::as_str) == Some(issuer);
            if let Some(url) = metadata.get("jwks_uri").and_then(Value::as_str).filter(|_| same) {
                return key_set(issuer, url);
            }
        }
        None
    }

    async fn get(&self, url: Target) -> Option<Value> {
        let mut headers = HeaderMap::new();
        let json = http::HeaderValue::from_static("application/json");
        headers.insert(http::header::ACCEPT, json);
        let (body, method) = (bytes::Bytes::new(), Method::GET);
        let (first_byte, idle) = (FETCH_TIMEOUT, FETCH_TIMEOUT);
        let request = Request { method, url, headers, body, first_byte, idle };
        let answer = self.client.send(request).await.ok()?;
        if !answer.status.is_success() {
            return None;
        }
        serde_json::from_slice(&answer.body.collect(MAX_RESPONSE_BYTES).await.ok()?).ok()
    }
}

/// Parses the URL of a key set. An https issuer must not point to a plain-http JWKS.
fn key_set(issuer: &str, url: &str) -> Option<Target> {
    let url = Target::parse(url).ok()?;
    let as_safe = url.origin().starts_with("https://") || !issuer.starts_with("https://");
    as_safe.then_some(url)
}

/// URLs of the metadata of an issuer. RFC 8414 inserts its path before the path of the issuer, OpenID Connect appends
/// it.
fn well_known(issuer: &str) -> [String; 2] {
    let issuer = issuer.trim_end_matches('/');
    let start = issuer.find("://").map_or(0, |at| at + 3);
    let path = issuer[start..].find('/').map_or(issuer.len(), |at| start + at);
    let (origin, path) = issuer.split_at(path);
    [
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{issuer}/.well-known/openid-configuration"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys over plain HTTP could be replaced on the way.
    #[test]
    fn https_issuer_must_not_use_a_plain_http_key_set() {
        let (safe, local) = ("https://id.example.com", "http://127.0.0.1:9");
        assert!(key_set(safe, "https://keys.example.com/set").is_some());
        assert!(key_set(safe, "http://id.example.com/set").is_none());
        assert!(key_set(safe, "file:///etc/passwd").is_none());
        assert!(key_set(local, "http://127.0.0.1:9/set").is_some());
    }

    #[test]
    fn well_known_urls_follow_rfc_8414_and_openid_connect() {
        assert_eq!(
            well_known("https://id.example.com/realms/one"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server/realms/one",
                "https://id.example.com/realms/one/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            well_known("https://id.example.com/")[1],
            "https://id.example.com/.well-known/openid-configuration"
        );
    }
}
