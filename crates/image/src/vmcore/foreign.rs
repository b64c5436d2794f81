//! Names of unsupported dumps: formats of other tools, and other machines.

/// A format of other tools.
pub(super) struct Format {
    /// First bytes of its files.
    magic: &'static [u8],
    /// Name, with its article.
    pub(super) name: &'static str,
    /// How its user gets a file that can be read.
    pub(super) advice: &'static str,
}

/// Advice for dumps that the same tools can write in another form.
const OTHER_FORM: &str = "write the dump as ELF or by makedumpfile";
/// Advice for the state of a guest, which has its memory in an order that QEMU alone knows.
const DUMP_GUEST: &str = "it has a guest's devices and pages as QEMU loads them, so load it, and dump the guest's memory: \
                          `virsh dump --memory-only DOMAIN FILE`, or `dump-guest-memory FILE` in QEMU's monitor";
/// Advice for images that `virsh save` wrote.
const RESTORE: &str = "restore the guest paused, and dump its memory: `virsh restore FILE --paused`, `virsh dump --memory-only DOMAIN DUMP`";
/// Advice for the state of a VMware guest.
const VMEM: &str = "the memory is in the .vmem file beside it: `vmss2core -N6 STATE VMEM` makes a core of both, or --raw reads the .vmem file";

const fn format(magic: &'static [u8], name: &'static str, advice: &'static str) -> Format {
    Format { magic, name, advice }
}

/// Formats by the first bytes of their files. LKCD and s390 store a number in the machine's byte
/// order. Sources: QEMU `migration/qemu-file.h` (`QEMU_VM_FILE_MAGIC`), libvirt
/// `src/qemu/qemu_saveimage.h`, Volatility `vmware.py` (the magic words of .vmss and .vmsn
/// files), VirtualBox `SSM.cpp`, Xen `tools/xl/xl.h`.
const FORMATS: [Format; 18] = [
    format(&0xa819_0173_618f_23ed_u64.to_le_bytes(), "an LKCD dump", OTHER_FORM),
    format(
        &0xa819_0173_618f_23ed_u64.to_be_bytes(),
        "an LKCD dump of a big-endian machine",
        OTHER_FORM,
    ),
    format(
        &0xa819_0173_618f_23fd_u64.to_be_bytes(),
        "an s390 dump of a stand-alone tool",
        OTHER_FORM,
    ),
    format(b"sadump\0\0", "a sadump file", OTHER_FORM),
    format(b"DISKDUMP", "a diskdump file", OTHER_FORM),
    format(b"PAGEDU64", "a crash dump of Windows", OTHER_FORM),
    format(b"PAGEDUMP", "a crash dump of Windows", OTHER_FORM),
    format(
        b"QEVM",
        "a migration stream of QEMU (`migrate`, `virsh dump` without --memory-only)",
        DUMP_GUEST,
    ),
    format(b"LibvirtQemudSave", "a guest that libvirt saved (`virsh save`)", RESTORE),
    format(
        b"LibvirtQemudPart",
        "a guest that libvirt did not save to its end (`virsh save`)",
        RESTORE,
    ),
    format(
        b"\x7fVirtualBox SavedState",
        "a saved state of VirtualBox",
        "start it, and write `VBoxManage debugvm VM dumpvmcore --filename FILE`",
    ),
    format(
        b"Xen saved domain",
        "a domain that Xen saved (`xl save`)",
        "restore it paused, and write `xl dump-core DOMAIN FILE`",
    ),
    format(&0xbed0_bed0_u32.to_le_bytes(), "the memory state of a VMware guest", VMEM),
    format(&0xbed1_bed1_u32.to_le_bytes(), "the memory state of a VMware guest", VMEM),
    format(&0xbed2_bed0_u32.to_le_bytes(), "the memory state of a VMware guest", VMEM),
    format(&0xbed2_bed2_u32.to_le_bytes(), "the memory state of a VMware guest", VMEM),
    format(&0xbed3_bed3_u32.to_le_bytes(), "the memory state of a VMware guest", VMEM),
    format(&0xbad1_bad1_u32.to_le_bytes(), "the memory state of a VMware guest", VMEM),
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

/// Another format, recognized by a file's first bytes.
pub(super) fn of_head(head: &[u8]) -> Option<&'static Format> {
    FORMATS.iter().find(|format| head.starts_with(format.magic))
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

/// True if `uname -m` prints this name on an unsupported machine. Other names tell nothing: QEMU
/// writes `Unknown`, and a name may be damaged.
pub(super) fn is_machine(name: &str) -> bool {
    MACHINES.iter().any(|(_, known)| *known == name) || NAMES.contains(&name)
}
