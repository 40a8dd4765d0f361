//! Authentication: finds the owner that the credentials of a request stand for.
//!
//! | file | source of the identity |
//! |---|---|
//! | `bearer.rs` | the configuration, for bearer tokens of `stayput token` |
//! | `jwt.rs`, `jwk.rs`, `jwks.rs` | an OAuth 2.1 issuer, by a JWT that is verified with its JWKS |
//! | `proxy.rs` | a proxy in front of the gateway, by a header |
//! | `login.rs` | an earlier login of a browser at the dashboard, by a cookie |
//!
//! `claims.rs` has the claims about a principal besides its name.
//!
//! An owner is `(issuer, subject)`, never the bytes of a token, so a client that refreshes its token keeps its
//! sessions. Credentials do not leave this module.

mod bearer;
pub(crate) mod body_budget;
pub(crate) mod call_limit;
mod claims;
mod error;
mod jwk;
mod jwks;
mod jwt;
pub(crate) mod login;
mod proxy;
pub(crate) mod rate_limit;
pub(crate) mod sharded_map;

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use http::{HeaderMap, header};
use stayput_config::ClaimFilter;
use stayput_core::{Owner, Timestamp};

pub(crate) use self::{
    claims::Claims,
    jwt::{Jwt, VerifiedTokens},
    proxy::{Network, Proxy},
};
pub(crate) use crate::auth::{
    bearer::{Bearer, Token, TokenHash, Tokens},
    error::AuthError,
    jwks::{KeySource, Keys},
};

/// Authenticated sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// Owner whose sessions the principal can reach.
    pub(crate) owner: Owner,
    /// Claims besides the name.
    pub(crate) claims: Arc<Claims>,
    /// Whether it is an administrator, who may see and end the sessions of all owners.
    pub(crate) admin: bool,
    credential: Credential,
    /// Time at which the credential expires, if it does.
    pub(crate) until: Option<Timestamp>,
}

/// Credential of a request, as far as it is needed to check it again under another configuration. It holds no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credential {
    /// Connection of the user that runs the gateway, checked by the operating system.
    Local,
    /// No credential, at a gateway without authentication.
    Nothing,
    /// Token of the configuration; `marked` if it starts with [`crate::auth::bearer::MARK`].
    Token { hash: TokenHash, marked: bool },
    /// Token of an issuer, verified with the keys of this number.
    Jwt { keys: u64 },
    /// Header of a proxy at this address.
    Proxy(IpAddr),
    /// Signature of another replica, which has checked the credential and checks it again.
    Replica,
}

impl Principal {
    fn new(owner: Owner, claims: Claims, credential: Credential) -> Self {
        Self { owner, claims: Arc::new(claims), admin: false, credential, until: None }
    }

    /// Whether it is the user of this machine, whose access no configuration takes away.
    pub(crate) fn is_local(&self) -> bool {
        self.credential == Credential::Local
    }

    /// Makes the principal an administrator if `admin` is set.
    fn running(self, admin: bool) -> Self {
        Self { admin: self.admin || admin, ..self }
    }

    /// Principal of the user of this machine, authenticated by the operating system. It is an administrator, because
    /// this user could also stop the process.
    pub(crate) fn local() -> Self {
        Self::new(Owner::local(), Claims::default(), Credential::Local).running(true)
    }

    /// Principal of a client that another replica has authenticated.
    pub(crate) fn forwarded(owner: Owner, claims: Claims, admin: bool) -> Self {
        Self::new(owner, claims, Credential::Replica).running(admin)
    }

    /// Whether another replica has authenticated the client, and ends its streams when it loses access.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.credential == Credential::Replica
    }

    /// Principal of all clients of a gateway without authentication.
    pub(crate) fn anonymous() -> Self {
        static ANONYMOUS: LazyLock<Principal> = LazyLock::new(|| {
            Principal::new(Owner::anonymous(), Claims::default(), Credential::Nothing)
        });
        ANONYMOUS.clone()
    }
}

/// Authentication methods of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Tokens,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) proxy: Option<Proxy>,
    /// Claims of administrators. Unrestricted, which is the default, means that no claim makes an administrator.
    pub(crate) admin: ClaimFilter,
    /// Clients that may read `/metrics`.
    pub(crate) metrics: MetricsAccess,
}

/// Clients that may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MetricsAccess {
    /// Administrators; without authentication, all clients.
    #[default]
    Admin,
    /// Clients with any valid credential.
    Authenticated,
    /// All clients, even those without a credential.
    Public,
}

impl Authenticator {
    /// Whether no authentication is configured: all clients are anonymous.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.jwt.is_none() && self.proxy.is_none()
    }

    /// Whether this client may read `/metrics`.
    pub(crate) fn shows_metrics_to(&self, principal: &Principal) -> bool {
        self.is_open() || principal.admin || self.metrics != MetricsAccess::Admin
    }

    /// Whether a trusted proxy can have this address.
    pub(crate) fn is_proxy(&self, from: IpAddr) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| proxy.can_have_address(from))
    }

    /// Authenticates a request that came from this address.
    ///
    /// # Errors
    /// [`AuthError`] says what is missing or wrong.
    pub(crate) async fn authenticate(
        &self,
        from: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Principal, AuthError> {
        if self.is_open() {
            return Ok(Principal::anonymous());
        }
        Ok(self.with_role(self.authenticate_headers(from, headers).await?))
    }

    /// Makes the principal an administrator if its claims say so.
    fn with_role(&self, principal: Principal) -> Principal {
        // The closure reads the claims only if claims of administrators are configured, which is rare.
        let has = |name: &str, value: &str| principal.claims.has(name, value);
        let admin = !self.admin.is_unrestricted() && self.admin.allows(has);
        principal.running(admin)
    }

    /// Checks the credential of an earlier request again. Returns the principal as it is known now, or `None` if the
    /// credential would be refused now or names another owner. No signature is verified again, so the check is cheap
    /// even for very many open streams.
    pub(crate) fn recheck(&self, principal: &Principal, now: Timestamp) -> Option<Principal> {
        let known = match principal.credential {
            Credential::Local | Credential::Replica => return Some(principal.clone()),
            Credential::Nothing => return self.is_open().then(|| principal.clone()),
            Credential::Token { hash, marked } if marked || self.jwt.is_none() => {
                self.tokens.recheck(hash, marked)
            }
            Credential::Token { .. } => None,
            Credential::Jwt { keys } => self.jwt.as_ref()?.recheck(principal, keys, now),
            Credential::Proxy(from) => self
                .proxy
                .as_ref()?
                .can_have_address(from)
                .then(|| Principal { admin: false, ..principal.clone() }),
        };
        known.filter(|known| known.owner == principal.owner).map(|known| self.with_role(known))
    }

    /// Authenticates by the proxy's header or the bearer token.
    async fn authenticate_headers(
        &self,
        from: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Principal, AuthError> {
        if let Some(proxy) = &self.proxy
            && let Some(principal) = proxy.authenticate(from, headers)?
        {
            return Ok(principal);
        }
        let token = bearer(headers)?;
        if token.starts_with(bearer::TOKEN_PREFIX) || self.jwt.is_none() {
            return self
                .tokens
                .principal(token)
                .ok_or(AuthError::Invalid("the token is not known"));
        }
        match &self.jwt {
            Some(jwt) => jwt.authenticate(token).await,
            None => Err(AuthError::Missing),
        }
    }
}

/// Returns the bearer token of a request. Only the header is read, because paths and queries are written to logs.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::Missing)?;
    if values.next().is_some() {
        return Err(AuthError::Invalid("there is more than one Authorization header"));
    }
    let text = value.to_str().map_err(|_| AuthError::Invalid("the token is not text"))?;
    let (scheme, token) = text.split_once(' ').ok_or(AuthError::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::Missing);
    }
    Ok(token.trim())
}
