//! The aarch64 part of the stepper: instruction pointer, breakpoints, kinds of instructions.
//!
//! Encodings: Arm Architecture Reference Manual, C4.1 (branches, loads and stores).

use anyhow::{Result, ensure};

use super::Step;

/// The instruction of a breakpoint, `brk #0`.
pub(crate) const BREAKPOINT: &[u8] = &0xd420_0000u32.to_le_bytes();
/// How far behind its own address a breakpoint stops.
pub(crate) const BEHIND: u64 = 0;
/// The general registers (elf.h).
const NT_PRSTATUS: usize = 1;

/// The instruction pointer of a stopped thread.
pub(crate) fn ip(tid: i32) -> Result<u64> {
    let mut registers = None;
    registers_of(tid, libc::PTRACE_GETREGSET, &mut registers)?;
    Ok(registers.map_or(0, |r| r.pc))
}

/// Lets a stopped thread go on at `ip`.
pub(crate) fn set_ip(tid: i32, ip: u64) -> Result<()> {
    let mut registers = None;
    registers_of(tid, libc::PTRACE_GETREGSET, &mut registers)?;
    if let Some(registers) = &mut registers {
        registers.pc = ip;
    }
    registers_of(tid, libc::PTRACE_SETREGSET, &mut registers)
}

/// Reads or writes the registers of a stopped thread.
fn registers_of(
    tid: i32,
    request: libc::c_uint,
    to: &mut Option<libc::user_regs_struct>,
) -> Result<()> {
    // SAFETY: the registers are plain numbers; the request reads or writes at most as many bytes of
    // them as the vector says.
    let done = unsafe {
        let registers = to.get_or_insert_with(|| core::mem::zeroed());
        let mut place = libc::iovec {
            iov_base: core::ptr::from_mut(registers).cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        libc::ptrace(request, tid, NT_PRSTATUS, &raw mut place)
    };
    ensure!(
        done != -1,
        "ptrace request {request} for registers: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// The instructions of `code`, which lies at `start`.
pub(crate) fn instructions(code: &[u8], start: u64) -> Result<Vec<Step>> {
    ensure!(code.len() % 4 == 0, "half an instruction in the section from {start:#x}");
    let words =
        code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    Ok((0u64..).zip(words).map(|(n, word)| step(start + 4 * n, word)).collect())
}

fn step(at: u64, word: u32) -> Step {
    // `bits` of the word from `low` on, a signed count of instructions.
    let away =
        |low: u32, bits: u32| (i64::from(word << (32 - bits - low)) << 32 >> (64 - bits)) * 4;
    let away = match word {
        // B, BL
        w if w & 0x7c00_0000 == 0x1400_0000 => Some(away(0, 26)),
        // B.cond
        w if w & 0xff00_0010 == 0x5400_0000 => Some(away(5, 19)),
        // CBZ, CBNZ
        w if w & 0x7e00_0000 == 0x3400_0000 => Some(away(5, 19)),
        // TBZ, TBNZ
        w if w & 0x7e00_0000 == 0x3600_0000 => Some(away(5, 14)),
        _ => None,
    };
    Step { at, target: away.map(|away| at.wrapping_add_signed(away)) }
}

/// The address of `str register, [register, #8]` that ends at `start`.
pub(crate) fn arming(before: &[u8], start: u64) -> Option<u64> {
    let word = u32::from_le_bytes(before.get(4..8)?.try_into().ok()?);
    (word & 0xffff_fc00 == 0xf900_0400).then_some(start - 4)
}
