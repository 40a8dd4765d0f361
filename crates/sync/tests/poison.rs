//! Locks that were held during a panic.
#![allow(clippy::panic, reason = "the panics are what is tested")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use stayput_sync::{Mutex, RwLock};

/// Runs `work`, which panics, without the message of the panic.
fn panicking(work: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
}

#[test]
fn mutex_is_locked_after_a_panic() {
    let mutex = Mutex::new(1);
    panicking(|| {
        *mutex.lock() = 2;
        let _guard = mutex.lock();
        panic!("while the mutex is held");
    });
    assert_eq!(mutex.try_lock().map(|it| *it), Some(2));
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn lock_is_read_and_written_after_a_panic() {
    let lock = RwLock::new(1);
    panicking(|| {
        let mut guard = lock.write();
        *guard = 2;
        panic!("while the lock is held");
    });
    assert_eq!(*lock.read(), 2);
    *lock.write() += 1;
    assert_eq!(*lock.read(), 3);
}

#[test]
fn held_mutex_is_not_taken_twice() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none());
    drop(guard);
    assert!(mutex.try_lock().is_some());
}
