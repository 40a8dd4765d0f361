//! Bearer tokens of the configuration, stored as hashes.

use std::{collections::HashMap, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use stayput_core::Owner;

use super::{Claims, Credential, Principal};

/// Prefix of generated tokens, so that people and secret scanners recognise them.
pub(super) const TOKEN_PREFIX: &str = "stp_";

/// Issuer of the owners that these tokens authenticate.
const ISSUER: &str = "token";

/// Prefix of a hash in the configuration.
const HASH_PREFIX: &str = "sha256:";

/// Newly generated token. It is shown once and not stored.
pub(crate) struct Token(String);

impl Token {
    /// Generates a token with 256 random bits. With that many bits a fast hash is safe.
    ///
    /// # Errors
    /// If the system has no source of randomness.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Returns the token itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a text is this token. Hashes are compared, so that the time tells nothing about it.
    pub(crate) fn is(&self, text: &str) -> bool {
        TokenHash::new(text) == self.hash()
    }

    /// Returns the hash, which goes into the configuration.
    pub(crate) fn hash(&self) -> TokenHash {
        TokenHash::new(&self.0)
    }
}

/// Hash of a token. It cannot be used to authenticate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token.
    pub(super) fn new(token: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(hash)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASH_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl FromStr for TokenHash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "a hash of a token, as `stayput token NAME` prints it";
        let digits = text.strip_prefix(HASH_PREFIX).ok_or(wrong)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        let mut hash = [0; 32];
        for (place, byte) in hash.iter_mut().enumerate() {
            let pair = digits.get(place * 2..place * 2 + 2).ok_or(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong)?;
        }
        Ok(Self(hash))
    }
}

/// Properties of the bearer of a token besides the name.
#[derive(Debug, Default)]
pub(crate) struct Bearer {
    pub(crate) claims: Claims,
    /// Whether the bearer is an administrator of the gateway.
    pub(crate) admin: bool,
}

/// All configured tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<TokenHash, Principal>);

impl Tokens {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a token with the name of its bearer. Returns whether the token was new.
    ///
    /// # Errors
    /// If the name is not a valid subject.
    pub(crate) fn insert(
        &mut self,
        name: &str,
        hash: TokenHash,
        bearer: Bearer,
    ) -> Result<bool, stayput_core::InvalidText> {
        let owner = Owner::verified(ISSUER, name)?;
        let Bearer { claims, admin } = bearer;
        let credential = Credential::Token { hash, marked: true };
        let principal = Principal::new(owner, claims.with_subject(name), credential).running(admin);
        Ok(self.0.insert(hash, principal).is_none())
    }

    /// Returns the principal of a token. Looks up its hash instead of comparing tokens byte by byte, so that the time
    /// it takes reveals nothing about a token.
    pub(super) fn principal(&self, token: &str) -> Option<Principal> {
        self.recheck(TokenHash::new(token), token.starts_with(TOKEN_PREFIX))
    }

    /// Returns the principal of the token with this hash.
    pub(super) fn recheck(&self, hash: TokenHash, marked: bool) -> Option<Principal> {
        let principal = self.0.get(&hash)?.clone();
        Some(Principal { credential: Credential::Token { hash, marked }, ..principal })
    }
}
