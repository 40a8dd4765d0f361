//! Secrets of servers, as they are kept at rest.

use std::{
    fmt, fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// The key under which upstream session ids are kept: whoever reads the database alone cannot take
/// over a session at a server.
///
/// Each text has a random nonce of 96 bits. One key serves 2³² texts before two nonces could meet
/// with a chance worth naming; an id is sealed once per upstream session.
///
/// A key that takes the place of others opens what they sealed, see [`SealKey::after`].
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

/// Why something cannot be sealed or opened, or there is no key to do it with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key is not of the right form.
    #[error("a sealing key has 32 bytes, written as 64 hexadecimal digits")]
    Key,
    /// The file of the key can be read or changed by others.
    #[error(
        "the sealing key {path} can be read by others than its owner; run chmod 600 on it, \
         or remove it to get a new one"
    )]
    Exposed {
        /// Which file.
        path: String,
    },
    /// The file of the key cannot be read or made.
    #[error("the sealing key {path} cannot be read or made: {problem}")]
    File {
        /// Which file.
        path: String,
        /// What the operating system says.
        #[source]
        problem: io::Error,
    },
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes, so nothing can be sealed")]
    NoRandomness,
    /// More than one text can hold.
    #[error("the text is too long to be sealed")]
    TooLong,
    /// It was not made by [`SealKey::seal`], or by a newer version.
    #[error("the sealed text is not of a form that this version knows")]
    Form,
    /// The key or the context is another one, or the text was changed.
    #[error("the sealed text cannot be opened: it was sealed with another key, or elsewhere")]
    Refused,
}

/// What a sealed text begins with. Another cipher gets another one.
const VERSION: &str = "v1.";
const KEY_LEN: usize = 32;

impl SealKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// If they are not 32.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SealError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).map_err(|_| SealError::Key)?;
        Ok(Self([Arc::new(LessSafeKey::new(key))].into()))
    }

    /// The same key, which opens also what these sealed before it. It seals nothing with them.
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

    /// Whether what was sealed for `context` can be opened, but was sealed by an older key.
    #[must_use]
    pub fn is_outdated(&self, context: &str, sealed: &str) -> bool {
        let current = Self(self.0.iter().take(1).cloned().collect());
        current.open(context, sealed).is_err() && self.open(context, sealed).is_ok()
    }

    /// The key that is written as 64 hexadecimal digits.
    ///
    /// # Errors
    /// If it is anything else. What it is, is not repeated.
    pub fn from_hex(digits: &str) -> Result<Self, SealError> {
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return Err(SealError::Key) };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Self::from_bytes(&bytes.ok_or(SealError::Key)?)
    }

    /// A new key that ends with this process.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn generate() -> Result<Self, SealError> {
        Self::from_bytes(&random::<KEY_LEN>()?)
    }

    /// The key in the file at `path`, as hexadecimal digits.
    ///
    /// # Errors
    /// If it cannot be read, holds no key, or others than its owner can read it.
    pub fn from_file(path: &Path) -> Result<Self, SealError> {
        let failed = |problem| failed(path, problem);
        let file = fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(SealError::Exposed { path: path.display().to_string() });
        }
        Self::from_hex(io::read_to_string(file).map_err(failed)?.trim_ascii())
    }

    /// The key in the file at `path`; if there is no file, it is made, readable by its owner alone.
    /// Of two processes that do so at once, both get the same key.
    ///
    /// # Errors
    /// As [`SealKey::from_file`], or if the file cannot be made.
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
        let made = write_private(&draft, &digits).and_then(|()| fs::hard_link(&draft, path));
        let _ = fs::remove_file(&draft);
        match made {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(path, problem))
            }
            _ => Self::from_file(path),
        }
    }

    /// `plain` as a text that only this key opens, and only for the same `context`. The context says
    /// where the text is kept, so that it is worth nothing when it is copied elsewhere.
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

    /// What was sealed for `context`.
    ///
    /// # Errors
    /// If it was sealed by another key, for another context, or not at all, or was changed since.
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

/// The bytes are on the disk before the name is: a key that is lost makes all texts worthless.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 4648 with the letters for URLs and file names.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends `bytes` as letters, without padding.
fn encode(bytes: impl Iterator<Item = u8>, text: &mut String) {
    let (mut bits, mut held) = (0u32, 0);
    let letter = |bits: u32| char::from(LETTERS[usize::try_from(bits & 63).unwrap_or_default()]);
    for byte in bytes {
        bits = bits << 8 | u32::from(byte);
        held += 8;
        while held >= 6 {
            held -= 6;
            text.push(letter(bits >> held));
        }
    }
    if held > 0 {
        text.push(letter(bits << (6 - held)));
    }
}

/// The bytes that `text` stands for, if it is what [`encode`] would have written.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for letter in text.bytes() {
        let index = LETTERS.iter().position(|known| *known == letter)?;
        bits = bits << 6 | u32::try_from(index).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 255).ok()?);
        }
    }
    // One spelling only: no letter without a byte of its own, and no bit behind the last byte.
    (held < 6 && bits & ((1 << held) - 1) == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn key(byte: u8) -> SealKey {
        SealKey::from_bytes(&[byte; KEY_LEN]).unwrap()
    }

    #[test]
    fn what_was_sealed_is_opened_for_the_same_context_by_the_same_key() {
        for plain in [&b""[..], b"x", &[0xff; 1000]] {
            let sealed = key(1).seal("here", plain).unwrap();
            assert!(sealed.starts_with("v1."), "{sealed}");
            assert_eq!(key(1).open("here", &sealed).unwrap(), plain);
            assert!(matches!(key(2).open("here", &sealed), Err(SealError::Refused)));
            assert!(matches!(key(1).open("there", &sealed), Err(SealError::Refused)));
        }
    }

    #[test]
    fn no_two_sealed_texts_are_alike() {
        assert_ne!(key(1).seal("c", b"id").unwrap(), key(1).seal("c", b"id").unwrap());
    }

    #[test]
    fn every_change_of_a_sealed_text_is_noticed() {
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
    fn letters_have_one_spelling() {
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
    fn a_key_is_64_digits_and_nothing_else() {
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
    fn a_file_is_made_once_and_for_its_owner_alone() {
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
