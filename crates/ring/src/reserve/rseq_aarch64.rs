//! The section in aarch64 instructions.
//!
//! The rules are those of x86_64 (include/uapi/linux/rseq.h). Other CPUs may see plain stores in
//! another order, so the commit is a store-release. For this CPU, and for readers after a crash,
//! program order applies.

use core::arch::asm;

use lastwords_abi::header::{CLOCK_BITS, LEN_COMPACT, TAG_BITS};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};

use super::Commit;
use crate::cpu::{self, OFFSET};
use crate::record::{Padded, Piece, Tail};
use crate::reserve::lane::Lane;
pub(in crate::reserve) use crate::reserve::never::{record_short_text, record_varying};

/// The descriptor of a section, from 71 to 72, whose address is then in `t`.
macro_rules! descriptor {
    () => {
        concat!(
            number!(),
            ".pushsection __rseq_cs, \"aw\", @progbits, unique, .Llastwords_rseq\n",
            ".balign 32\n",
            "77: .long 0, 0\n",
            ".quad 71f, 72f - 71f, 74f\n",
            ".popsection\n",
            "adrp {t}, 77b\n",
            "add {t}, {t}, :lo12:77b",
        )
    };
}

/// The end of a section: `t` is 1 behind its commit, and 0 behind an abort or a branch to 75.
macro_rules! exits {
    () => {
        concat!(
            "72:\n",
            "mov {t}, #1\n",
            "b 79f\n",
            ".pushsection .text.rseq_abort, \"ax\", @progbits, unique, .Llastwords_rseq\n",
            ".inst 0xd428bc00\n",
            "74: b 75f\n",
            ".popsection\n",
            "75: mov {t}, #0\n",
            "79:",
        )
    };
}

/// Copies the pieces and publishes.
///
/// # Safety
/// Every destination is writable, and nobody else writes it while `commit`'s position is current on
/// this CPU.
pub(super) unsafe fn publish(commit: &Commit<'_>, pieces: &[Piece]) -> bool {
    let done: u64;
    // SAFETY: the descriptor names exactly the instructions between 71 and 72. Before the commit
    // they write only unpublished memory, for which the caller gives its guarantee. Both exits
    // leave the section. The instructions read `commit` by the offsets that its shape asserts.
    unsafe {
        asm!(
            descriptor!(),
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
            exits!(),
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

/// Records an event whose payload is the first `len` bytes of `words`. Returns false if the section
/// was aborted, or cannot record this event. Events with a tail take the general path on this
/// architecture.
///
/// # Safety
/// `id` is of a compact header, and `len` is at most `8 * W`. The section writes up to 7 bytes
/// after the event.
#[inline(always)]
pub(in crate::reserve) unsafe fn record<const W: usize>(
    lane: &Lane,
    id: u32,
    words: &[u64; W],
    len: usize,
    _most: usize,
    tail: Option<Tail<'_>>,
) -> bool {
    // SAFETY: the words have `len` bytes, in whole words.
    tail.is_none() && unsafe { copy_words(lane, id, 0, LEN_COMPACT, words.as_ptr(), len) }
}

/// Records an event whose payload is in memory. Returns false if the section was aborted, or cannot
/// record this event.
///
/// # Safety
/// `tag` and `header`, the length of the header, belong to `id`.
#[inline(always)]
pub(in crate::reserve) unsafe fn record_padded(
    lane: &Lane,
    tag: u32,
    id: u16,
    header: usize,
    payload: Padded<'_>,
) -> bool {
    // SAFETY: the zeros after the payload complete its last word. This architecture loads words at
    // any address.
    unsafe { copy_words(lane, tag, id, header, payload.as_ptr().cast(), payload.payload().len()) }
}

/// Records an event whose payload is the first `len` bytes at `words`.
///
/// # Safety
/// `tag` and `header`, the length of the header, belong to `id`. `len` bytes, rounded up to whole
/// words, are readable at `words`.
#[inline(always)]
unsafe fn copy_words(
    lane: &Lane,
    tag: u32,
    id: u16,
    header: usize,
    words: *const u64,
    len: usize,
) -> bool {
    let area = cpu::area_at(OFFSET.load(Relaxed));
    let total = (header + len) as u64;
    let Some((position, clock)) = place(lane, area, total) else { return false };
    let done: u64;
    // SAFETY: the reasons of `publish` apply. The event `fits`, with the trailer's 16 bytes after
    // it, and the section copies only while this CPU's position is the one from which `to` was
    // computed. The copy stops after the word that contains the last of `len` bytes, and the caller
    // has that word. The id is stored before the payload, which overwrites it if the header has no
    // id.
    unsafe {
        asm!(
            descriptor!(),
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
            "str {first:w}, [{to}]",
            "strh {id:w}, [{to}, #4]",
            "add {to}, {to}, {header}",
            "76:",
            "cbz {n}, 78f",
            "ldr {t}, [{words}], #8",
            "str {t}, [{to}], #8",
            "sub {n}, {n}, #1",
            "b 76b",
            "78:",
            "stlr {end}, [{control}]",
            exits!(),
            t = out(reg) done,
            u = out(reg) _,
            area = in(reg) core::ptr::from_ref(area),
            cpu = in(reg) lane.cpu,
            control = in(reg) core::ptr::from_ref(lane.control),
            position = in(reg) position,
            flip = in(reg) lane.flip.as_ptr(),
            stream_flip = in(reg) lane.stream_flip.as_ptr(),
            half = in(reg) u64::from(lane.half),
            end = in(reg) position + total,
            first = in(reg) (clock as u32) << TAG_BITS | tag,
            id = in(reg) u32::from(id),
            header = in(reg) header,
            to = inout(reg) lane.data.wrapping_add((position & lane.half_mask) as usize) => _,
            words = inout(reg) words => _,
            n = inout(reg) len.div_ceil(8) => _,
            options(nostack),
        );
    }
    if done != 0 {
        // The event is committed, so its clock is not newer than the newest, whichever recorder
        // stores last.
        lane.control.last_clock.store(clock, Release);
    }
    done != 0
}

/// Returns the position at which an event of `total` bytes would be recorded now, and its clock.
/// Returns `None` if the section could not record it.
#[inline(always)]
fn place(lane: &Lane, area: &cpu::Area, total: u64) -> Option<(u64, u64)> {
    let ours = area.cpu_id.load(Relaxed) == lane.cpu;
    // Acquire: a recorder that sees the flip also sees the reset of the half that happened before
    // it.
    let live = (lane.flip.load(Acquire) ^ lane.stream_flip.load(Acquire) ^ lane.half) & 1 == 0;
    let position = lane.control.reserve.load(Relaxed);
    let behind = (position & lane.sub_buffer_mask).wrapping_sub(HEADER_LEN as u64);
    let clock = crate::clock::counter();
    let fits = behind <= lane.room && behind + total <= lane.room;
    let near = clock.wrapping_sub(lane.control.last_clock.load(Relaxed)) >> CLOCK_BITS == 0;
    (ours && live && fits && near).then_some((position, clock))
}
