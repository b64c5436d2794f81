//! The area of our own that a thread registers for restartable sequences, by the kernel's account of
//! it.

use std::process::Command;

/// Returns true in a process without areas of the C library. glibc registers areas itself, so the
/// first process runs the test `name` in such a process, and gets false.
pub(crate) fn is_alone(name: &str) -> bool {
    if std::env::var_os("LASTWORDS_OWN_AREA").is_some() {
        return true;
    }
    let done = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture"])
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .env("LASTWORDS_OWN_AREA", "1")
        .status();
    assert!(done.expect("this test runs").success());
    false
}

/// `struct ptrace_rseq_configuration` of include/uapi/linux/ptrace.h.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// Address of the area; 0 if none is registered.
    pub(crate) at: u64,
    pub(crate) len: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

/// Returns what this thread has registered; none if the kernel cannot say (before Linux 5.13). A
/// forked child has the area of the thread that forked, and the kernel tells its tracer.
pub(crate) fn registered() -> Option<Registered> {
    const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    let mut found = Registered::default();
    // SAFETY: the child only makes system calls. It is stopped while it is asked, and the answer is
    // at most as long as `found`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let traced = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0;
            libc::_exit(if traced { libc::raise(libc::SIGSTOP) } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFSTOPPED(status), "ptrace is refused here: status {status:#x}");
        let len = size_of::<Registered>();
        let got = libc::ptrace(PTRACE_GET_RSEQ_CONFIGURATION, child, len, &raw mut found);
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
        (got == len as libc::c_long).then_some(found)
    }
}

/// Registers an area with this length, and returns the error.
fn register_again(at: u64, len: u32, signature: u32) -> Option<i32> {
    // SAFETY: the thread has an area, so the kernel refuses.
    let done = unsafe { libc::syscall(libc::SYS_rseq, at, len, 0, signature) };
    (done != 0).then(|| std::io::Error::last_os_error().raw_os_error().expect("an error"))
}

#[test]
fn the_length_is_that_of_the_kernel() {
    if !is_alone("own_area::the_length_is_that_of_the_kernel") {
        return;
    }
    if !lastwords_ring::rseq_available() {
        println!("this kernel has no restartable sequences");
        return;
    }
    // AT_RSEQ_FEATURE_SIZE and AT_RSEQ_ALIGN. SAFETY: the call has no conditions.
    let [size, align] = [27, 28].map(|key| unsafe { libc::getauxval(key) });
    let expected = if (33..=64).contains(&size) && align <= 64 { size as u32 } else { 32 };
    println!("the kernel knows {size} bytes at multiples of {align}; {expected} are expected");
    let Some(found) = registered() else {
        println!("this kernel does not say what is registered");
        return;
    };
    println!("registered: {} bytes at {:#x}", found.len, found.at);
    assert_eq!((found.len, found.at % align.max(32)), (expected, 0));
    for len in [32, 33, 40, 64] {
        let error = if len == expected { libc::EBUSY } else { libc::EINVAL };
        assert_eq!(register_again(found.at, len, found.signature), Some(error), "{len} bytes");
    }
}
