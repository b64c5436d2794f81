//! Tests what the ring gets from the kernel: whether processes live, and the files of descriptors.

use std::os::fd::{AsFd as _, AsRawFd as _};

use lastwords_ring::backend::VerifiedFile;
use lastwords_ring::os::{is_alive, is_process_alive, start_time};

#[test]
fn a_process_lives_on_when_its_first_thread_has_ended() {
    extern "C" fn wait(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the call involves no memory.
        unsafe { libc::sleep(60) };
        core::ptr::null_mut()
    }
    // SAFETY: the child starts one thread and ends its own; it is killed below. The call involves
    // no memory of this process.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut thread: libc::pthread_t = core::mem::zeroed();
            let none = core::ptr::null();
            let failed = libc::pthread_create(&raw mut thread, none, wait, core::ptr::null_mut());
            if failed != 0 {
                libc::_exit(1);
            }
            libc::syscall(libc::SYS_exit, 0);
        }
        child
    };
    let pid = u32::try_from(child).expect("a child");
    while is_alive(pid, 0) {
        std::thread::yield_now();
    }
    let start = start_time(pid) as u32;
    let seen = (is_process_alive(pid, start), is_process_alive(pid, start.wrapping_add(1)));
    // SAFETY: the child belongs to this test.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // A killed process that nobody has waited for is dead.
    while is_process_alive(pid, start) {
        std::thread::yield_now();
    }
    // SAFETY: the child belongs to this test.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    assert_eq!(seen, (true, false));
}

#[test]
fn a_number_that_is_another_files_now_is_neither_used_nor_closed() {
    let open = |path| std::fs::File::open(path).expect("it opens");
    let held = VerifiedFile::new(open("/proc/self/exe").into()).expect("held");
    let fd = held.get().expect("it is open");
    assert!(held.is(fd));
    let other = open("/proc/version");
    assert!(!held.is(other.as_fd()));
    let number = fd.as_raw_fd();
    // SAFETY: both descriptors are open; the first belongs to `held` alone.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
    assert!(held.get().is_none());
    drop(held);
    // SAFETY: this is the copy made above, which nobody else closes.
    assert_eq!(unsafe { libc::close(number) }, 0, "it was left open");
}
