//! Mutex helper that ignores poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex. A panic leaves no data of this crate half-changed, so that poison can be ignored.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
