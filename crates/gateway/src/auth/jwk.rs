//! Public key of an issuer (JWK), and the check of its signatures.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::Value;

/// Signature algorithms that are accepted. All others are refused, above all `none` and the symmetric ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm of this name (RFC 7518, RFC 8037).
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::EdDsa => return None,
        })
    }
}

/// Public key (RFC 7517).
#[derive(Clone, Debug)]
pub(super) struct Jwk {
    pub(super) kid: Option<String>,
    /// The only algorithm that the key is for, if the key names one.
    only: Option<Algorithm>,
    material: KeyMaterial,
}

/// Key material. It decides which algorithms the key can check. The token has no say in that.
#[derive(Clone, Debug)]
enum KeyMaterial {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Jwk {
    /// Reads a key of a set. Returns `None` if its kind is not supported or it is not for signatures.
    pub(super) fn read(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        // RFC 7517 §4.3: the operations for which the issuer gave the key out.
        if let Some(operations) = key.get("key_ops")
            && !operations.as_array()?.iter().any(|one| one == "verify")
        {
            return None;
        }
        let point = |size: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == size && y.len() == size).then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => KeyMaterial::Rsa { n: bytes("n")?, e: bytes("e")? },
            ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x")?),
            _ => return None,
        };
        let only = match text("alg") {
            Some(name) => Some(Algorithm::from_name(name)?),
            None => None,
        };
        Some(Self { kid: text("kid").map(str::to_owned), only, material })
    }

    /// Whether `signature` is valid for `message` and this key.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if self.only.is_some_and(|only| only != algorithm) {
            return false;
        }
        let check = |how: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(how, key).verify(message, signature).is_ok()
        };
        match (&self.material, algorithm) {
            (KeyMaterial::Rsa { n, e }, algorithm) => algorithm.rsa().is_some_and(|parameters| {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }),
            (KeyMaterial::P256(key), Algorithm::Es256) => check(&ECDSA_P256_SHA256_FIXED, key),
            (KeyMaterial::P384(key), Algorithm::Es384) => check(&ECDSA_P384_SHA384_FIXED, key),
            (KeyMaterial::Ed25519(key), Algorithm::EdDsa) => check(&ED25519, key),
            _ => false,
        }
    }
}
