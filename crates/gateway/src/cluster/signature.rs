//! Signatures of requests between replicas.
//!
//! A request carries one header with the addressed replica, the sender, a number, the time, the digest of the body and an
//! HMAC-SHA256 over them, the method, the path and all other headers. The client of the request is one of these headers.

use std::{
    borrow::Cow,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts};
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stayput_core::{Clock as _, Holder, Owner, SystemClock};

use crate::{
    auth::{Claims, Principal, login},
    config::ClusterKey,
};

/// Header of the signature.
const HEADER: HeaderName = HeaderName::from_static("stayput-signature");

/// Header of the client for which a request is forwarded.
const PRINCIPAL: HeaderName = HeaderName::from_static("stayput-principal");

/// Header of an answer which says that the replica does not hold the session, and has run nothing.
pub(crate) const NOT_HELD: HeaderName = HeaderName::from_static("stayput-not-held");

/// Longest time between the signature of a request and its arrival, in either direction.
pub(super) const MAX_AGE: Duration = Duration::from_secs(30);

/// Headers that belong to one connection, or that a replica must not see. A constant would be built anew for each use.
static NOT_FORWARDED: [HeaderName; 12] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("stayput-page"),
];

/// Whether a header is set by replicas only. Clients must not send it.
fn is_own_header(name: &HeaderName) -> bool {
    *name == HEADER || *name == PRINCIPAL || *name == NOT_HELD
}

/// Reason why a request to the internal listener is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    #[error("only replicas may send requests here, and this one has no signature of one")]
    Missing,
    #[error("the signature is not valid: every replica needs the same `cluster.key`")]
    Invalid,
    #[error(
        "the request was signed more than {} s before or after now: the clocks of the replicas differ, or it is a copy",
        MAX_AGE.as_secs()
    )]
    Late,
    #[error("the request was signed before this replica has started")]
    BeforeStart,
    #[error("the request was received before")]
    Replayed,
    #[error("the request is for another replica")]
    OtherReplica,
}

/// Request whose signature is valid. Its body is not checked yet.
#[derive(Debug)]
pub(crate) struct VerifiedRequest {
    pub(crate) principal: Principal,
    /// SHA-256 of the body.
    body: Vec<u8>,
    pub(super) sender: u64,
    pub(super) number: u64,
}

impl VerifiedRequest {
    /// Whether this is the body that was signed.
    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        digest::digest(&digest::SHA256, body).as_ref() == self.body
    }
}

/// Client of a forwarded request, as it is sent.
#[derive(Serialize, Deserialize)]
struct SentPrincipal<'a> {
    owner: Cow<'a, Owner>,
    #[serde(default)]
    claims: Cow<'a, Map<String, Value>>,
    #[serde(default)]
    admin: bool,
}

/// Parts of the signature header besides the code itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim<'a> {
    to: &'a str,
    sender: u64,
    number: u64,
    /// Milliseconds since 1970.
    time: u64,
    /// Digest of the body in base64.
    body: &'a str,
}

impl<'a> Claim<'a> {
    fn text(&self) -> String {
        let Self { to, sender, number, time, body } = self;
        format!("v1 {to} {sender:016x} {number} {time} {body}")
    }

    /// Splits a header into the signed parts and the code.
    fn parse(text: &'a str) -> Option<(Self, &'a str, &'a str)> {
        let (signed, code) = text.rsplit_once(' ')?;
        let mut words = signed.strip_prefix("v1 ")?.split(' ');
        let claim = Self {
            to: words.next()?,
            sender: u64::from_str_radix(words.next()?, 16).ok()?,
            number: words.next()?.parse().ok()?,
            time: words.next()?.parse().ok()?,
            body: words.next()?,
        };
        words.next().is_none().then_some((claim, signed, code))
    }
}

/// Signs and verifies with the keys of the cluster.
pub(super) struct Signer {
    /// The first key signs, all of them verify.
    keys: Vec<hmac::Key>,
    /// Number of the last request.
    number: AtomicU64,
    /// Start of this replica, in milliseconds since 1970. The numbers of requests before it are not known any more, so
    /// these requests are refused.
    started: u64,
}

/// Random id of this process as a sender.
static SENDER: LazyLock<u64> = LazyLock::new(|| {
    let mut bytes = [0; 8];
    // Without randomness, the time distinguishes the starts of a replica.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = SystemClock.now().as_millis().to_be_bytes();
    }
    u64::from_be_bytes(bytes)
});

impl Signer {
    pub(super) fn new(keys: &[ClusterKey]) -> Self {
        let keys = keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()));
        let started = SystemClock.now().as_millis();
        Self { keys: keys.collect(), number: AtomicU64::new(0), started }
    }

    /// Returns the headers of a request to another replica, signed.
    pub(super) fn sign(
        &self,
        to: &Holder,
        (method, path): (&Method, &str),
        (headers, body): (&HeaderMap, &[u8]),
        principal: &Principal,
    ) -> Option<HeaderMap> {
        let mut signed = HeaderMap::with_capacity(headers.len() + 2);
        for (name, value) in headers {
            if *name == header::COOKIE {
                signed.extend(without_login(value).map(|value| (header::COOKIE, value)));
            } else if !NOT_FORWARDED.contains(name) && !is_own_header(name) {
                signed.append(name, value.clone());
            }
        }
        let sent = SentPrincipal {
            owner: Cow::Borrowed(&principal.owner),
            claims: Cow::Borrowed(&principal.claims.0),
            admin: principal.admin,
        };
        let sent = BASE64.encode(serde_json::to_vec(&sent).ok()?);
        signed.insert(PRINCIPAL, HeaderValue::from_str(&sent).ok()?);
        let body = BASE64.encode(digest::digest(&digest::SHA256, body));
        let claim = Claim {
            to: &to.id.to_string(),
            sender: *SENDER,
            number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
            time: SystemClock.now().as_millis(),
            body: &body,
        };
        let text = claim.text();
        let content = content(&text, (method, path), &signed);
        let code = BASE64.encode(hmac::sign(self.keys.first()?, &content));
        signed.insert(HEADER, HeaderValue::from_str(&format!("{text} {code}")).ok()?);
        Some(signed)
    }

    /// Checks the signature of a request, but not whether it was received before.
    pub(super) fn verify(
        &self,
        own: &Holder,
        head: &Parts,
    ) -> Result<VerifiedRequest, SignatureError> {
        let mut lines = head.headers.get_all(HEADER).iter();
        let line = lines.next().ok_or(SignatureError::Missing)?;
        let text = line.to_str().map_err(|_| SignatureError::Invalid)?;
        if lines.next().is_some() {
            return Err(SignatureError::Invalid);
        }
        let (claim, signed, code) = Claim::parse(text).ok_or(SignatureError::Invalid)?;
        let code = BASE64.decode(code).map_err(|_| SignatureError::Invalid)?;
        let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let content = content(signed, (&head.method, path), &head.headers);
        if !self.keys.iter().any(|key| hmac::verify(key, &content, &code).is_ok()) {
            return Err(SignatureError::Invalid);
        }
        // Only the words of a replica count from here on.
        if claim.to != own.id.to_string() {
            return Err(SignatureError::OtherReplica);
        }
        let now = SystemClock.now().as_millis();
        let is_late = Duration::from_millis(now.abs_diff(claim.time)) > MAX_AGE;
        if is_late {
            return Err(SignatureError::Late);
        }
        if claim.time < self.started {
            return Err(SignatureError::BeforeStart);
        }
        let body = BASE64.decode(claim.body).map_err(|_| SignatureError::Invalid)?;
        let principal = read_principal(&head.headers).ok_or(SignatureError::Invalid)?;
        Ok(VerifiedRequest { principal, body, sender: claim.sender, number: claim.number })
    }
}

/// Returns a line of cookies without the logins of browsers, which only the replica that gave them out knows.
fn without_login(cookies: &HeaderValue) -> Option<HeaderValue> {
    let pairs = cookies.to_str().ok()?.split(';').map(str::trim);
    let others: Vec<_> = pairs.filter(|pair| !pair.starts_with(login::COOKIE_PREFIX)).collect();
    HeaderValue::from_str(&others.join("; ")).ok().filter(|it| !it.is_empty())
}

/// Reads the client of a forwarded request.
fn read_principal(headers: &HeaderMap) -> Option<Principal> {
    let mut lines = headers.get_all(PRINCIPAL).iter();
    let bytes = BASE64.decode(lines.next()?.as_bytes()).ok()?;
    let SentPrincipal { owner, claims, admin } = serde_json::from_slice(&bytes).ok()?;
    let (owner, claims) = (owner.into_owned(), Claims(claims.into_owned()));
    lines.next().is_none().then(|| Principal::forwarded(owner, claims, admin))
}

/// Returns everything that is signed. Headers are sorted, because a header map has no order, and have lengths, so that no
/// byte can move from one to the next.
fn content(claim: &str, (method, path): (&Method, &str), headers: &HeaderMap) -> Vec<u8> {
    let mut content = Vec::with_capacity(1 << 10);
    let mut add = |part: &[u8]| {
        content.extend_from_slice(&(part.len() as u64).to_be_bytes());
        content.extend_from_slice(part);
    };
    add(claim.as_bytes());
    add(method.as_str().as_bytes());
    add(path.as_bytes());
    // A client of HTTP sets these by itself.
    let is_signed = |name: &HeaderName| {
        *name != HEADER && *name != header::HOST && !NOT_FORWARDED.contains(name)
    };
    let mut fields: Vec<_> = headers.iter().filter(|(name, _)| is_signed(name)).collect();
    // The sort is stable: several values of one name stay in their order.
    fields.sort_by_key(|(name, _)| name.as_str());
    for (name, value) in fields {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs a request with this cookie, and returns it as the other replica gets it.
    fn signed(signer: &Signer, to: &Holder, cookie: &str) -> Parts {
        let principal = Principal::forwarded(Owner::local(), Claims::default(), false);
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        let headers = signer.sign(to, (&Method::GET, "/mcp/a"), (&headers, b""), &principal);
        let (mut parts, ()) = http::Request::get("/mcp/a").body(()).unwrap().into_parts();
        parts.headers = headers.unwrap();
        parts
    }

    fn signer() -> Signer {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
        Signer { keys: vec![key], number: AtomicU64::new(0), started: 0 }
    }

    #[test]
    fn request_from_before_the_start_is_refused() {
        let (signer, holder) = (signer(), Holder::unreachable());
        let request = signed(&signer, &holder, "a=1");
        assert!(signer.verify(&holder, &request).is_ok());
        let started = SystemClock.now().as_millis() + 1;
        let restarted = Signer { started, ..self::signer() };
        assert_eq!(restarted.verify(&holder, &request).unwrap_err(), SignatureError::BeforeStart);
    }

    #[test]
    fn login_of_a_browser_is_not_forwarded() {
        let cookies = |sent: &str| {
            let request = signed(&signer(), &Holder::unreachable(), sent);
            request.headers.get(header::COOKIE).map(|it| it.to_str().unwrap().to_owned())
        };
        assert_eq!(cookies("a=1; stayput_page_0=x; b=2").as_deref(), Some("a=1; b=2"));
        assert_eq!(cookies("stayput_page_0=x"), None);
    }
}
