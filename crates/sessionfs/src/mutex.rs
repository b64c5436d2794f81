//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. What it protects stays consistent if a thread panics.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
