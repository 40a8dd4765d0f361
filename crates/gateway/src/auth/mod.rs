//! Who a request is from: the owner that its credentials speak for.
//!
//! | file | who vouches |
//! |---|---|
//! | `tokens.rs` | the configuration, for bearer tokens that were made by `stayput token` |
//! | `jwt.rs`, `jwk.rs`, `keys.rs` | an issuer of OAuth 2.1, by a signature |
//! | `proxy.rs` | a proxy in front of the gateway, by a header |
//! | `claims.rs` | what is said of somebody beside its name |
//!
//! An owner is `(issuer, subject)`, never the bytes of a token: whoever refreshes one keeps its sessions.
//! Credentials go no further than this room.

mod bearer;
pub(crate) mod call_limit;
mod claims;
mod error;
mod jwk;
mod jwks;
mod jwt;
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
    jwt::{Good, Jwt},
    proxy::{Network, Proxy},
};
pub(crate) use crate::auth::{
    bearer::{Bearer, Token, TokenHash, Tokens},
    error::AuthError,
    jwks::{KeySource, Keys},
};

/// Who a request is from.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// Whose sessions it can reach.
    pub(crate) owner: Owner,
    /// What else is known.
    pub(crate) claims: Arc<Claims>,
    /// Whether it runs the gateway: then it may see and end the sessions of all.
    pub(crate) admin: bool,
    credential: Credential,
    /// The moment at which the credential expires, if it does.
    pub(crate) until: Option<Timestamp>,
}

/// The credential of a request, as far as it is needed to check it again under another configuration. It holds
/// no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credential {
    /// A connection of the user that runs the gateway, which the system has checked.
    Local,
    /// None, at a gateway that asks for none.
    Nothing,
    /// A token of the configuration; `marked` if it begins with [`crate::auth::bearer::MARK`].
    Token { hash: TokenHash, marked: bool },
    /// A token of an issuer, verified with the keys of this number.
    Jwt { keys: u64 },
    /// The header of a proxy at this address.
    Proxy(IpAddr),
}

impl Principal {
    fn new(owner: Owner, claims: Claims, credential: Credential) -> Self {
        Self { owner, claims: Arc::new(claims), admin: false, credential, until: None }
    }

    /// Whether it is the user of this machine, whose access no configuration takes away.
    pub(crate) fn is_local(&self) -> bool {
        self.credential == Credential::Local
    }

    /// The same, who also runs the gateway if `admin`.
    fn running(self, admin: bool) -> Self {
        Self { admin: self.admin || admin, ..self }
    }

    /// The user of this machine, whom the system has let in: whoever it is could stop the process as well.
    pub(crate) fn local() -> Self {
        Self::new(Owner::local(), Claims::default(), Credential::Local).running(true)
    }

    /// Whoever comes to a gateway that asks nobody for a name.
    pub(crate) fn anonymous() -> Self {
        static ANONYMOUS: LazyLock<Principal> = LazyLock::new(|| {
            Principal::new(Owner::anonymous(), Claims::default(), Credential::Nothing)
        });
        ANONYMOUS.clone()
    }
}

/// Whom the gateway lets in.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Tokens,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) proxy: Option<Proxy>,
    /// Who runs the gateway, by its claims; nobody, if none are named.
    pub(crate) admin: ClaimFilter,
}

impl Authenticator {
    /// Whether everybody is let in, under no name.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.jwt.is_none() && self.proxy.is_none()
    }

    /// Who a request is from that came from this address.
    ///
    /// # Errors
    /// [`AuthError`] says what is missing or wrong.
    pub(crate) async fn principal(
        &self,
        from: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Principal, AuthError> {
        if self.is_open() {
            return Ok(Principal::anonymous());
        }
        Ok(self.ranked(self.vouched(from, headers).await?))
    }

    /// The same principal, who also runs the gateway if its claims say so.
    fn ranked(&self, principal: Principal) -> Principal {
        // Nearly always nobody asks for it.
        let has = |name: &str, value: &str| principal.claims.has(name, value);
        let admin = !self.admin.is_unrestricted() && self.admin.allows(has);
        principal.running(admin)
    }

    /// Checks the credential of an earlier request again: the principal as it is known now, or nothing if the
    /// credential would be refused now or names another owner. No signature is verified again, so this takes
    /// no time that matters for very many open streams.
    pub(crate) fn recheck(&self, principal: &Principal, now: Timestamp) -> Option<Principal> {
        let known = match principal.credential {
            Credential::Local => return Some(principal.clone()),
            Credential::Nothing => return self.is_open().then(|| principal.clone()),
            Credential::Token { hash, marked } if marked || self.jwt.is_none() => {
                self.tokens.recheck(hash, marked)
            }
            Credential::Token { .. } => None,
            Credential::Jwt { keys } => self.jwt.as_ref()?.recheck(principal, keys, now),
            Credential::Proxy(from) => self
                .proxy
                .as_ref()?
                .is_at(from)
                .then(|| Principal { admin: false, ..principal.clone() }),
        };
        known.filter(|known| known.owner == principal.owner).map(|known| self.ranked(known))
    }

    /// Who somebody vouches for.
    async fn vouched(&self, from: IpAddr, headers: &HeaderMap) -> Result<Principal, AuthError> {
        if let Some(proxy) = &self.proxy
            && let Some(principal) = proxy.principal(from, headers)?
        {
            return Ok(principal);
        }
        let token = bearer(headers)?;
        if token.starts_with(bearer::MARK) || self.jwt.is_none() {
            return self
                .tokens
                .principal(token)
                .ok_or(AuthError::Invalid("the token is not known"));
        }
        match &self.jwt {
            Some(jwt) => jwt.principal(token).await,
            None => Err(AuthError::Missing),
        }
    }
}

/// The bearer token of a request. It is looked for in the header alone: what stands in a path or a query is
/// written to logs.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut said = headers.get_all(header::AUTHORIZATION).iter();
    let value = said.next().ok_or(AuthError::Missing)?;
    if said.next().is_some() {
        return Err(AuthError::Invalid("there is more than one Authorization header"));
    }
    let text = value.to_str().map_err(|_| AuthError::Invalid("the token is not text"))?;
    let (scheme, token) = text.split_once(' ').ok_or(AuthError::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::Missing);
    }
    Ok(token.trim())
}
