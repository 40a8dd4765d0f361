//! Bytes as letters (RFC 4648, the standard alphabet, padded).

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` as letters.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |place: usize| u32::from(group.get(place).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or_default();
            text.push(if place > group.len() { '=' } else { char::from(LETTERS[index]) });
        }
    }
    text
}

/// The bytes that `text` stands for, if it is what [`encode`] would have written: two spellings of
/// one value could be told apart by one reader and not by another.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let (groups, []) = text.as_bytes().as_chunks::<4>() else { return None };
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for group in groups {
        let padding = group.iter().rev().take_while(|letter| **letter == b'=').count();
        let mut bits = 0u32;
        for letter in &group[..4 - padding] {
            let index = LETTERS.iter().position(|known| known == letter)?;
            bits = bits << 6 | u32::try_from(index).ok()?;
        }
        bits <<= 6 * padding;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4usize.checked_sub(padding)?.max(1)]);
    }
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648.
    #[test]
    fn known_values() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn every_byte_is_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        for end in 0..all.len() {
            assert_eq!(decode(&encode(&all[..end])).as_deref(), Some(&all[..end]));
        }
    }

    #[test]
    fn there_is_one_spelling() {
        for text in [
            "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "====", "Z===", "Zg==Zg==", "Zm9v\n", "Zm-_",
            "Zm 9",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
