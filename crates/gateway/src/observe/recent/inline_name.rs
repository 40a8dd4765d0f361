//! Name of limited length that needs no allocation.

use std::fmt;

/// First bytes of a name. A longer name ends with an ellipsis when it is read.
#[derive(Clone, Copy)]
pub(super) struct InlineName<const N: usize> {
    bytes: [u8; N],
    length: u8,
    is_cut: bool,
}

impl<const N: usize> InlineName<N> {
    pub(super) fn new(name: &str) -> Self {
        let mut length = name.len().min(N).min(usize::from(u8::MAX));
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        let mut bytes = [0; N];
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        let is_cut = length < name.len();
        // The length was limited above.
        Self { bytes, length: u8::try_from(length).unwrap_or(u8::MAX), is_cut }
    }

    /// Returns the name.
    pub(super) fn read(&self) -> String {
        let kept = String::from_utf8_lossy(&self.bytes[..usize::from(self.length)]);
        format!("{kept}{}", if self.is_cut { "…" } else { "" })
    }
}

impl<const N: usize> fmt::Debug for InlineName<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_cut_between_characters() {
        assert_eq!(InlineName::<8>::new("count").read(), "count");
        assert_eq!(InlineName::<8>::new("12345678").read(), "12345678");
        assert_eq!(InlineName::<8>::new("1234567ü9").read(), "1234567…");
    }
}
