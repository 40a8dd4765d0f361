//! Randomness from the operating system.

/// `N` unpredictable bytes.
///
/// # Panics
/// If the operating system has no randomness to give. There is no safe way on from there: every
/// handle made afterwards could be guessed.
#[allow(clippy::panic)]
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system gives no random bytes: {error}");
    }
    bytes
}
