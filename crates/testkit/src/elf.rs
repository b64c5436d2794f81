//! Writes ELF64 core files (System V gABI, chapters 4 and 5), and zstd frames without compression
//! (RFC 8878).

use crate::put::Order;

/// A segment of memory.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Virtual address.
    pub address: u64,
    /// Bytes stored in the file.
    pub bytes: Vec<u8>,
    /// Length in memory; bytes that the file lacks are missing from the core.
    pub memory: u64,
}

impl Segment {
    /// A segment that is stored completely in the file.
    pub fn new(address: u64, bytes: &[u8]) -> Self {
        Self { address, bytes: bytes.to_vec(), memory: bytes.len() as u64 }
    }
}

const EHDR: usize = 64;
const PHDR: usize = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

/// Writes a core file of these segments, with one note of an unknown kind.
pub fn core(order: Order, segments: &[Segment]) -> Vec<u8> {
    let o = order;
    let mut f = vec![0u8; EHDR];
    f[..4].copy_from_slice(b"\x7fELF");
    f[4] = 2;
    f[5] = if o == Order::Little { 1 } else { 2 };
    f[6] = 1;
    o.put16(&mut f, 16, 4);
    o.put16(&mut f, 18, if o == Order::Little { 62 } else { 21 });
    o.put32(&mut f, 20, 1);
    o.put64(&mut f, 32, EHDR as u64);
    o.put16(&mut f, 52, 64);
    o.put16(&mut f, 54, 56);
    o.put16(&mut f, 56, u16::try_from(segments.len() + 1).unwrap_or(u16::MAX));
    let note = unknown_note(o);
    let note_at = EHDR + PHDR * (segments.len() + 1);
    f.extend(program_header(o, PT_NOTE, note_at as u64, 0, note.len() as u64, 0));
    let mut at = (note_at + note.len()).next_multiple_of(4096);
    let mut places = Vec::new();
    for s in segments {
        f.extend(program_header(o, PT_LOAD, at as u64, s.address, s.bytes.len() as u64, s.memory));
        places.push(at);
        at += s.bytes.len().next_multiple_of(4096);
    }
    f.extend(note);
    for (s, at) in segments.iter().zip(places) {
        f.resize(at, 0);
        f.extend(&s.bytes);
    }
    f
}

fn program_header(
    o: Order,
    kind: u32,
    offset: u64,
    address: u64,
    file: u64,
    memory: u64,
) -> [u8; PHDR] {
    let mut p = [0u8; PHDR];
    o.put32(&mut p, 0, kind);
    o.put32(&mut p, 4, 6);
    o.put64(&mut p, 8, offset);
    o.put64(&mut p, 16, address);
    o.put64(&mut p, 32, file);
    o.put64(&mut p, 40, memory);
    o.put64(&mut p, 48, 1);
    p
}

fn unknown_note(o: Order) -> Vec<u8> {
    let mut n = Vec::new();
    n.extend(o.u32(8));
    n.extend(o.u32(4));
    n.extend(o.u32(0x7777));
    n.extend(b"TESTKIT\0");
    n.extend(o.u32(42));
    n
}

/// Returns a note of a little-endian ELF file.
pub fn note(name: &str, kind: u32, body: &[u8]) -> Vec<u8> {
    let sizes = [name.len() as u32 + 1, body.len() as u32, kind];
    let mut bytes: Vec<u8> = sizes.iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Writes a zstd frame of raw blocks, and of run-length blocks where all bytes are equal.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 64 * 1024;
    let mut f = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    f.extend((bytes.len() as u64).to_le_bytes());
    let blocks = bytes.len().div_ceil(BLOCK).max(1);
    for n in 0..blocks {
        let block = &bytes[n * BLOCK..bytes.len().min((n + 1) * BLOCK)];
        let same = block.first().is_some_and(|b| block.iter().all(|c| c == b));
        let last = u32::from(n + 1 == blocks);
        let kind = if same { 1u32 } else { 0 };
        let header = last | kind << 1 | u32::try_from(block.len()).unwrap_or(0) << 3;
        f.extend(&header.to_le_bytes()[..3]);
        f.extend(if same { &block[..1] } else { block });
    }
    f
}
