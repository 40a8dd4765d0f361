//! Bearer tokens that the configuration knows, by their hashes.

use std::{collections::HashMap, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use stayput_core::Owner;

use super::{Claims, Credential, Principal};

/// What our tokens begin with, so that people and scanners of secrets know one when they see it.
pub(super) const MARK: &str = "stp_";

/// Who vouches for the bearers of these tokens.
const ISSUER: &str = "token";

/// What a hash begins with.
const HASHED: &str = "sha256:";

/// A token just made. It is shown once, and kept nowhere.
pub(crate) struct Token(String);

impl Token {
    /// A token nobody has seen, of 256 random bits: that many need no slow hash.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The token itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// What the configuration keeps of it.
    pub(crate) fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

/// The hash of a token. Whoever reads it cannot come in with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of this token.
    pub(super) fn of(token: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(hash)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASHED)?;
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
        let digits = text.strip_prefix(HASHED).ok_or(wrong)?;
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

/// What is known of the bearer of a token beside the name.
#[derive(Debug, Default)]
pub(crate) struct Bearer {
    pub(crate) claims: Claims,
    /// Whether it runs the gateway.
    pub(crate) admin: bool,
}

/// All tokens that are known.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<TokenHash, Principal>);

impl Tokens {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Knows the bearer of this token as `name`. Says whether it was not known before.
    ///
    /// # Errors
    /// If nobody can have that name.
    pub(crate) fn insert(
        &mut self,
        name: &str,
        hash: TokenHash,
        bearer: Bearer,
    ) -> Result<bool, stayput_core::InvalidText> {
        let owner = Owner::verified(ISSUER, name)?;
        let Bearer { claims, admin } = bearer;
        let credential = Credential::Token { hash, marked: true };
        let principal = Principal::new(owner, claims.of(name), credential).running(admin);
        Ok(self.0.insert(hash, principal).is_none())
    }

    /// Whose token this is. Hashes are looked up, and no token is compared byte by byte: how long that
    /// takes says nothing of a token.
    pub(super) fn principal(&self, token: &str) -> Option<Principal> {
        self.recheck(TokenHash::of(token), token.starts_with(MARK))
    }

    /// The principal of a token with this hash.
    pub(super) fn recheck(&self, hash: TokenHash, marked: bool) -> Option<Principal> {
        let principal = self.0.get(&hash)?.clone();
        Some(Principal { credential: Credential::Token { hash, marked }, ..principal })
    }
}
