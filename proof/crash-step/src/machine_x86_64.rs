//! The x86_64 part of the stepper: instruction pointer, breakpoints, kinds of instructions.

use anyhow::{Result, ensure};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::Step;

const IP: usize = core::mem::offset_of!(libc::user_regs_struct, rip);
/// The instruction of a breakpoint, `int3`.
pub(crate) const BREAKPOINT: &[u8] = &[0xcc];
/// How far behind its own address a breakpoint stops.
pub(crate) const BEHIND: u64 = 1;

/// The instruction pointer of a stopped thread.
pub(crate) fn ip(tid: i32) -> Result<u64> {
    // SAFETY: errno is this thread's; the request reads one word of the tracee's registers.
    let (word, error) = unsafe {
        *libc::__errno_location() = 0;
        let word = libc::ptrace(libc::PTRACE_PEEKUSER, tid, IP, 0);
        (word, *libc::__errno_location())
    };
    ensure!(error == 0, "PEEKUSER: {}", std::io::Error::from_raw_os_error(error));
    Ok(word as u64)
}

/// Lets a stopped thread go on at `ip`.
pub(crate) fn set_ip(tid: i32, ip: u64) -> Result<()> {
    // SAFETY: the request writes one word of the tracee's registers.
    let done = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, tid, IP, ip as usize) };
    ensure!(done != -1, "POKEUSER: {}", std::io::Error::last_os_error());
    Ok(())
}

/// The instructions of `code`, which lies at `start`.
pub(crate) fn instructions(code: &[u8], start: u64) -> Result<Vec<Step>> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut found = Vec::new();
    while decoder.can_decode() {
        let i = decoder.decode();
        ensure!(!i.is_invalid(), "no instruction at {:#x}, in the section from {start:#x}", i.ip());
        let target = (i.op0_kind() == OpKind::NearBranch64).then(|| i.near_branch_target());
        found.push(Step { at: i.ip(), target });
    }
    Ok(found)
}

/// The address of `mov [register + 8], register` that ends at `start`, or of the same relative to
/// the thread pointer: that is tried first, since without its first byte it is the other.
pub(crate) fn arming(before: &[u8], start: u64) -> Option<u64> {
    let is_arming = |i: &Instruction, len: usize, prefix: Register| {
        i.len() == len
            && i.code() == Code::Mov_rm64_r64
            && i.op0_kind() == OpKind::Memory
            && i.memory_displacement64() == 8
            && i.segment_prefix() == prefix
    };
    [(6usize, Register::FS), (5, Register::FS), (4, Register::None)].into_iter().find_map(
        |(len, prefix)| {
            let at = start - len as u64;
            let i = Decoder::with_ip(64, &before[8 - len..], at, DecoderOptions::NONE).decode();
            is_arming(&i, len, prefix).then_some(at)
        },
    )
}
