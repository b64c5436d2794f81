//! A stack for the handler's work. The alternate stacks that the standard library gives to threads
//! have 8 KiB, of which the signal frame takes a third or more on today's machines.
//!
//! Unwind information (CFI) describes the switch, so that a backtrace passes through it to the
//! interrupted code.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::naked_asm;
use std::cell::UnsafeCell;

use super::fault::Fault;

const LEN: usize = 128 << 10;

#[repr(C, align(64))]
struct Stack(UnsafeCell<[u8; LEN]>);

// SAFETY: only one thread at a time uses it: the one that owns the crash.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; LEN]));

/// Calls `run` with the argument on the stack that ends at `top`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn on_stack(argument: *const Fault, run: extern "C" fn(&Fault), top: *mut u8) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
}

/// Calls `run` with the argument on the stack that ends at `top`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn on_stack(argument: *const Fault, run: extern "C" fn(&Fault), top: *mut u8) {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa x29, 16",
        "mov sp, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    );
}

/// Calls `run` with the argument on the thread's current stack.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe extern "C" fn on_stack(argument: *const Fault, run: extern "C" fn(&Fault), _top: *mut u8) {
    // SAFETY: the caller passes a reference.
    run(unsafe { &*argument });
}

/// Calls `run` on the separate stack. Only one thread may do so at a time.
pub(super) fn run(argument: &Fault, run: extern "C" fn(&Fault)) {
    // SAFETY: the top is 16-aligned, which the ABI requires at a call. The whole stack is below it,
    // and only the owner of the crash uses it. The argument outlives the call. `run` does not
    // unwind (it is `extern "C"`).
    unsafe { on_stack(argument, run, STACK.0.get().cast::<u8>().add(LEN)) }
}
