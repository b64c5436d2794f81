//! The end of a thread. It needs unsafe code, which not all test programs may have.

/// Calls a function in a new thread, and another one in the last round of destructors of its end,
/// when Rust's own thread-local data is gone.
pub(crate) fn at_the_very_end_of_a_thread(before: impl FnOnce() + Send, call: extern "C" fn()) {
    use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
    static KEY: AtomicU32 = AtomicU32::new(0);
    static CALL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    extern "C" fn destructor(round: *mut libc::c_void) {
        if round.addr() == 3 {
            // SAFETY: it is the address of such a function, stored below before the thread started.
            let call =
                unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(CALL.load(Relaxed)) };
            call();
        } else {
            // SAFETY: the key was made below and is never deleted.
            unsafe { libc::pthread_setspecific(KEY.load(Relaxed), round.wrapping_byte_add(1)) };
        }
    }
    CALL.store(call as *mut (), Relaxed);
    let mut key = 0;
    // SAFETY: `key` is valid memory for the key.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) }, 0);
    KEY.store(key, Relaxed);
    let begin = move || {
        before();
        // SAFETY: the key exists; the value is a number.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("ending".into()).spawn_scoped(scope, begin);
        assert_eq!(thread.expect("a thread").join().expect("it ends"), 0);
    });
}
