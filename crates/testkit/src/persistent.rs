//! Writes the memory of ftrace's persistent ring buffer, as the kernel lays it out
//! (`rb_range_meta_init` in `kernel/trace/ring_buffer.c`).

use crate::form::Form;
use crate::layouts::Layout;
use std::collections::BTreeMap;

/// Bytes of a sub-buffer.
pub const SIZE: usize = 4096;
/// The magic word.
pub const MAGIC: u32 = 0x0bad_feed;
/// Address of the first byte of the region in the boot that wrote it, by the bytes of an address.
const BASES: [(usize, u64); 2] = [(8, 0xffff_8880_0100_0000), (4, 0xc100_0000)];
/// Modules for which the scratch area has room.
const ROOM: usize = 128;

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

/// The sub-buffers of a CPU.
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

/// Writes a region of the layout of 64-bit little-endian kernels. All CPUs must have as many
/// sub-buffers.
pub fn region(form: Form, boot: &Boot, cpus: &[Cpu]) -> Region {
    region_of(&Layout::known(form, 8, false), boot, cpus)
}

/// Writes a region of any layout.
///
/// # Panics
/// The layout lacks a structure or a member.
pub fn region_of(layout: &Layout, boot: &Boot, cpus: &[Cpu]) -> Region {
    let mut region = Writer { layout, bytes: Vec::new() };
    let is_common = layout.form == Form::Common;
    let cpu_meta = if is_common { "ring_buffer_cpu_meta" } else { "ring_buffer_meta" };
    let cpu_size = layout.structure(cpu_meta).size;
    let mut sizes = cpu_size as u64;
    if is_common {
        let head = region.structure("ring_buffer_meta");
        sizes |= (layout.structure("ring_buffer_meta").size as u64) << 16;
        region.put(head, "ring_buffer_meta", "magic", MAGIC.into());
        region.put(head, "ring_buffer_meta", "struct_sizes", sizes);
        let scratch = region.structure("trace_scratch");
        if layout.has("trace_scratch", "clock_id") {
            region.put(scratch, "trace_scratch", "clock_id", boot.clock.into());
        }
        region.put(scratch, "trace_scratch", "text_addr", boot.text);
        region.put(scratch, "trace_scratch", "nr_entries", boot.modules.len() as u64);
        let (entries, entry) = layout.member("trace_scratch", "entries");
        let end = region.bytes.len() + ROOM * entry;
        region.bytes.resize(end, 0);
        for (index, (address, name)) in boot.modules.iter().enumerate() {
            let at = scratch + entries + index * entry;
            region.bytes[at..at + entry].fill(layout.fill);
            let text = layout.member("trace_mod_entry", "mod_name").0;
            region.put(at, "trace_mod_entry", "mod_addr", *address);
            region.bytes[at + text..][..=name.len()]
                .copy_from_slice(&[name.as_bytes(), &[0]].concat());
        }
        region.put(head, "ring_buffer_meta", "buffers_offset", end as u64);
    }
    let base = BASES
        .iter()
        .find(|(word, _)| *word == layout.word)
        .map(|(_, base)| *base)
        .expect("4 or 8 bytes");
    let mut places = Vec::new();
    for cpu in cpus {
        let (meta, count) = (region.structure(cpu_meta), cpu.order.len());
        let (table, each) = layout.member(cpu_meta, "buffers");
        let data = (meta + cpu_size + each * count).next_multiple_of(SIZE);
        region.bytes.resize(data + count * SIZE, 0);
        for (number, page) in &cpu.pages {
            region.bytes[data + number * SIZE..][..page.len()].copy_from_slice(page);
        }
        let address = |number: usize| base + (data + number * SIZE) as u64;
        if !is_common {
            region.put(meta, cpu_meta, "magic", MAGIC.into());
            region.put(meta, cpu_meta, "struct_size", sizes);
            region.put(meta, cpu_meta, "text_addr", boot.text);
            region.put(meta, cpu_meta, "data_addr", boot.text + 0x0120_0000);
        }
        region.put(meta, cpu_meta, "first_buffer", address(0));
        region.put(meta, cpu_meta, "head_buffer", address(cpu.head));
        region.put(meta, cpu_meta, "commit_buffer", address(cpu.commit));
        region.put(meta, cpu_meta, "subbuf_size", SIZE as u64);
        region.put(meta, cpu_meta, "nr_subbufs", count as u64);
        for (n, number) in cpu.order.iter().enumerate() {
            region.number(meta + table + each * n, *number as u64, each);
        }
        places.push((meta, data));
    }
    if is_common {
        region.put(0, "ring_buffer_meta", "total_size", region.bytes.len() as u64);
    }
    Region { bytes: region.bytes, places }
}

/// The bytes of a region of a layout.
struct Writer<'a> {
    layout: &'a Layout,
    bytes: Vec<u8>,
}

impl Writer<'_> {
    /// Makes room for a structure at the end; returns its offset.
    fn structure(&mut self, name: &str) -> usize {
        let at = self.bytes.len();
        self.bytes.resize(at + self.layout.structure(name).size, self.layout.fill);
        at
    }

    /// Puts the number of a member of the structure at an offset.
    fn put(&mut self, at: usize, structure: &str, member: &str, value: u64) {
        let (offset, size) = self.layout.member(structure, member);
        self.number(at + offset, value, size);
    }

    fn number(&mut self, at: usize, value: u64, size: usize) {
        if self.layout.is_big {
            self.bytes[at..at + size].copy_from_slice(&value.to_be_bytes()[8 - size..]);
        } else {
            put(&mut self.bytes, at, value, size);
        }
    }
}
