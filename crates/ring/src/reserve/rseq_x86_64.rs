//! The section in x86_64 instructions.
//!
//! Layout and rules: include/uapi/linux/rseq.h of Linux 4.18 and later. The descriptor's address is stored to `rseq_cs`,
//! the section begins right behind that store; the abort handler is preceded by the signature, disguised as the operand of
//! an undefined instruction. x86 keeps stores in order, so the last store publishes all that were before it.

use core::arch::asm;

use super::Commit;
use crate::record::Piece;

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

/// The section of [`publish_words`], with these lines to copy the payload behind the header.
macro_rules! words_section {
    ($commit:ident, $to:ident, $header:ident, $words:ident, [$($copy:literal),* $(,)?] $(, $name:ident = $value:expr)?) => {
        asm!(
            descriptor!(),
            "mov qword ptr [{area} + 8], {t}",
            "71:",
            "cmp dword ptr [{area} + 4], {cpu:e}",
            "jne {out}",
            "mov {t:e}, dword ptr [{flip}]",
            "xor {t:e}, dword ptr [{stream_flip}]",
            "xor {t:e}, {half:e}",
            "test {t:e}, 1",
            "jne {out}",
            "cmp qword ptr [{control}], {position}",
            "jne {out}",
            "mov qword ptr [{control} + 8], {end}",
            "mov dword ptr [{to}], {header:e}",
            $($copy,)*
            "mov qword ptr [{control}], {end}",
            "72:",
            abort!("{out}"),
            t = out(reg) _,
            area = in(reg) $commit.area,
            cpu = in(reg) $commit.cpu,
            control = in(reg) core::ptr::from_ref($commit.control),
            position = in(reg) $commit.position,
            flip = in(reg) $commit.flip,
            stream_flip = in(reg) $commit.stream_flip,
            half = in(reg) $commit.half,
            end = in(reg) $commit.end,
            to = in(reg) $to,
            header = in(reg) $header,
            words = in(reg) $words.as_ptr(),
            $($name = inout(reg) $value => _,)?
            out = label { return false },
            options(nostack),
        )
    };
}

/// Stores `header` at `to` and the words behind it, all `W` where `W` is at most 4, else those that `len` bytes need, and
/// publishes.
///
/// # Safety
/// `to` is writable for 4 + `len` bytes rounded up to 8, plus 8; as for [`publish`].
#[inline(always)]
pub(super) unsafe fn publish_words<const W: usize>(
    commit: &Commit<'_>,
    to: *mut u8,
    header: u32,
    words: &[u64; W],
    len: usize,
) -> bool {
    // SAFETY: as in `publish`; the stores go at most 8 * W + 4 bytes behind `to`, and W words are what `len` bytes need.
    unsafe {
        match W {
            0 => words_section!(commit, to, header, words, ["/* {words} */"]),
            1 => words_section!(commit, to, header, words, ["mov {t}, [{words}]", "mov [{to} + 4], {t}"]),
            2 => words_section!(
                commit,
                to,
                header,
                words,
                ["mov {t}, [{words}]", "mov [{to} + 4], {t}", "mov {t}, [{words} + 8]", "mov [{to} + 12], {t}"]
            ),
            3 => words_section!(
                commit,
                to,
                header,
                words,
                [
                    "mov {t}, [{words}]",
                    "mov [{to} + 4], {t}",
                    "mov {t}, [{words} + 8]",
                    "mov [{to} + 12], {t}",
                    "mov {t}, [{words} + 16]",
                    "mov [{to} + 20], {t}",
                ]
            ),
            4 => words_section!(
                commit,
                to,
                header,
                words,
                [
                    "mov {t}, [{words}]",
                    "mov [{to} + 4], {t}",
                    "mov {t}, [{words} + 8]",
                    "mov [{to} + 12], {t}",
                    "mov {t}, [{words} + 16]",
                    "mov [{to} + 20], {t}",
                    "mov {t}, [{words} + 24]",
                    "mov [{to} + 28], {t}",
                ]
            ),
            _ => {
                // Counts down; the last word is copied first.
                let mut left = len.div_ceil(8).min(W);
                if left == 0 {
                    left = 1;
                }
                words_section!(
                    commit,
                    to,
                    header,
                    words,
                    [
                        "76:",
                        "mov {t}, [{words} + 8 * {left} - 8]",
                        "mov [{to} + 8 * {left} - 4], {t}",
                        "dec {left}",
                        "jne 76b",
                    ],
                    left = left
                );
            }
        }
    }
    true
}
