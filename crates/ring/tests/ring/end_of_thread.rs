//! A thread that registered an area of its own for restartable sequences unregisters it before the
//! C library may unmap the thread's memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::own_area::{is_alone, registered};

/// Number of rounds of destructors, whether sections were available in the last, and the address of
/// the area that was registered then.
static ROUNDS: AtomicU32 = AtomicU32::new(0);
static AVAILABLE: AtomicU32 = AtomicU32::new(2);
static REGISTERED: AtomicU64 = AtomicU64::new(1);
static KEY: AtomicU32 = AtomicU32::new(0);

extern "C" fn at_end(value: *mut libc::c_void) {
    AVAILABLE.store(lastwords_ring::rseq_available().into(), SeqCst);
    REGISTERED.store(registered().map_or(0, |area| area.at), SeqCst);
    // The order of destructors is not defined, but the second round comes after all of the first.
    if ROUNDS.fetch_add(1, SeqCst) == 0 {
        // SAFETY: the key was created.
        unsafe { libc::pthread_setspecific(KEY.load(SeqCst), value) };
    }
}

#[test]
fn the_area_is_unregistered_at_the_end_of_a_thread() {
    if !is_alone("end_of_thread::the_area_is_unregistered_at_the_end_of_a_thread") {
        return;
    }
    if !lastwords_ring::rseq_available() {
        println!("this kernel has no restartable sequences");
        return;
    }
    std::thread::spawn(|| {
        let mut key = 0;
        // SAFETY: the destructor is a function of this program; its argument is not used as an
        // address.
        unsafe {
            assert_eq!(libc::pthread_key_create(&raw mut key, Some(at_end)), 0);
            KEY.store(key, SeqCst);
            assert_eq!(libc::pthread_setspecific(key, (&raw const ROUNDS).cast()), 0);
        }
        assert!(lastwords_ring::rseq_available(), "this thread has registered its area");
    })
    .join()
    .expect("the thread");
    assert_eq!(
        (ROUNDS.load(SeqCst), AVAILABLE.load(SeqCst), REGISTERED.load(SeqCst)),
        (2, 0, 0),
        "rounds, sections in the last, area of the last"
    );
}
