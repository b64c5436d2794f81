//! The section in x86_64 instructions.
//!
//! Layout and rules: include/uapi/linux/rseq.h of Linux 4.18 and later. The descriptor's address is stored to `rseq_cs`,
//! the section begins right behind that store; the abort handler is preceded by the signature, disguised as the operand of
//! an undefined instruction. x86 keeps stores in order, so the last store publishes all that were before it.

use core::arch::asm;

use super::Commit;
use crate::record::Piece;
use crate::reserve::quick::Check;

/// The descriptor of the section from 71 to 72 with its abort handler at 74, and the store that arms it; `{t}` is free.
macro_rules! descriptor {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "77: .long 0, 0\n",
            ".quad 71f, 72f - 71f, 74f\n",
            ".popsection\n",
            "lea {t}, [rip + 77b]\n",
        )
    };
}

/// The abort handler, out of line; it goes on at `$to`.
macro_rules! abort {
    ($to:literal) => {
        concat!(
            ".pushsection .text.rseq_abort, \"ax\", @progbits\n",
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
/// Every destination is writable, and written by nobody else while `commit`'s position stands on this CPU.
pub(super) unsafe fn publish(commit: &Commit<'_>, pieces: &[Piece]) -> bool {
    let done: u64;
    // SAFETY: the descriptor names exactly the instructions between 71 and 72; what they write before the commit is
    // unpublished memory that the caller vouches for; both exits leave the section. `commit` is read by the offsets
    // that its shape asserts.
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

/// The section of an event at hand: `$copy` puts the payload behind the header.
macro_rules! quick_section {
    ($check:ident, [$($copy:literal),* $(,)?], $($name:ident = $value:expr),*) => {
        asm!(
            descriptor!(),
            "mov qword ptr fs:[{offset} + 8], {t}",
            "71:",
            "cmp dword ptr fs:[{offset} + 4], {cpu:e}",
            "jne {out}",
            "mov {t:e}, dword ptr [{flip}]",
            "xor {t:e}, dword ptr [{stream_flip}]",
            "xor {t:e}, {half:e}",
            "test {t:e}, 1",
            "jne {out}",
            "cmp qword ptr [{control}], {position}",
            "jne {out}",
            "mov qword ptr [{control} + 8], {end}",
            $($copy,)*
            "mov qword ptr [{control}], {end}",
            "72:",
            abort!("{out}"),
            t = out(reg) _,
            offset = in(reg) $check.offset,
            cpu = in(reg) $check.cpu,
            control = in(reg) core::ptr::from_ref($check.control),
            position = in(reg) $check.position,
            flip = in(reg) $check.flip,
            stream_flip = in(reg) $check.stream_flip,
            half = in(reg) $check.half,
            end = in(reg) $check.end,
            to = in(reg) $check.to,
            $($name = in(reg) $value,)*
            out = label { return false },
            options(nostack),
        )
    };
}

/// Stores the header and the words behind it, all `W` where `W` is at most 4, else those that `len` bytes need, and
/// publishes.
///
/// # Safety
/// `to` is writable for 4 + `len` bytes rounded up to 8, plus 8; as for [`publish`].
#[inline(always)]
pub(in crate::reserve) unsafe fn publish_words<const W: usize>(
    check: &Check<'_>,
    words: &[u64; W],
    len: usize,
) -> bool {
    let header = check.header;
    // SAFETY: as in `publish`; the stores go at most 8 * W + 8 bytes behind `to`, and W words are what `len` bytes need.
    unsafe {
        match W {
            0 => quick_section!(check, ["mov dword ptr [{to}], {header:e}"], header = header),
            1 => {
                let a = u64::from(header) | (words[0] << 32);
                let b = words[0] >> 32;
                quick_section!(check, ["mov [{to}], {a}", "mov [{to} + 8], {b}"], a = a, b = b);
            }
            2 if len <= 12 => {
                let a = u64::from(header) | (words[0] << 32);
                let b = (words[0] >> 32) | (words[1] << 32);
                quick_section!(check, ["mov [{to}], {a}", "mov [{to} + 8], {b}"], a = a, b = b);
            }
            2 => {
                let a = u64::from(header) | (words[0] << 32);
                let b = (words[0] >> 32) | (words[1] << 32);
                let c = words[1] >> 32;
                quick_section!(
                    check,
                    ["mov [{to}], {a}", "mov [{to} + 8], {b}", "mov [{to} + 16], {c:e}"],
                    a = a,
                    b = b,
                    c = c
                );
            }
            3 => quick_section!(
                check,
                [
                    "mov dword ptr [{to}], {header:e}",
                    "mov {t}, [{words}]",
                    "mov [{to} + 4], {t}",
                    "mov {t}, [{words} + 8]",
                    "mov [{to} + 12], {t}",
                    "mov {t}, [{words} + 16]",
                    "mov [{to} + 20], {t}",
                ],
                header = header,
                words = words.as_ptr()
            ),
            4 => quick_section!(
                check,
                [
                    "mov dword ptr [{to}], {header:e}",
                    "mov {t}, [{words}]",
                    "mov [{to} + 4], {t}",
                    "mov {t}, [{words} + 8]",
                    "mov [{to} + 12], {t}",
                    "mov {t}, [{words} + 16]",
                    "mov [{to} + 20], {t}",
                    "mov {t}, [{words} + 24]",
                    "mov [{to} + 28], {t}",
                ],
                header = header,
                words = words.as_ptr()
            ),
            _ => return publish_many(check, words, len),
        }
    }
    true
}

/// [`publish_words`] with a loop; the last word is copied first.
///
/// # Safety
/// As for [`publish_words`].
#[inline(always)]
unsafe fn publish_many(check: &Check<'_>, words: &[u64], len: usize) -> bool {
    let left = len.div_ceil(8).clamp(1, words.len());
    let seen = check.seen();
    // SAFETY: as in `publish_words`. `left` is not kept: it is a copy in `t` that counts down.
    unsafe {
        asm!(
            descriptor!(),
            "mov qword ptr fs:[{offset} + 8], {t}",
            "71:",
            "cmp dword ptr fs:[{offset} + 4], {cpu:e}",
            "jne {out}",
            "mov {t}, qword ptr [{check} + 8]",
            "mov {t:e}, dword ptr [{t}]",
            "xor {t:e}, dword ptr [{stream_flip}]",
            "xor {t:e}, dword ptr [{check}]",
            "test {t:e}, 1",
            "jne {out}",
            "mov {t}, qword ptr [{check} + 16]",
            "cmp qword ptr [{control}], {t}",
            "jne {out}",
            "mov qword ptr [{control} + 8], {end}",
            "mov dword ptr [{to}], {header:e}",
            "76:",
            "mov {t}, [{words} + 8 * {left} - 8]",
            "mov [{to} + 8 * {left} - 4], {t}",
            "dec {left}",
            "jne 76b",
            "mov qword ptr [{control}], {end}",
            "72:",
            abort!("{out}"),
            t = out(reg) _,
            check = in(reg) seen.as_ptr(),
            offset = in(reg) check.offset,
            cpu = in(reg) check.cpu,
            control = in(reg) core::ptr::from_ref(check.control),
            stream_flip = in(reg) check.stream_flip,
            end = in(reg) check.end,
            to = in(reg) check.to,
            header = in(reg) check.header,
            words = in(reg) words.as_ptr(),
            left = inout(reg) left => _,
            out = label { return false },
            options(nostack),
        );
    }
    true
}

/// The section of [`publish_text`], with these lines for the header and the head.
macro_rules! text_section {
    ($check:ident, $seen:ident, $text:ident, [$($copy:literal),* $(,)?], $($name:ident = $value:expr),*) => {
        asm!(
            descriptor!(),
            "mov qword ptr fs:[{offset} + 8], {t}",
            "71:",
            "cmp dword ptr fs:[{offset} + 4], {cpu:e}",
            "jne {out}",
            "mov {t}, qword ptr [{check} + 8]",
            "mov {t:e}, dword ptr [{t}]",
            "xor {t:e}, dword ptr [{stream_flip}]",
            "xor {t:e}, dword ptr [{check}]",
            "test {t:e}, 1",
            "jne {out}",
            "mov {t}, qword ptr [{check} + 16]",
            "cmp qword ptr [{control}], {t}",
            "jne {out}",
            "mov qword ptr [{control} + 8], {end}",
            $($copy,)*
            "76:",
            "mov {t}, [{from} + {i}]",
            "mov [{last} + {i}], {t}",
            "add {i}, 8",
            "cmp {i}, -8",
            "jl 76b",
            "mov {t}, [{from} - 8]",
            "mov [{last} - 8], {t}",
            "mov byte ptr [{last}], 0",
            "mov qword ptr [{control}], {end}",
            "72:",
            abort!("{out}"),
            t = out(reg) _,
            check = in(reg) $seen.as_ptr(),
            offset = in(reg) $check.offset,
            cpu = in(reg) $check.cpu,
            control = in(reg) core::ptr::from_ref($check.control),
            stream_flip = in(reg) $check.stream_flip,
            end = in(reg) $check.end,
            from = in(reg) $text.as_ptr_range().end,
            last = in(reg) $check.to.wrapping_add(($check.end - $check.position) as usize - 1),
            i = inout(reg) ($text.len() as isize).wrapping_neg() => _,
            $($name = in(reg) $value,)*
            out = label { return false },
            options(nostack),
        )
    };
}

/// Stores the header, the words of the head, then `text` up to its end and a NUL, and publishes.
///
/// # Safety
/// `to` is writable up to the end of the event; `text` has at least 8 bytes, and ends where the event ends but for the NUL;
/// as for [`publish`].
#[inline(always)]
pub(in crate::reserve) unsafe fn publish_text<const W: usize>(check: &Check<'_>, head: &[u64; W], text: &[u8]) -> bool {
    let header = check.header;
    let seen = check.seen();
    // SAFETY: as in `publish`; head words are stored within 4 + 8 * W bytes, which the event covers since the text behind
    // them is at least a word long, and before the text is; reads of the text stay in it.
    unsafe {
        match W {
            0 => text_section!(check, seen, text, ["mov dword ptr [{to}], {header:e}"], to = check.to, header = header),
            1 => text_section!(
                check,
                seen,
                text,
                ["mov dword ptr [{to}], {header:e}", "mov [{to} + 4], {a}"],
                to = check.to,
                header = header,
                a = head[0]
            ),
            2 => {
                let (a, b) = (u64::from(header) | (head[0] << 32), (head[0] >> 32) | (head[1] << 32));
                let c = (head[1] >> 32) as u32;
                let words = [a, b, u64::from(c)];
                text_section!(
                    check,
                    seen,
                    text,
                    [
                        "mov {t}, [{words}]",
                        "mov [{to}], {t}",
                        "mov {t}, [{words} + 8]",
                        "mov [{to} + 8], {t}",
                        "mov {t:e}, [{words} + 16]",
                        "mov [{to} + 16], {t:e}",
                    ],
                    to = check.to,
                    words = words.as_ptr()
                );
            }
            _ => return false,
        }
    }
    true
}
