//! Keeps `errno` while the recorder calls the system.

/// Saves `errno` of this thread and restores it when the value is dropped. For the application,
/// recording an event is not a call of the C library. So every path on which an event may call the
/// system restores `errno`.
#[derive(Debug)]
pub struct ErrnoKept(i32);

impl ErrnoKept {
    /// Saves the value. The function is async-signal-safe.
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: the address belongs to this thread and is valid as long as the thread lives.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoKept {
    fn drop(&mut self) {
        // SAFETY: as in `now`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
