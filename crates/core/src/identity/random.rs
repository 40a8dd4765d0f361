//! Random bytes from the operating system.

/// Returns `N` unpredictable bytes.
///
/// # Panics
/// If the operating system has no random bytes. There is no safe fallback: every handle generated
/// after that could be guessed.
#[allow(clippy::panic)]
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system returned no random bytes: {error}");
    }
    bytes
}
