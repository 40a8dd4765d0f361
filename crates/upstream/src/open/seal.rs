//! Encryption of upstream secrets at rest.

use std::{
    fmt, fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Key that encrypts upstream session ids in the store, so that a copy of the database alone does not allow
/// to take over a session at a server.
///
/// Each text has a random nonce of 96 bits. A key is safe for 2³² texts before a nonce collision becomes
/// likely enough to matter; an id is encrypted once per upstream session.
///
/// A new key can also decrypt the texts of older ones, see [`SealKey::after`].
///
/// ```
/// use stayput_upstream::SealKey;
///
/// let key = SealKey::generate()?;
/// let sealed = key.seal("session 7", b"upstream id")?;
/// assert_eq!(key.open("session 7", &sealed)?, b"upstream id");
/// assert!(key.open("session 8", &sealed).is_err());
/// # Ok::<(), stayput_upstream::SealError>(())
/// ```
#[derive(Clone)]
pub struct SealKey(Arc<[Arc<LessSafeKey>]>);

/// Error of encryption, decryption or key handling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key has the wrong format.
    #[error("a sealing key has 32 bytes, written as 64 hexadecimal digits")]
    Key,
    /// Other users can access the key file.
    #[error(
        "the sealing key {path} can be read by others than its owner; run chmod 600 on it, \
         or remove it to get a new one"
    )]
    Exposed {
        /// Path of the file.
        path: String,
    },
    /// The key file cannot be read or created.
    #[error("the sealing key {path} cannot be read or made: {problem}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        #[source]
        problem: io::Error,
    },
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes, so nothing can be sealed")]
    NoRandomness,
    /// The text is too long.
    #[error("the text is too long to be sealed")]
    TooLong,
    /// The text was not made by [`SealKey::seal`], or by a newer version.
    #[error("the sealed text is not of a form that this version knows")]
    Form,
    /// The key or the context differs, or the text was changed.
    #[error("the sealed text cannot be opened: it was sealed with another key, or elsewhere")]
    Refused,
}

/// Prefix of a sealed text. Another cipher needs another prefix.
const VERSION: &str = "v1.";
const KEY_LEN: usize = 32;

impl SealKey {
    /// Creates a key from its bytes.
    ///
    /// # Errors
    /// If there are not 32 of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SealError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).map_err(|_| SealError::Key)?;
        Ok(Self([Arc::new(LessSafeKey::new(key))].into()))
    }

    /// Returns the same key, which also decrypts texts of `older` keys. It never encrypts with them.
    ///
    /// ```
    /// use stayput_upstream::SealKey;
    ///
    /// let (old, new) = (SealKey::generate()?, SealKey::generate()?);
    /// let sealed = old.seal("here", b"id")?;
    /// let both = new.clone().after([old]);
    /// assert_eq!(both.open("here", &sealed)?, b"id");
    /// assert!(both.is_outdated("here", &sealed));
    /// assert_eq!(new.open("here", &both.seal("here", b"id")?)?, b"id");
    /// # Ok::<(), stayput_upstream::SealError>(())
    /// ```
    #[must_use]
    pub fn after(self, older: impl IntoIterator<Item = Self>) -> Self {
        let older = older.into_iter().flat_map(|key| key.0.to_vec());
        Self(self.0.iter().cloned().chain(older).collect())
    }

    /// Whether the text can be decrypted, but was encrypted with an older key.
    #[must_use]
    pub fn is_outdated(&self, context: &str, sealed: &str) -> bool {
        let current = Self(self.0.iter().take(1).cloned().collect());
        current.open(context, sealed).is_err() && self.open(context, sealed).is_ok()
    }

    /// Creates a key from 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text is anything else. The error does not repeat it.
    pub fn from_hex(digits: &str) -> Result<Self, SealError> {
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return Err(SealError::Key) };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Self::from_bytes(&bytes.ok_or(SealError::Key)?)
    }

    /// Creates a random key for the lifetime of this process.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn generate() -> Result<Self, SealError> {
        Self::from_bytes(&random::<KEY_LEN>()?)
    }

    /// Reads the key from a file with hexadecimal digits.
    ///
    /// # Errors
    /// If it cannot be read, contains no key, or other users can read it.
    pub fn from_file(path: &Path) -> Result<Self, SealError> {
        let failed = |problem| failed(path, problem);
        let file = fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(SealError::Exposed { path: path.display().to_string() });
        }
        Self::from_hex(io::read_to_string(file).map_err(failed)?.trim_ascii())
    }

    /// Reads the key from a file, or creates the file, readable only by its owner. Two processes that do so
    /// at the same time get the same key.
    ///
    /// # Errors
    /// As [`SealKey::from_file`], or if the file cannot be created.
    pub fn at(path: &Path) -> Result<Self, SealError> {
        match Self::from_file(path) {
            Err(SealError::File { problem, .. }) if problem.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let name = path.file_name().ok_or_else(|| failed(path, io::ErrorKind::NotFound.into()))?;
        let mut draft = name.to_owned();
        draft.push(format!(".{}", hex(&random::<8>()?)));
        let draft = path.with_file_name(draft);
        let digits = hex(&random::<KEY_LEN>()?);
        let result = write_private(&draft, &digits).and_then(|()| fs::hard_link(&draft, path));
        let _ = fs::remove_file(&draft);
        match result {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(path, problem))
            }
            _ => Self::from_file(path),
        }
    }

    /// Encrypts `plain` for this `context`. The context names the place where the text is stored, so that a
    /// copy at another place cannot be decrypted.
    ///
    /// # Errors
    /// If the operating system gives no random bytes, or `plain` has hundreds of gigabytes.
    pub fn seal(&self, context: &str, plain: &[u8]) -> Result<String, SealError> {
        let nonce = random::<NONCE_LEN>()?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let key = self.0.first().ok_or(SealError::Key)?;
        key.seal_in_place_append_tag(unique, Aad::from(context), &mut sealed)
            .map_err(|_| SealError::TooLong)?;
        let mut text = VERSION.to_owned();
        encode(nonce.iter().chain(&sealed).copied(), &mut text);
        Ok(text)
    }

    /// Decrypts a text that was sealed for `context`.
    ///
    /// # Errors
    /// If the key or the context differs, or the text was changed or never sealed.
    pub fn open(&self, context: &str, sealed: &str) -> Result<Vec<u8>, SealError> {
        let letters = sealed.strip_prefix(VERSION).ok_or(SealError::Form)?;
        let bytes = decode(letters).ok_or(SealError::Form)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(SealError::Form)?;
        let opened = self.0.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut text = text.to_vec();
            let plain = key.open_in_place(nonce, Aad::from(context), &mut text).ok()?;
            Some(plain.to_vec())
        });
        opened.ok_or(SealError::Refused)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

fn failed(path: &Path, problem: io::Error) -> SealError {
    SealError::File { path: path.display().to_string(), problem }
}

fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| SealError::NoRandomness)?;
    Ok(bytes)
}

/// Writes and syncs the file before it gets its final name: without its key, every sealed text is lost.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Alphabet of RFC 4648 base64url.
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends `bytes` as base64url without padding.
fn encode(bytes: impl Iterator<Item = u8>, text: &mut String) {
    let (mut bits, mut count) = (0u32, 0);
    let letter = |bits: u32| char::from(BASE64URL[usize::try_from(bits & 63).unwrap_or_default()]);
    for byte in bytes {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 6 {
            count -= 6;
            text.push(letter(bits >> count));
        }
    }
    if count > 0 {
        text.push(letter(bits << (6 - count)));
    }
}

/// Decodes `text`, if it is what [`encode`] would have written.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes() {
        let index = BASE64URL.iter().position(|known| *known == letter)?;
        bits = bits << 6 | u32::try_from(index).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 255).ok()?);
        }
    }
    // Accept only the canonical form: no extra letter, and no bits after the last byte.
    (count < 6 && bits & ((1 << count) - 1) == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn key(byte: u8) -> SealKey {
        SealKey::from_bytes(&[byte; KEY_LEN]).unwrap()
    }

    #[test]
    fn sealed_text_opens_only_with_same_key_and_context() {
        for plain in [&b""[..], b"x", &[0xff; 1000]] {
            let sealed = key(1).seal("here", plain).unwrap();
            assert!(sealed.starts_with("v1."), "{sealed}");
            assert_eq!(key(1).open("here", &sealed).unwrap(), plain);
            assert!(matches!(key(2).open("here", &sealed), Err(SealError::Refused)));
            assert!(matches!(key(1).open("there", &sealed), Err(SealError::Refused)));
        }
    }

    #[test]
    fn sealing_twice_gives_different_texts() {
        assert_ne!(key(1).seal("c", b"id").unwrap(), key(1).seal("c", b"id").unwrap());
    }

    #[test]
    fn changed_sealed_text_is_refused() {
        let sealed = key(1).seal("c", b"upstream id").unwrap();
        for at in 0..sealed.len() {
            for other in ["A", "B", "é", "="] {
                let changed = format!("{}{other}{}", &sealed[..at], &sealed[at + 1..]);
                assert!(changed == sealed || key(1).open("c", &changed).is_err(), "{changed}");
            }
            assert!(key(1).open("c", &sealed[..at]).is_err(), "cut at {at}");
        }
        assert!(key(1).open("c", &format!("{sealed}A")).is_err());
        assert!(matches!(key(1).open("c", "v2.AAAA"), Err(SealError::Form)));
    }

    #[test]
    fn base64url_accepts_only_the_canonical_form() {
        let all: Vec<u8> = (0..=255).collect();
        for end in 0..all.len() {
            let mut text = String::new();
            encode(all[..end].iter().copied(), &mut text);
            assert_eq!(decode(&text).as_deref(), Some(&all[..end]));
        }
        for text in ["A", "Zh", "Zm9=", "Zm 9", "Zm9vA", "Zm+/"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn key_must_have_64_hex_digits() {
        let digits = "0aF".repeat(21) + "1";
        assert!(SealKey::from_hex(&digits).is_ok());
        for bad in ["", "00", &digits[1..], &format!("{digits}00"), &"zz".repeat(32)] {
            let error = SealKey::from_hex(bad).unwrap_err();
            assert!(matches!(error, SealError::Key), "{error}");
        }
        assert!(SealKey::from_bytes(&[0; 31]).is_err());
    }

    /// Invariant 8: a key never appears.
    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", key(7)), "SealKey(…)");
    }

    #[test]
    fn key_file_is_created_once_with_mode_0600() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        assert!(matches!(SealKey::from_file(&path), Err(SealError::File { .. })));
        let sealed = std::thread::scope(|scope| {
            let make = || SealKey::at(&path).unwrap().seal("c", b"id").unwrap();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let again = SealKey::from_file(&path).unwrap();
        assert!(sealed.iter().all(|text| again.open("c", text).unwrap() == b"id"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a draft was left");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SealKey::at(&path), Err(SealError::Exposed { .. })));
    }
}
