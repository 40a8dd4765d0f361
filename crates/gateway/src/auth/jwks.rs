//! The public keys of an issuer: fetched, kept, and fetched again when they change.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, Method};
use serde_json::Value;
use stayput_upstream::http::{Client, Request, Target};
use tokio::time::Instant;

use super::jwk::Jwk;

/// How long keys are used before they are looked at again.
const FRESH: Duration = Duration::from_secs(600);

/// How long they are used while nobody can be asked: an issuer that is down for a night locks nobody out.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// How often they are asked for at most, whatever tokens say they are signed with.
const PAUSE: Duration = Duration::from_secs(10);

/// How long an issuer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How large what it says may be.
const SIZE: usize = 1 << 20;

/// How many keys of it are taken.
const MOST: usize = 100;

/// Where keys are found.
#[derive(Clone, Debug)]
pub(crate) enum KeySource {
    /// At this URL.
    Set(Target),
    /// Where the issuer says, which is asked in the ways of RFC 8414 and of OpenID Connect.
    Issuer(String),
}

/// The keys of an issuer. A clone is the same.
#[derive(Clone)]
pub(crate) struct Keys(Arc<Inner>);

struct Inner {
    /// Tells them from the keys of another configuration.
    number: u64,
    source: KeySource,
    client: Client,
    known: Mutex<Known>,
    /// Who holds it fetches; the others wait for that.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Arc<[Jwk]>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
}

/// Nobody can be asked, and nothing is known from before.
#[derive(Debug)]
pub(super) struct Away;

impl Keys {
    pub(crate) fn new(source: KeySource, client: Client) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (known, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { number, source, client, known, turn }))
    }

    /// A number that only clones of these keys have.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether they are found there.
    pub(crate) fn are_of(&self, source: &KeySource) -> bool {
        match (&self.0.source, source) {
            (KeySource::Set(own), KeySource::Set(other)) => own == other,
            (KeySource::Issuer(own), KeySource::Issuer(other)) => own == other,
            _ => false,
        }
    }

    /// The keys that a token can be signed with: the one it names, or all if it names none.
    pub(super) async fn find(&self, kid: Option<&str>) -> Result<Vec<Jwk>, Away> {
        let known = self.0.known();
        let found = known.with(kid);
        if !found.is_empty() && known.is_usable() {
            if !known.is_fresh() && known.may_ask() {
                // It is checked with what is known, and nobody waits.
                let inner = self.0.clone();
                tokio::runtime::Handle::current().spawn(async move { inner.fetch().await });
            }
            return Ok(found);
        }
        self.0.fetch().await;
        let known = self.0.known();
        if known.is_usable() { Ok(known.with(kid)) } else { Err(Away) }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.0.source).finish()
    }
}

impl Known {
    fn with(&self, kid: Option<&str>) -> Vec<Jwk> {
        let fits = |key: &&Jwk| kid.is_none_or(|kid| key.kid.as_deref() == Some(kid));
        self.keys.iter().filter(fits).cloned().collect()
    }

    fn is_fresh(&self) -> bool {
        self.fetched.is_some_and(|at| at.elapsed() < FRESH)
    }

    fn is_usable(&self) -> bool {
        self.fetched.is_some_and(|at| at.elapsed() < STALE)
    }

    fn may_ask(&self) -> bool {
        self.tried.is_none_or(|at| at.elapsed() >= PAUSE)
    }
}

impl Inner {
    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the keys, unless somebody has just done so.
    async fn fetch(&self) {
        let _turn = self.turn.lock().await;
        if !self.known().may_ask() {
            return;
        }
        let keys = tokio::time::timeout(PATIENCE, self.ask()).await.ok().flatten();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.tried = Some(Instant::now());
        if let Some(keys) = keys {
            known.keys = keys.into();
            known.fetched = known.tried;
        }
    }

    /// The keys, from whoever has them; nothing if that cannot be understood.
    async fn ask(&self) -> Option<Vec<Jwk>> {
        let set = match &self.source {
            KeySource::Set(url) => url.clone(),
            KeySource::Issuer(issuer) => self.discover(issuer).await?,
        };
        let said = self.get(set).await?;
        let keys = said.get("keys")?.as_array()?;
        Some(keys.iter().filter_map(Jwk::read).take(MOST).collect())
    }

    /// Where the issuer says that its keys are.
    async fn discover(&self, issuer: &str) -> Option<Target> {
        for url in well_known(issuer) {
            let Ok(url) = Target::parse(&url) else { continue };
            let Some(said) = self.get(url).await else { continue };
            // Else somebody could pass the keys of another one off as its own.
            let same = said.get("issuer").and_then(Value::as_str) == Some(issuer);
            if let Some(url) = said.get("jwks_uri").and_then(Value::as_str).filter(|_| same) {
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
        let (first_byte, idle) = (PATIENCE, PATIENCE);
        let request = Request { method, url, headers, body, first_byte, idle };
        let answer = self.client.send(request).await.ok()?;
        if !answer.status.is_success() {
            return None;
        }
        serde_json::from_slice(&answer.body.collect(SIZE).await.ok()?).ok()
    }
}

/// Where the keys of an issuer are, as it says. What nobody can change on its way does not lead to what anybody can.
fn key_set(issuer: &str, url: &str) -> Option<Target> {
    let url = Target::parse(url).ok()?;
    let as_safe = url.origin().starts_with("https://") || !issuer.starts_with("https://");
    as_safe.then_some(url)
}

/// Where an issuer describes itself. RFC 8414 puts its words before the path of the issuer, OpenID Connect
/// behind it.
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

    /// Keys that come in the clear could be anybody's.
    #[test]
    fn keys_come_as_safely_as_the_issuer_does() {
        let (safe, local) = ("https://id.example.com", "http://127.0.0.1:9");
        assert!(key_set(safe, "https://keys.example.com/set").is_some());
        assert!(key_set(safe, "http://id.example.com/set").is_none());
        assert!(key_set(safe, "file:///etc/passwd").is_none());
        assert!(key_set(local, "http://127.0.0.1:9/set").is_some());
    }

    #[test]
    fn an_issuer_is_asked_where_it_answers() {
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
