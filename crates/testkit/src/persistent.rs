//! Writes the memory of ftrace's persistent ring buffer, as the kernel lays it out (`rb_range_meta_init` in `kernel/trace/ring_buffer.c`).

use std::collections::BTreeMap;

/// Bytes of a sub-buffer.
pub const SIZE: usize = 4096;
/// The magic word.
pub const MAGIC: u32 = 0x0bad_feed;
/// Address of the first byte of the region in the boot that wrote it.
const BASE: u64 = 0xffff_8880_0100_0000;
/// Bytes of the header and the scratch area that all CPUs have in common.
const COMMON: usize = 0x2030;

/// The form of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Linux 6.12: each CPU has a magic word.
    PerCpu,
    /// Linux 6.15 and newer: all CPUs have one header.
    Common,
}

impl Form {
    /// Bytes of a CPU's metadata before the table of the order.
    #[must_use]
    pub fn fixed(self) -> usize {
        if self == Self::PerCpu { 0x38 } else { 0x20 }
    }

    /// Offset in a CPU's metadata of the addresses of the first sub-buffer, of the head and of the commit.
    #[must_use]
    pub fn addresses(self) -> usize {
        if self == Self::PerCpu { 24 } else { 0 }
    }
}

/// The boot that writes.
#[derive(Debug, Clone, Default)]
pub struct Boot {
    /// Address of the symbol that is saved: `rb_meta_init_text_addr`, or `_text`.
    pub text: u64,
    /// Number of the clock.
    pub clock: u32,
    /// Address and name of each module.
    pub modules: Vec<(u64, String)>,
}

/// What a CPU has recorded.
#[derive(Debug, Clone, Default)]
pub struct Cpu {
    /// Numbers of all sub-buffers in memory: the reader's first, then the ring in its order.
    pub order: Vec<usize>,
    /// Number of the sub-buffer with the ring's oldest event.
    pub head: usize,
    /// Number of the sub-buffer with the newest.
    pub commit: usize,
    /// Sub-buffers that hold something, by number.
    pub pages: BTreeMap<usize, Vec<u8>>,
}

/// A region.
#[derive(Debug, Clone, Default)]
pub struct Region {
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// Offset of each CPU's metadata, and of its first sub-buffer.
    pub places: Vec<(usize, usize)>,
}

/// Puts the lowest bytes of a number at an offset, the lowest first.
pub fn put(bytes: &mut [u8], at: usize, value: u64, len: usize) {
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}

/// Writes a region. All CPUs must have as many sub-buffers.
#[must_use]
pub fn region(form: Form, boot: &Boot, cpus: &[Cpu]) -> Region {
    let mut bytes = Vec::new();
    if form == Form::Common {
        bytes.resize(COMMON, 0);
        put(&mut bytes, 0, MAGIC.into(), 4);
        put(&mut bytes, 4, 0x0018_0020, 4);
        put(&mut bytes, 16, COMMON as u64, 8);
        put(&mut bytes, 0x18, boot.clock.into(), 4);
        put(&mut bytes, 0x20, boot.text, 8);
        put(&mut bytes, 0x28, boot.modules.len() as u64, 8);
        for (index, (address, name)) in boot.modules.iter().enumerate() {
            let at = 0x30 + index * 64;
            put(&mut bytes, at, *address, 8);
            bytes[at + 8..at + 8 + name.len()].copy_from_slice(name.as_bytes());
        }
    }
    let mut places = Vec::new();
    for cpu in cpus {
        let (meta, count) = (bytes.len(), cpu.order.len());
        let data = (meta + form.fixed() + 4 * count).next_multiple_of(SIZE);
        bytes.resize(data + count * SIZE, 0);
        for (number, page) in &cpu.pages {
            bytes[data + number * SIZE..][..page.len()].copy_from_slice(page);
        }
        let address = |number: usize| BASE + (data + number * SIZE) as u64;
        if form == Form::PerCpu {
            put(&mut bytes, meta, MAGIC.into(), 4);
            put(&mut bytes, meta + 4, 0x38, 4);
            put(&mut bytes, meta + 8, boot.text, 8);
            put(&mut bytes, meta + 16, boot.text + 0x0120_0000, 8);
        }
        let at = meta + form.addresses();
        put(&mut bytes, at, address(0), 8);
        put(&mut bytes, at + 8, address(cpu.head), 8);
        put(&mut bytes, at + 16, address(cpu.commit), 8);
        put(&mut bytes, at + 24, SIZE as u64, 4);
        put(&mut bytes, at + 28, count as u64, 4);
        for (n, number) in cpu.order.iter().enumerate() {
            put(&mut bytes, at + 32 + 4 * n, *number as u64, 4);
        }
        places.push((meta, data));
    }
    if form == Form::Common {
        let len = bytes.len() as u64;
        put(&mut bytes, 8, len, 8);
    }
    Region { bytes, places }
}
