//! JSON Web Tokens of an OAuth 2.1 issuer.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use stayput_core::{Clock, Owner, Timestamp};
use stayput_sync::Mutex;

use super::{AuthError, Claims, Credential, Keys, Principal, jwk::Algorithm};
use crate::auth::bearer::TokenHash;

/// Time that a verified token is cached. A key that its issuer revokes is still accepted for this long.
const CACHE_TTL: Duration = Duration::from_secs(60);

/// Maximum number of cached tokens.
const MAX_CACHED_TOKENS: usize = 4096;

/// Maximum size of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Rules that a token of this issuer must meet.
pub(crate) struct Jwt {
    pub(crate) issuer: String,
    /// Accepted audiences. A token must name one of them.
    pub(crate) audiences: Vec<String>,
    /// Claim that names the bearer.
    pub(crate) subject: String,
    /// Tolerated difference between clocks.
    pub(crate) leeway: Duration,
    pub(crate) keys: Keys,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) verified: VerifiedTokens,
}

/// Verified tokens by their hashes, with the time until which they are cached.
#[derive(Default)]
pub(crate) struct VerifiedTokens(Mutex<HashMap<TokenHash, (Principal, Timestamp)>>);

/// Token, split into its parts.
struct TokenParts<'a> {
    signed: &'a [u8],
    signature: Vec<u8>,
    algorithm: Algorithm,
    kid: Option<String>,
    claims: Map<String, Value>,
}

impl Jwt {
    /// Verifies the signature and the claims of a token, and returns its principal.
    pub(super) async fn authenticate(&self, token: &str) -> Result<Principal, AuthError> {
        let (hash, now) = (TokenHash::new(token), self.clock.now());
        if let Some(principal) = self.verified.get(hash, now) {
            return Ok(principal);
        }
        let parts =
            TokenParts::split(token).ok_or(AuthError::Invalid("the token is not a signed JWT"))?;
        let keys =
            self.keys.find(parts.kid.as_deref()).await.map_err(|_| AuthError::KeysUnavailable)?;
        let by =
            keys.iter().any(|key| key.verifies(parts.algorithm, parts.signed, &parts.signature));
        if !by {
            return Err(AuthError::Invalid("the token is not signed by a key of its issuer"));
        }
        let until = self.check(&parts.claims, now)?;
        let owner = self.owner(&parts.claims)?;
        let credential = Credential::Jwt { keys: self.keys.number() };
        let principal = Principal::new(owner, Claims(parts.claims), credential);
        let principal = Principal { until: Some(until), ..principal };
        self.verified.insert(hash, principal.clone(), until.min(now.after(CACHE_TTL)), now);
        Ok(principal)
    }

    /// Returns the owner that a token names.
    fn owner(&self, claims: &Map<String, Value>) -> Result<Owner, AuthError> {
        let nameless = AuthError::Invalid("the token does not say whose it is");
        let subject = claims.get(&self.subject).and_then(Value::as_str).ok_or(nameless)?;
        Owner::verified(&self.issuer, subject).map_err(|_| nameless)
    }

    /// Checks the claims again, for a token that was verified with the keys of this number. Under other keys its
    /// signature would have to be verified again, and the token is not stored for that, so it counts as refused.
    pub(super) fn recheck(
        &self,
        principal: &Principal,
        keys: u64,
        now: Timestamp,
    ) -> Option<Principal> {
        if keys != self.keys.number() {
            return None;
        }
        let claims = &principal.claims.0;
        let (owner, until) = (self.owner(claims).ok()?, self.check(claims, now).ok()?);
        Some(Principal { owner, until: Some(until), admin: false, ..principal.clone() })
    }

    /// Checks that the token is for this gateway and valid now. Returns its expiry time.
    fn check(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, AuthError> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(AuthError::Invalid("the token is of another issuer"));
        }
        let ours = |one: &Value| {
            one.as_str().is_some_and(|one| self.audiences.iter().any(|known| known == one))
        };
        let meant = match claims.get("aud") {
            Some(Value::Array(list)) => list.iter().any(ours),
            Some(one) => ours(one),
            None => false,
        };
        if !meant {
            return Err(AuthError::Invalid("the token is for another audience than this gateway"));
        }
        let Some(until) = claims.get("exp").and_then(parse_seconds) else {
            return Err(AuthError::Invalid("the token does not say when it ends"));
        };
        let until = until.after(self.leeway);
        if until <= now {
            return Err(AuthError::Invalid("the token has expired"));
        }
        let begins = |name: &str| match claims.get(name) {
            Some(value) => parse_seconds(value).is_some_and(|at| at <= now.after(self.leeway)),
            None => true,
        };
        if !begins("nbf") || !begins("iat") {
            return Err(AuthError::Invalid("the token is of the future"));
        }
        Ok(until)
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { issuer, audiences, subject, leeway, keys, .. } = self;
        f.debug_struct("Jwt")
            .field("issuer", issuer)
            .field("audiences", audiences)
            .field("subject", subject)
            .field("leeway", leeway)
            .field("keys", keys)
            .finish_non_exhaustive()
    }
}

impl VerifiedTokens {
    fn get(&self, hash: TokenHash, now: Timestamp) -> Option<Principal> {
        let verified = self.0.lock();
        verified
            .get(&hash)
            .filter(|(_, until)| now < *until)
            .map(|(principal, _)| principal.clone())
    }

    fn insert(&self, hash: TokenHash, principal: Principal, until: Timestamp, now: Timestamp) {
        let mut verified = self.0.lock();
        if verified.len() >= MAX_CACHED_TOKENS {
            verified.retain(|_, (_, until)| now < *until);
        }
        // If the cache is still full, the token is verified each time. That is only slower.
        if verified.len() < MAX_CACHED_TOKENS {
            verified.insert(hash, (principal, until));
        }
    }
}

impl<'a> TokenParts<'a> {
    fn split(token: &'a str) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let object = |part: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
            serde_json::from_slice::<Map<String, Value>>(&bytes).ok()
        };
        let head = object(head)?;
        // A value that is no string is not read as a missing one: without `kid`, all keys are tried.
        let text = |name: &str| match head.get(name) {
            Some(value) => value.as_str().map(Some),
            None => Some(None),
        };
        // Refuses unknown critical headers (RFC 7515 §4.1.11) and tokens that are not for an API.
        let kind = text("typ")?.unwrap_or("JWT").to_ascii_lowercase();
        let kind = kind.strip_prefix("application/").unwrap_or(&kind);
        if head.contains_key("crit") || !["jwt", "at+jwt"].contains(&kind) {
            return None;
        }
        Some(Self {
            signed: signed.as_bytes(),
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            algorithm: Algorithm::from_name(text("alg")??)?,
            kid: text("kid")?.map(str::to_owned),
            claims: object(claims)?,
        })
    }
}

/// Parses seconds since 1970, which may have a fraction.
fn parse_seconds(value: &Value) -> Option<Timestamp> {
    let millis = value.as_f64()? * 1_000.0;
    if !(0.0..=9.0e15).contains(&millis) {
        return None;
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is neither negative nor larger than that"
    )]
    Some(Timestamp::from_millis(millis as u64))
}
