//! The section in x86_64 instructions.
//!
//! Layout and rules are those of include/uapi/linux/rseq.h of Linux 4.18 and later. The
//! descriptor's address is stored to `rseq_cs`, and the section begins directly after that store.
//! The signature precedes the abort handler, disguised as the operand of an undefined instruction.
//! x86 keeps stores in order, so the last store publishes all earlier ones.

use core::arch::asm;

use lastwords_abi::header::{CLOCK_BITS, LEN_COMPACT, TAG_BITS};
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};

use super::Commit;
use crate::cpu::OFFSET;
use crate::record::{Padded, Piece, ShortText, Tail, VARYING, prepended};
use crate::reserve::lane::Lane;

/// The descriptor of the section from 71 to 72 with its abort handler at 74, and the store that
/// arms it. It may use the register `{t}`.
macro_rules! descriptor {
    () => {
        concat!(
            number!(),
            ".pushsection __rseq_cs, \"aw\", @progbits, unique, .Llastwords_rseq\n",
            ".balign 32\n",
            "77: .long 0, 0\n",
            ".quad 71f, 72f - 71f, 74f\n",
            ".popsection\n",
            "lea {t}, [rip + 77b]\n",
        )
    };
}

/// The abort handler, out of line. It continues at `$to`.
macro_rules! abort {
    ($to:literal) => {
        concat!(
            ".pushsection .text.rseq_abort, \"ax\", @progbits, unique, .Llastwords_rseq\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "74: jmp ",
            $to,
            "\n",
            ".popsection\n",
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
            "mov rdi, qword ptr [{commit}]",
            "mov qword ptr [rdi + 8], {t}",
            "71:",
            "mov {t:e}, dword ptr [{commit} + 8]",
            "cmp dword ptr [rdi + 4], {t:e}",
            "jne 75f",
            "mov {control}, qword ptr [{commit} + 32]",
            "mov {t}, qword ptr [{commit} + 40]",
            "cmp qword ptr [{control}], {t}",
            "jne 75f",
            "mov rdi, qword ptr [{commit} + 16]",
            "mov {t:e}, dword ptr [rdi]",
            "mov rdi, qword ptr [{commit} + 24]",
            "xor {t:e}, dword ptr [rdi]",
            "xor {t:e}, dword ptr [{commit} + 12]",
            "test {t:e}, 1",
            "jne 75f",
            "mov {t}, qword ptr [{commit} + 48]",
            "mov qword ptr [{control} + 8], {t}",
            "76:",
            "test {n}, {n}",
            "je 78f",
            "mov rdi, qword ptr [{list}]",
            "mov rsi, qword ptr [{list} + 8]",
            "mov rcx, qword ptr [{list} + 16]",
            "rep movsb",
            "add {list}, 24",
            "dec {n}",
            "jmp 76b",
            "78:",
            "mov qword ptr [{control}], {t}",
            "72:",
            "mov {t:e}, 1",
            "jmp 79f",
            abort!("75f"),
            "75: xor {t:e}, {t:e}",
            "79:",
            t = out(reg) done,
            control = out(reg) _,
            commit = in(reg) core::ptr::from_ref(commit),
            list = inout(reg) pieces.as_ptr() => _,
            n = inout(reg) pieces.len() => _,
            out("rdi") _,
            out("rsi") _,
            out("rcx") _,
            options(nostack),
        );
    }
    done != 0
}

const _: () =
    assert!(HEADER_LEN == 84 && CLOCK_BITS == 27 && TAG_BITS == 5, "the numbers in `fast_section`");

/// The complete section of an event. It checks that the lane is of this CPU and of the live half,
/// reads the clock, and checks that the event fits and that the clock's 27 bits suffice. `p` then
/// is the position after the event, and `$end` may reduce it. After that, `to` is the destination
/// of the event, `edx` contains the clock's bits of its header, and `$copy` copies the event. `rdx`
/// is free once these bits are in the header.
///
/// The section reads [`Lane`] by the offsets that it asserts. It uses these registers: `p` is the
/// area's offset, then the position; `to` is the lane, then the destination of the event; `t` is
/// the half's control; `rax` is the event's size, then the clock, which stays there.
///
/// The clock is read late, but before the copies. `rdtsc` waits for the instructions before it, and
/// on Zen 4 it waits longest for stores: reading it at the section's start costs an event with a
/// text 1 ns more, reading it after the copies 4 ns. So the chain of dependent loads is short: on
/// Golden Cove, where `rdtsc` waits too, a chain of 25 cycles costs 2.5 ns and one of 50 cycles 9
/// ns.
macro_rules! fast_section {
    ($lane:ident, $total:expr, [$($end:expr),*], [$($copy:expr),* $(,)?], $($operand:tt)*) => {
        asm!(
            "mov {p}, qword ptr [rip + {areas}]",
            descriptor!(),
            "mov qword ptr fs:[{p} + 8], {t}",
            "71:",
            "mov {t}, [{to} + 32]",
            "mov edx, dword ptr fs:[{p} + 4]",
            "cmp edx, [{to} + 8]",
            "jne {out}",
            "mov rdx, [{to} + 16]",
            "mov edx, dword ptr [rdx]",
            "mov {p}, [{to} + 24]",
            "xor edx, dword ptr [{p}]",
            "xor edx, dword ptr [{to} + 12]",
            "mov {p}, [{t}]",
            "test dl, 1",
            "jne {out}",
            "mov rdx, {p}",
            "and rdx, [{to} + 48]",
            "sub rdx, 84",
            "jb {out}",
            "add rdx, rax",
            "cmp rdx, [{to} + 64]",
            "ja {out}",
            "mov rdx, {p}",
            "and rdx, [{to} + 56]",
            "add rdx, [{to} + 40]",
            "mov {to}, rdx",
            "add {p}, rax",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov rdx, rax",
            "sub rdx, [{t} + 16]",
            "shr rdx, 27",
            "jne {out}",
            $($end,)*
            "mov [{t} + 8], {p}",
            "mov edx, eax",
            "shl edx, 5",
            $($copy,)*
            "mov [{t}], {p}",
            "72:",
            "mov [{t} + 16], rax",
            abort!("{out}"),
            t = out(reg) _,
            p = out(reg) _,
            to = inout(reg) core::ptr::from_ref($lane) => _,
            inout("rax") $total => _,
            out("rdx") _,
            areas = sym OFFSET,
            out = label { return false },
            $($operand)*
            options(nostack),
        )
    };
}

/// Number of bytes after the event that a section may write. They end before the end of the
/// trailer, where the room for events ends.
const MAX_SPILL: usize = 15;
const _: () = assert!(MAX_SPILL <= TRAILER_LEN);
const _: () = assert!(
    Padded::PADDING == 16 && Padded::PADDING <= TRAILER_LEN,
    "the block of `record_padded`"
);

/// Returns the bytes of payload in a number of words, after the header. A section stores the fewest
/// words that contain the payload. It finds their number by comparisons, because a jump table would
/// be read before the clock.
const fn payload_of(words: usize) -> usize {
    8 * words - LEN_COMPACT
}

const _: () = assert!(Tail::MOST_BEFORE == payload_of(3), "a section with a tail has three words");

/// A section that stores the event's first words from registers: four bytes for the header,
/// followed by the payload. It stores word 0 and the listed words, then executes `$copy`.
macro_rules! framed_section {
    ($lane:ident, $id:ident, $words:ident, $total:expr, [$($w:ident $index:literal $at:literal),*],
     [$($copy:expr),* $(,)?], $($operand:tt)*) => {
        fast_section!(
            $lane, $total, [],
            [
                "or rdx, {first}",
                "mov [{to}], rdx",
                $(concat!("mov [{to} + ", $at, "], {", stringify!($w), "}"),)*
                $($copy,)*
            ],
            first = in(reg) prepended($id, $words, 0),
            $($w = in(reg) prepended($id, $words, $index),)*
            $($operand)*
        )
    };
}

/// A section of an event with a tail; the arguments are the event's first words. The tail's last
/// bytes are copied first, in a piece that may overlap those before it. A zero byte follows them.
/// It belongs to a text, and is after the end of all other tails.
macro_rules! tail_section {
    ($lane:ident, $id:ident, $words:ident, $len:ident, $tail:ident, [$($w:ident $index:literal $at:literal),*]) => {
        framed_section!(
            $lane, $id, $words, LEN_COMPACT + $len + $tail.size(), [$($w $index $at),*],
            [
                "add {to}, {size}",
                "mov rdx, {n}",
                "sub rdx, 16",
                "jb 81f",
                "movups {x}, [{tail} + rdx]",
                "movups [{to} + rdx], {x}",
                "je 83f",
                "76:",
                "sub rdx, 16",
                "jbe 82f",
                "movups {x}, [{tail} + rdx]",
                "movups [{to} + rdx], {x}",
                "jmp 76b",
                "81:",
                "mov rdx, [{tail} + {n} - 8]",
                "mov [{to} + {n} - 8], rdx",
                "mov rdx, [{tail}]",
                "mov [{to}], rdx",
                "jmp 83f",
                "82:",
                "movups {x}, [{tail}]",
                "movups [{to}], {x}",
                "83:",
                "mov byte ptr [{to} + {n}], 0",
            ],
            size = in(reg) LEN_COMPACT + $len,
            tail = in(reg) $tail.bytes().as_ptr(),
            n = in(reg) $tail.bytes().len(),
            x = out(xmm_reg) _,
        )
    };
}

/// Copies the 16 bytes of `tail` at an offset, or the last 16 if these begin before that offset.
macro_rules! block_at {
    ($offset:literal) => {
        concat!(
            "mov edx, ",
            $offset,
            "\n",
            "cmp rdx, {last}\n",
            "cmova rdx, {last}\n",
            "movups {x}, [{tail} + rdx]\n",
            "movups [{to} + rdx], {x}",
        )
    };
}

/// Records an event whose payload is the first `len` bytes of `head`, followed by `tail`. Returns
/// false in the cases of [`record`].
///
/// The section has no jump that depends on the length of the tail: it always copies as many blocks
/// as the longest tail has, and the blocks after the end of a shorter one copy its last 16 bytes
/// again. So tails of random lengths cost no mispredicted jump. On Zen 5 this saves 4 ns if each
/// event of `tracing` has others of 12 optional fields. A text of random length takes the same time
/// in the loop of `tail_section`.
///
/// # Safety
/// `id` is of a compact header, `len` is at most 8, and the length of the tail is in [`VARYING`].
#[inline(always)]
pub(in crate::reserve) unsafe fn record_varying(
    lane: &Lane,
    id: u32,
    head: u64,
    len: usize,
    tail: &[u8],
) -> bool {
    let (words, n) = (&[head], tail.len());
    // SAFETY: the reasons of `record` apply. The head's two words end before the tail does. Each
    // block is in the tail, which has at least 16 bytes and at most as many as the blocks.
    unsafe {
        framed_section!(
            lane, id, words, LEN_COMPACT + len + n, [b 1 8],
            [
                "add {to}, {size}",
                "movups {x}, [{tail}]",
                "movups [{to}], {x}",
                block_at!("16"),
                block_at!("32"),
                block_at!("48"),
                block_at!("64"),
                block_at!("80"),
                block_at!("96"),
                block_at!("112"),
            ],
            size = in(reg) LEN_COMPACT + len,
            tail = in(reg) tail.as_ptr(),
            last = in(reg) n - 16,
            x = out(xmm_reg) _,
        );
    }
    true
}
const _: () =
    assert!(*VARYING.start() == 16 && *VARYING.end() == 128, "the blocks of `record_varying`");

/// Records an event whose payload is the first `len` bytes of `words`, followed by `tail`. Without
/// a tail, the words of `most` bytes are stored. Returns false if the section was aborted, or
/// cannot record this event.
///
/// # Safety
/// `id` is of a compact header, `most` is at most `8 * W` and at most 7 more than `len`, and a tail
/// has at least 8 bytes. The section writes up to [`MAX_SPILL`] bytes after the event.
#[inline(always)]
pub(in crate::reserve) unsafe fn record<const W: usize>(
    lane: &Lane,
    id: u32,
    words: &[u64; W],
    len: usize,
    most: usize,
    tail: Option<Tail<'_>>,
) -> bool {
    let total = LEN_COMPACT + len;
    // SAFETY: as in `publish`, the descriptor names the instructions between 71 and 72. Before the
    // copy, the section checks that the event ends before the sub-buffer's trailer; the bytes of
    // the trailer take what is written after the event. The words are stored before a tail, and the
    // tail overwrites what they write after `len`. Reads of the tail stay in it.
    unsafe {
        if let Some(tail) = tail {
            if len <= payload_of(1) {
                tail_section!(lane, id, words, len, tail, []);
            } else if len <= payload_of(2) {
                tail_section!(lane, id, words, len, tail, [b 1 8]);
            } else if len <= Tail::MOST_BEFORE {
                tail_section!(lane, id, words, len, tail, [b 1 8, c 2 16]);
            } else {
                return false;
            }
        } else if W <= 4 && most <= payload_of(1) {
            framed_section!(lane, id, words, total, [], [],);
        } else if W <= 4 && most <= payload_of(2) {
            framed_section!(lane, id, words, total, [b 1 8], [],);
        } else if W <= 4 && most <= payload_of(3) {
            framed_section!(lane, id, words, total, [b 1 8, c 2 16], [],);
        } else if W <= 4 && most <= payload_of(4) {
            framed_section!(lane, id, words, total, [b 1 8, c 2 16, d 3 24], [],);
        } else if W <= 4 {
            framed_section!(lane, id, words, total, [b 1 8, c 2 16, d 3 24, e 4 32], [],);
        } else {
            // The last word is stored first.
            fast_section!(
                lane, total, [],
                [
                    "or edx, {id:e}",
                    "mov [{to}], edx",
                    "76:",
                    "mov rdx, [{words} + 8 * {left} - 8]",
                    "mov [{to} + 8 * {left} - 4], rdx",
                    "dec {left}",
                    "jne 76b",
                ],
                id = in(reg) id,
                words = in(reg) words.as_ptr(),
                left = inout(reg) most.div_ceil(8).max(1) => _,
            );
        }
    }
    true
}

/// Records an event whose payload is in memory, in blocks of 16 bytes. Returns false if the section
/// was aborted, or cannot record this event.
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
    let len = payload.payload().len();
    // SAFETY: the reasons of `record` apply. The section copies at least one block, and at most one
    // that begins before the payload's end. A block has as many bytes as there are zeros after the
    // payload, so the reads stay in the slice of `Padded`. The bytes that are written after the
    // event are in the sub-buffer's trailer at the most. The id is stored before the payload, which
    // overwrites it if the header has no id.
    unsafe {
        fast_section!(
            lane, header + len, [],
            [
                "or edx, {tag:e}",
                "mov [{to}], edx",
                "mov word ptr [{to} + 4], {id:x}",
                "add {to}, {header}",
                "76:",
                "movups {x}, [{from}]",
                "movups [{to}], {x}",
                "add {from}, 16",
                "add {to}, 16",
                "sub {left}, 16",
                "ja 76b",
            ],
            tag = in(reg) tag,
            id = in(reg) id,
            header = in(reg) header,
            from = inout(reg) payload.as_ptr() => _,
            left = inout(reg) len => _,
            x = out(xmm_reg) _,
        );
    }
    true
}

/// Bytes for the mask of a text in its block. The mask begins at an offset of the size of a block
/// less the length of the text.
static KEPT: [[u8; ShortText::BLOCK]; 2] = [[0xff; ShortText::BLOCK], [0; ShortText::BLOCK]];
const _: () =
    assert!(ShortText::BLOCK == 32 && LEN_COMPACT == 4, "the numbers in `record_short_text`");

/// Records an event whose payload is the first `len` bytes of `words`, followed by a short text of
/// C. Returns false in the cases of [`record`].
///
/// The section checks that there is room for the whole block in which the text ends. It stores that
/// block with zeros from the NUL on, and publishes the event up to the NUL, which it finds after it
/// has read the clock. It takes the words by value, and uses few registers, because a function
/// stores the registers that it saves before it reads the clock. With more saved and spilled
/// registers, an event cost 0.9 ns more on Zen. A processor without `tzcnt` executes `bsf`, which
/// gives the same result here.
///
/// # Safety
/// `id` is of a compact header, `len` is at most 16, and the text fulfils the conditions of
/// [`ShortText`].
#[inline(always)]
pub(in crate::reserve) unsafe fn record_short_text(
    lane: &Lane,
    id: u32,
    (first, second): (u64, u64),
    len: usize,
    text: ShortText,
) -> bool {
    // SAFETY: the reasons of `record` apply. The section checks that the block ends before the
    // sub-buffer's trailer. The words are stored before the block, and the block overwrites what
    // they write after `len`.
    unsafe {
        fast_section!(
            lane, LEN_COMPACT + len + ShortText::BLOCK,
            [
                "tzcnt {n:e}, {n:e}",
                "lea {p}, [{p} + {n} - 31]"
            ],
            [
                "or edx, {id:e}",
                "mov [{to}], edx",
                "mov [{to} + 4], {first}",
                "mov [{to} + 12], {second}",
                "add {to}, {len}",
                "lea rdx, [rip + {kept}]",
                "sub rdx, {n}",
                "movups {x}, [{text}]",
                "movups {y}, [{text} + 16]",
                "movups {mask}, [rdx + 32]",
                "andps {x}, {mask}",
                "movups {mask}, [rdx + 48]",
                "andps {y}, {mask}",
                "movups [{to} + 4], {x}",
                "movups [{to} + 20], {y}",
            ],
            id = in(reg) id,
            first = in(reg) first,
            second = in(reg) second,
            len = in(reg) len,
            text = in(reg) text.at,
            n = inout(reg) u64::from(text.zeros.get()) => _,
            kept = sym KEPT,
            mask = out(xmm_reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
        );
    }
    true
}
