//! Makes inputs whose sizes, counts, repetitions, overlaps and nesting are crafted to cost as much
//! as they can.

use std::path::Path;

use lastwords_testkit::elf::note;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;

/// Most bytes of an input, about.
const LARGEST: usize = 4 << 20;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Magic, times and sizes of a packet of LTTng's kernel tracer begin so.
const PACKET: u32 = 0xc1fc_1fc1;
/// A kernel's VMCOREINFO, without the addresses that vary.
const INFO: &str = "OSRELEASE=6.12.0\nPAGESIZE=4096\nSYMBOL(init_uts_ns)=ffffffff81007ff8\nOFFSET(uts_namespace.name)=8\n\
    SYMBOL(swapper_pg_dir)=ffffffff81001000\nNUMBER(phys_base)=-14680064\nNUMBER(pgtable_l5_enabled)=0\n";

/// A generator of numbers (xorshift64*), the same for the same seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n.max(1)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A size or a place that is wrong in a way that costs: for something of `len` bytes.
    fn size(&mut self, len: u64) -> u64 {
        let wrong = [
            0,
            1,
            len,
            len / 2,
            len.saturating_sub(1),
            len + 1,
            4096,
            1 << 20,
            1 << 30,
            1 << 40,
            1 << 62,
            u64::MAX,
        ];
        self.pick(&wrong)
    }

    /// How often something is repeated.
    fn count(&mut self) -> usize {
        let most = self.pick(&[1, 2, 16, 512, 8192]);
        1 + self.below(most)
    }
}

/// Pieces of sound inputs, from which crafted ones are put together.
pub(crate) struct Parts {
    session: Vec<u8>,
    lttng: Vec<Vec<u8>>,
}

impl Parts {
    pub(crate) fn new() -> Self {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/lttng");
        let mut paths: Vec<_> = std::fs::read_dir(corpus)
            .expect("a corpus")
            .map(|entry| entry.expect("one").path())
            .collect();
        paths.sort();
        let lttng = paths.iter().map(|path| std::fs::read(path).expect("an input")).collect();
        Self { session: samples::small(Order::Little).image().arena(), lttng }
    }

    /// Memory of `pages` pages at `base`, of one kind or of several.
    pub(crate) fn memory(&self, rng: &mut Rng, pages: usize, base: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < pages * PAGE {
            let kind = rng.below(12);
            let times = rng.count();
            for _ in 0..times {
                if bytes.len() >= pages * PAGE {
                    break;
                }
                self.piece(rng, kind, pages, base, &mut bytes);
            }
        }
        bytes.truncate(pages * PAGE);
        bytes
    }

    fn piece(&self, rng: &mut Rng, kind: usize, pages: usize, base: u64, bytes: &mut Vec<u8>) {
        let from = bytes.len();
        let page = |rng: &mut Rng| base + (rng.below(pages) * PAGE) as u64;
        match kind {
            0 => bytes.resize(from + PAGE, 0),
            1 => bytes.resize(from + PAGE, rng.pick(&[0x20, 0x41, 0xaa, 0xff])),
            2 => {
                bytes.extend(&self.session);
                for _ in 0..rng.below(4) {
                    let at = from + rng.below(self.session.len() / 8) * 8;
                    let value = rng.size(self.session.len() as u64);
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
            3 => {
                // Headers of regions alone.
                bytes.extend(&self.session[..PAGE.min(self.session.len())]);
            }
            4 => {
                bytes.resize(from + rng.pick(&[0, 24]), 0);
                bytes.extend(INFO.as_bytes());
                let lines = rng.pick(&[0, 100]);
                (0..lines).for_each(|n| {
                    bytes.extend(format!("SYMBOL(s{n})=ffffffff81{n:06x}\n").as_bytes())
                });
            }
            5 => packet(rng, bytes),
            6 | 7 => {
                let part = rng.below(self.lttng.len());
                bytes.extend(&self.lttng[part]);
                let at = from + rng.below(16) * 8;
                let value = rng.size(self.lttng[part].len() as u64);
                if at + 8 <= bytes.len() && rng.below(2) == 0 {
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
            8 => {
                let begin = rng.pick(&[
                    "/* CTF 1.8 */",
                    "\u{1e}{\"type\":\"preamble\"",
                    "typealias integer { size = 8; align = 8; signed = false; } := uint8_t;",
                ]);
                let filler = "x".repeat(rng.pick(&[0, 1, 4096]));
                bytes.extend(format!("{begin}{filler}").as_bytes());
                // In the middle of a page, or of a text without an end.
                return;
            }
            9 => {
                // Page tables whose entries name pages of this memory, all of them the same or each
                // another.
                let same = (rng.below(2) == 0).then(|| page(rng));
                let flags = rng.pick(&[0x67, 0x63, 0x743, 0x3, 0x83]);
                for _ in 0..PAGE / 8 {
                    let entry = same.unwrap_or_else(|| page(rng)) | flags;
                    bytes.extend(entry.to_le_bytes());
                }
            }
            10 => {
                // Tables of the kernel's tracer: address and frame of a page.
                let map = 0xffff_8880_0000_0000u64;
                let first = page(rng);
                for n in 0..PAGE as u64 / 16 {
                    let at = if rng.below(50) == 0 { page(rng) } else { first + n * PAGE as u64 };
                    bytes.extend((map + at).to_le_bytes());
                    bytes.extend((at >> 12).to_le_bytes());
                }
            }
            _ => {
                // Sub-buffers of ftrace: a time stamp, bytes committed, events of no length.
                bytes.extend(1_000_000_000u64.to_le_bytes());
                bytes.extend(rng.size(4080).to_le_bytes());
                let word: u32 = rng.pick(&[0x20, 0, 0x1f, 0xffff_ffff, 4]);
                (0..(PAGE - 16) / 4).for_each(|_| bytes.extend(word.to_le_bytes()));
            }
        }
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
    }
}

/// A packet's header with crafted sizes, as LTTng's kernel tracer has it.
fn packet(rng: &mut Rng, bytes: &mut Vec<u8>) {
    bytes.extend(PACKET.to_le_bytes());
    bytes.extend([rng.pick(&[1u8, 2, 3]); 16]);
    bytes.extend((rng.below(3) as u32).to_le_bytes());
    bytes.extend((rng.below(3) as u64).to_le_bytes());
    let size = rng.pick(&[8 * 4096, 8 << 20, 8 << 30, u64::MAX]);
    let numbers =
        [rng.below(1000) as u64, rng.pick(&[0, 2000]), size, size, rng.below(1000) as u64, 0];
    numbers.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    bytes.extend((rng.below(3) as u32).to_le_bytes());
}

/// Notes of a core or a dump: some repeated, some with counts that are wrong.
fn notes(rng: &mut Rng, is_core: bool) -> Vec<u8> {
    let mut bytes =
        if is_core { note("CORE", 3, &[0; 136]) } else { note("VMCOREINFO", 0, INFO.as_bytes()) };
    for _ in 0..rng.count() {
        let count = rng.size(100).to_le_bytes();
        let one = match rng.below(4) {
            0 => note("CORE", 1, &[0; 336]),
            1 => note("CORE", 0x4649_4c45, &[count, 4096u64.to_le_bytes()].concat()),
            2 => note("VMCOREINFO", 0, "A=B\n".repeat(rng.count()).as_bytes()),
            _ => note("", 0, &[]),
        };
        bytes.extend(one);
        if bytes.len() > LARGEST {
            break;
        }
    }
    bytes
}

/// An ELF core of a process, or a vmcore: loads that share, overlap and nest.
pub(crate) fn elf(rng: &mut Rng, parts: &Parts, is_core: bool) -> Vec<u8> {
    let count = rng.count();
    let notes = notes(rng, is_core);
    let notes_count = rng.pick(&[1, 1, 200]);
    let total = count + notes_count;
    let base = 1 << 20;
    let pages = rng.pick(&[4, 64, 512]);
    let memory = parts.memory(rng, pages, base);
    let notes_at = 64 + 56 * total;
    let data_at = (notes_at + notes.len()).next_multiple_of(PAGE);
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    file.resize(16, 0);
    [4u16, 62].iter().for_each(|n| file.extend(n.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    [64u64, 0].iter().for_each(|n| file.extend(n.to_le_bytes()));
    file.extend([0; 4]);
    [64u16, 56, total as u16, 64, 0, 0].iter().for_each(|n| file.extend(n.to_le_bytes()));
    file.resize(64, 0);
    let mut header = |kind: u32, numbers: [u64; 6]| {
        file.extend(kind.to_le_bytes());
        file.extend(6u32.to_le_bytes());
        numbers.iter().for_each(|n| file.extend(n.to_le_bytes()));
    };
    for _ in 0..notes_count {
        header(4, [notes_at as u64, 0, 0, notes.len() as u64, 0, 1]);
    }
    let (spread, len) = (rng.pick(&[0, 4096, 1 << 20, 1 << 32, 1 << 46]), memory.len() as u64);
    let shared = rng.below(3) > 0;
    for n in 0..count as u64 {
        let within = if shared { 0 } else { (rng.below(pages) * PAGE) as u64 };
        let held = if rng.below(20) == 0 { rng.size(len) } else { len - within };
        let more = if rng.below(20) == 0 { rng.size(len) } else { 0 };
        let at = base + n.wrapping_mul(spread);
        header(
            1,
            [data_at as u64 + within, at, if is_core { 0 } else { at }, held, held.max(more), 1],
        );
    }
    file.extend(&notes);
    file.resize(data_at, 0);
    file.extend(memory);
    file
}

/// A kdump-compressed file whose pages all have the same few bytes.
pub(crate) fn kdump(rng: &mut Rng, parts: &Parts) -> Vec<u8> {
    let block = rng.pick(&[512usize, 4096, 1 << 16, 1 << 20]);
    let max = rng.pick(&[8usize, 1000, 1 << 16, 1 << 20]);
    let bitmap = max.div_ceil(8).next_multiple_of(block);
    let mut file = b"KDUMP   ".to_vec();
    file.extend(6u32.to_le_bytes());
    file.resize(12 + 4 * 65, 0);
    file.extend(b"x86_64\0");
    file.resize(424, 0);
    let numbers = [0, block, 1, 2 * bitmap / block, max, 0, 0, 0, 0, 1];
    numbers.iter().for_each(|n| file.extend((*n as u32).to_le_bytes()));
    file.resize(block, 0);
    let mut sub = vec![0; 1024.max(block)];
    let mut put = |at: usize, value: u64| sub[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let far = rng.size(block as u64);
    put(32, block as u64 + 104);
    put(40, if rng.below(3) == 0 { far } else { INFO.len() as u64 });
    put(48, far);
    put(56, rng.size(4096));
    put(96, if rng.below(4) == 0 { rng.size(max as u64) } else { max as u64 });
    sub.resize(block, 0);
    if 104 + INFO.len() <= sub.len() {
        sub[104..104 + INFO.len()].copy_from_slice(INFO.as_bytes());
    }
    file.extend(sub);
    let fill = rng.pick(&[0xffu8, 0x55]);
    file.resize(file.len() + 2 * bitmap, fill);
    let described = rng.pick(&[1usize, 100, 20_000]).min(max);
    let data_at = file.len() + 24 * described;
    let pages: Vec<Vec<u8>> = (0..1 + rng.below(8))
        .map(|_| parts.memory(rng, block.div_ceil(PAGE), 0)[..block].to_vec())
        .collect();
    for n in 0..described {
        let at = data_at + n % pages.len() * block;
        let size = if rng.below(1000) == 0 { rng.size(block as u64) as u32 } else { block as u32 };
        file.extend((at as u64).to_le_bytes());
        file.extend(size.to_le_bytes());
        file.extend(rng.pick(&[0u32, 0, 0, 0, 1, 2, 4, 0x20]).to_le_bytes());
        file.extend([0; 8]);
    }
    pages.iter().for_each(|page| file.extend(page));
    file
}

/// makedumpfile's flattened stream of a file: records that repeat, overlap and leave gaps.
pub(crate) fn flattened(rng: &mut Rng, inner: &[u8]) -> Vec<u8> {
    let mut file = b"makedumpfile\0\0\0\0".to_vec();
    [1u64, 1].iter().for_each(|n| file.extend(n.to_be_bytes()));
    file.resize(4096, 0);
    let mut record = |offset: u64, data: &[u8]| {
        file.extend(offset.to_be_bytes());
        file.extend((data.len() as u64).to_be_bytes());
        file.extend(data);
    };
    for _ in 0..rng.count() {
        record(rng.size(inner.len() as u64) >> 2, &[0xee; 3]);
    }
    let step = rng.pick(&[64, 4096, 1 << 20]);
    inner.chunks(step).enumerate().for_each(|(n, part)| record((n * step) as u64, part));
    if rng.below(2) == 0 {
        file.extend([0xff; 16]);
    }
    file
}

/// LiME or AVML ranges: many of a byte, chunks that are passed over, copies of one byte.
pub(crate) fn lime(rng: &mut Rng, parts: &Parts) -> Vec<u8> {
    let mut file = Vec::new();
    let is_avml = rng.below(2) == 0;
    for n in 0..rng.count() as u64 {
        if file.len() > LARGEST {
            break;
        }
        let pages = rng.pick(&[0, 1, 16]);
        let bytes = parts.memory(rng, pages, 0);
        let (start, len) = (
            rng.pick(&[0, n << 12, n << 32]),
            if rng.below(20) == 0 { rng.size(4096) } else { bytes.len() as u64 },
        );
        file.extend(if is_avml { b"AVML\x02\0\0\0" } else { b"EMiL\x01\0\0\0" });
        [start, start.wrapping_add(len).wrapping_sub(1), 0]
            .iter()
            .for_each(|n| file.extend(n.to_le_bytes()));
        if !is_avml {
            file.extend(&bytes);
            continue;
        }
        let from = file.len();
        file.extend([0xfe, 0, 0, 0].repeat(rng.count()));
        for part in bytes.chunks(1 << 16) {
            file.push(1);
            file.extend(&(part.len() as u32 + 4).to_le_bytes()[..3]);
            file.extend([0; 4]);
            file.extend(part);
        }
        let stream = (file.len() - from) as u64;
        file.extend(stream.to_le_bytes());
    }
    file
}

/// A BTF blob: names without an end, structures in structures, definitions of themselves, counts up
/// to the last.
pub(crate) fn btf(rng: &mut Rng) -> Vec<u8> {
    let mut types = Vec::new();
    let mut strings = vec![0u8];
    for name in ["outer", "inner_t", "task_struct", "module", "circle"] {
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    strings.extend(vec![b'x'; rng.pick(&[0, 1000, 1 << 20])]);
    if rng.below(2) == 0 {
        strings.push(0);
    }
    let kinds = rng.count();
    let (members, same) = (rng.pick(&[0usize, 1, 3, 1000]), rng.below(2) == 0);
    for n in 1..=kinds as u32 {
        let kind = rng.pick(&[2u32, 3, 4, 4, 5, 6, 8, 9, 13, 15, 19]);
        let name = if same { 1 } else { rng.below(strings.len()) as u32 };
        let target = rng.pick(&[n, n + 1, n.saturating_sub(1), 1, 0]);
        let count = match kind {
            4 | 5 | 6 | 13 | 15 | 19 => members,
            _ => 0,
        };
        [name, kind << 24 | count as u32, target]
            .iter()
            .for_each(|word| types.extend(word.to_le_bytes()));
        let words = match kind {
            3 => vec![target, 1, rng.size(10) as u32],
            6 | 13 => (0..2 * count).map(|_| name).collect(),
            _ => (0..count).flat_map(|_| [if same { 0 } else { name }, target, 0]).collect(),
        };
        words.iter().for_each(|word| types.extend(word.to_le_bytes()));
    }
    let mut blob = vec![0x9f, 0xeb, 1, 0];
    let sizes = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
    sizes.iter().for_each(|word| blob.extend(word.to_le_bytes()));
    blob.extend(types);
    blob.extend(strings);
    blob
}
