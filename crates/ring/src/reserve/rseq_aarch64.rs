//! The section in aarch64 instructions.
//!
//! Rules as on x86_64 (include/uapi/linux/rseq.h). The CPU may reorder plain stores as other CPUs see them, so the commit is
//! a store-release; for this CPU and for whoever comes after a crash, program order holds.

use core::arch::asm;

use super::Commit;
use crate::cpu;
use crate::record::Piece;
use crate::reserve::quick::Check;

/// Copies the pieces and publishes.
///
/// # Safety
/// Every destination is writable, and written by nobody else while `commit`'s position stands on this CPU.
pub(super) unsafe fn publish(commit: &Commit<'_>, pieces: &[Piece]) -> bool {
    let done: u64;
    // SAFETY: the descriptor names exactly the instructions between 71 and 72; what they write before the commit is
    // unpublished memory that the caller vouches for; both exits leave the section. `commit` is read by the offsets
    // that its shape asserts.
    unsafe {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 71f, 72f - 71f, 74f",
            ".popsection",
            "adrp {t}, 77b",
            "add {t}, {t}, :lo12:77b",
            "ldr {a}, [{commit}]",
            "str {t}, [{a}, #8]",
            "71:",
            "ldr {t:w}, [{commit}, #8]",
            "ldr {u:w}, [{a}, #4]",
            "cmp {t:w}, {u:w}",
            "b.ne 75f",
            "ldr {control}, [{commit}, #32]",
            "ldr {t}, [{commit}, #40]",
            "ldr {u}, [{control}]",
            "cmp {t}, {u}",
            "b.ne 75f",
            "ldr {t}, [{commit}, #16]",
            "ldr {t:w}, [{t}]",
            "ldr {u}, [{commit}, #24]",
            "ldr {u:w}, [{u}]",
            "eor {t:w}, {t:w}, {u:w}",
            "ldr {u:w}, [{commit}, #12]",
            "eor {t:w}, {t:w}, {u:w}",
            "tbnz {t:w}, #0, 75f",
            "ldr {end}, [{commit}, #48]",
            "str {end}, [{control}, #8]",
            "76:",
            "cbz {n}, 78f",
            "ldp {a}, {u}, [{list}]",
            "ldr {t}, [{list}, #16]",
            "80:",
            "cbz {t}, 81f",
            "ldrb {b:w}, [{u}], #1",
            "strb {b:w}, [{a}], #1",
            "sub {t}, {t}, #1",
            "b 80b",
            "81:",
            "add {list}, {list}, #24",
            "sub {n}, {n}, #1",
            "b 76b",
            "78:",
            "stlr {end}, [{control}]",
            "72:",
            "mov {t}, #1",
            "b 79f",
            ".pushsection .text.rseq_abort, \"ax\", @progbits",
            ".inst 0xd428bc00",
            "74: b 75f",
            ".popsection",
            "75: mov {t}, #0",
            "79:",
            t = out(reg) done,
            u = out(reg) _,
            a = out(reg) _,
            b = out(reg) _,
            end = out(reg) _,
            control = out(reg) _,
            commit = in(reg) core::ptr::from_ref(commit),
            list = inout(reg) pieces.as_ptr() => _,
            n = inout(reg) pieces.len() => _,
            options(nostack),
        );
    }
    done != 0
}

/// Stores the header and the words behind it that `len` bytes need, and publishes.
///
/// # Safety
/// `to` is writable for 4 + `len` bytes rounded up to 8, plus 8; as for [`publish`].
#[inline(always)]
pub(in crate::reserve) unsafe fn publish_words<const W: usize>(
    check: &Check<'_>,
    words: &[u64; W],
    len: usize,
) -> bool {
    let done: u64;
    // SAFETY: as in `publish`; the copy stops behind the word that holds the last of `len` bytes, and `words` has it.
    unsafe {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 71f, 72f - 71f, 74f",
            ".popsection",
            "adrp {t}, 77b",
            "add {t}, {t}, :lo12:77b",
            "str {t}, [{area}, #8]",
            "71:",
            "ldr {t:w}, [{area}, #4]",
            "cmp {t:w}, {cpu:w}",
            "b.ne 75f",
            "ldr {t:w}, [{flip}]",
            "ldr {u:w}, [{stream_flip}]",
            "eor {t:w}, {t:w}, {u:w}",
            "eor {t:w}, {t:w}, {half:w}",
            "tbnz {t:w}, #0, 75f",
            "ldr {t}, [{control}]",
            "cmp {t}, {position}",
            "b.ne 75f",
            "str {end}, [{control}, #8]",
            "str {header:w}, [{to}], #4",
            "76:",
            "cbz {n}, 78f",
            "ldr {t}, [{words}], #8",
            "str {t}, [{to}], #8",
            "sub {n}, {n}, #1",
            "b 76b",
            "78:",
            "stlr {end}, [{control}]",
            "72:",
            "mov {t}, #1",
            "b 79f",
            ".pushsection .text.rseq_abort, \"ax\", @progbits",
            ".inst 0xd428bc00",
            "74: b 75f",
            ".popsection",
            "75: mov {t}, #0",
            "79:",
            t = out(reg) done,
            u = out(reg) _,
            area = in(reg) core::ptr::from_ref(cpu::area_at(check.offset)),
            cpu = in(reg) check.cpu,
            control = in(reg) core::ptr::from_ref(check.control),
            position = in(reg) check.position,
            flip = in(reg) check.flip,
            stream_flip = in(reg) check.stream_flip,
            half = in(reg) check.half,
            end = in(reg) check.end,
            header = in(reg) check.header,
            to = inout(reg) check.to => _,
            words = inout(reg) words.as_ptr() => _,
            n = inout(reg) len.div_ceil(8).min(W) => _,
            options(nostack),
        );
    }
    done != 0
}

/// Texts go the general way.
///
/// # Safety
/// None needed.
pub(in crate::reserve) unsafe fn publish_text<const W: usize>(_: &Check<'_>, _: &[u64; W], _: &[u8]) -> bool {
    false
}
