//! Names of system calls by their numbers.
//!
//! The tables are those of Linux 6.17: `__NR_NAME` of asm/unistd_64.h for x86_64, and of
//! asm-generic/unistd.h as aarch64 uses it. They name the calls of 64-bit programs. A 32-bit
//! program that runs on such a machine has other numbers, and nothing in an event of
//! `raw_syscalls` tells the two apart.

use std::collections::HashMap;
use std::sync::OnceLock;

type Table = HashMap<u64, &'static str>;

fn table(text: &'static str) -> Table {
    let call = |line: &'static str| {
        let (number, name) = line.split_once(' ')?;
        Some((number.parse().ok()?, name))
    };
    text.lines().filter_map(call).collect()
}

/// Returns the name of a system call, such as `openat`. `machine` is the one of `uname -m`. Returns
/// none if the machine or the number is not known.
#[must_use]
pub fn name(machine: &str, number: u64) -> Option<&'static str> {
    static X86_64: OnceLock<Table> = OnceLock::new();
    static AARCH64: OnceLock<Table> = OnceLock::new();
    let calls = match machine {
        "x86_64" => X86_64.get_or_init(|| table(include_str!("syscalls/x86_64.txt"))),
        "aarch64" => AARCH64.get_or_init(|| table(include_str!("syscalls/aarch64.txt"))),
        _ => return None,
    };
    calls.get(&number).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_known_have_no_name() {
        assert_eq!([name("x86_64", 61), name("aarch64", 61)], [Some("wait4"), Some("getdents64")]);
        assert_eq!([name("x86_64", 400), name("x86_64", u64::MAX), name("s390x", 1)], [None; 3]);
        // Each line is a call.
        for (machine, text) in [
            ("x86_64", include_str!("syscalls/x86_64.txt")),
            ("aarch64", include_str!("syscalls/aarch64.txt")),
        ] {
            assert_eq!(table(text).len(), text.lines().count(), "{machine}");
        }
    }
}
