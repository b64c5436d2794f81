//! `vfork`, so that its child is known. The child runs in the memory of its parent and in the
//! thread-local storage of the parent's thread, which waits until the child has called `_exit` or
//! `exec`. The kernel knows no restartable-sequence area of the child: it neither restarts the
//! child's sections nor updates the number of its CPU. So a child must not use sections, and
//! records in the stream that is bound to no CPU.
//!
//! An ordinary event does not look for this. The `vfork` here, which replaces that of the C library
//! in a program that is linked with this crate, makes the thread forget its lane before the child
//! exists. Whoever then looks for a lane finds [`is_child`] true, and finds no lane. The parent
//! undoes this when it goes on.
//!
//! A child of `clone` with `CLONE_VM`, and one of a `vfork` that was bound to the C library before
//! this library was loaded, is not known.

use core::cell::Cell;

use crate::reserve::forget_lane;
use crate::threads;

std::thread_local! {
    /// Number of calls of `vfork` in whose child this thread runs, or which it is about to make. The parent's thread and the
    /// child share it, and one of them waits while the other runs.
    static CALLS: Cell<u8> = const { Cell::new(0) };
}

/// Returns true in a child of `vfork`.
#[inline]
pub(crate) fn is_child() -> bool {
    CALLS.get() != 0
}

/// Runs in the parent before the child exists. Returns the nesting level of records, which the
/// child may leave changed if it is killed.
extern "C" fn before() -> usize {
    CALLS.set(CALLS.get().saturating_add(1));
    forget_lane();
    threads::level()
}

/// Runs in the parent after the child has left its memory, or if there is no child. `result` is
/// that of the system call. Returns that of `vfork`.
extern "C" fn after(result: isize, level: usize) -> libc::pid_t {
    CALLS.set(CALLS.get().saturating_sub(1));
    threads::set_level(level);
    if result < 0 {
        // SAFETY: the C library gives the address of this thread's errno.
        unsafe { *libc::__errno_location() = -result as libc::c_int };
        return -1;
    }
    result as libc::pid_t
}

/// `vfork` of POSIX.1-2001.
///
/// # Safety
/// The conditions of `vfork` apply: the child may only record, call async-signal-safe functions,
/// and end by `_exit` or `exec`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> libc::pid_t {
    // The child overwrites the stack below the caller's frame, so the return address and the level
    // are in registers, which the system call keeps, until the parent goes on.
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "mov rsi, rax",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test rax, rax",
        "je 2f",
        "mov rdi, rax",
        "jmp {after}",
        "2: ret",
        before = sym before,
        after = sym after,
        number = const libc::SYS_vfork,
    )
}

/// `vfork` of POSIX.1-2001.
///
/// # Safety
/// The conditions of `vfork` apply: the child may only record, call async-signal-safe functions,
/// and end by `_exit` or `exec`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> libc::pid_t {
    // As on x86_64. The return address stays in its register.
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {before}",
        "ldp x29, x30, [sp], #16",
        "mov x9, x0",
        "mov x0, {flags}",
        "mov x1, xzr",
        "mov x8, {number}",
        "svc #0",
        "cbz x0, 2f",
        "mov x1, x9",
        "b {after}",
        "2: ret",
        before = sym before,
        after = sym after,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        number = const libc::SYS_clone,
    )
}
