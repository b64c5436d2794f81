//! Names of unsupported dumps: formats of other tools, and other machines.

/// First bytes of files of other formats. LKCD and s390 store a number in the machine's byte order.
const FORMATS: [(&[u8], &str); 8] = [
    (&0xa819_0173_618f_23ed_u64.to_le_bytes(), "an LKCD dump"),
    (&0xa819_0173_618f_23ed_u64.to_be_bytes(), "an LKCD dump of a big-endian machine"),
    (&0xa819_0173_618f_23fd_u64.to_be_bytes(), "an s390 dump of a stand-alone tool"),
    (b"sadump\0\0", "a sadump file"),
    (b"DISKDUMP", "a diskdump file"),
    (b"PAGEDU64", "a crash dump of Windows"),
    (b"PAGEDUMP", "a crash dump of Windows"),
    (&[0xd2, 0xbe, 0xd2, 0xbe], "the memory state of a VMware guest"),
];

/// Names of machines by `e_machine`, as `uname -m` prints them (include/uapi/linux/elf-em.h).
const MACHINES: [(u16, &str); 12] = [
    (2, "sparc"),
    (3, "i386"),
    (8, "mips"),
    (15, "parisc"),
    (20, "ppc"),
    (21, "ppc64"),
    (22, "s390x"),
    (40, "arm"),
    (43, "sparc64"),
    (50, "ia64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

/// Name of another format, recognized by a file's first bytes.
pub(super) fn format(head: &[u8]) -> Option<&'static str> {
    FORMATS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
}

/// The first eight bytes as a number, for an error.
pub(super) fn word(head: &[u8]) -> u64 {
    head.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// More names that `uname -m` prints, for machines with the numbers in [`MACHINES`].
const NAMES: [&str; 6] = ["armv6l", "armv7l", "i686", "mips64", "ppc64le", "s390"];

/// Name of an unsupported machine by `e_machine`; none for a supported one.
pub(super) fn machine(number: u16) -> Option<String> {
    if super::Machine::of_elf(number).is_some() {
        return None;
    }
    let known = MACHINES.iter().find(|(other, _)| *other == number);
    Some(known.map_or_else(|| format!("machine {number} of ELF"), |(_, name)| (*name).to_owned()))
}

/// True if `uname -m` prints this name on an unsupported machine. Other names tell nothing: QEMU writes `Unknown`, and
/// a name may be damaged.
pub(super) fn is_machine(name: &str) -> bool {
    MACHINES.iter().any(|(_, known)| *known == name) || NAMES.contains(&name)
}
