//! Writers of dumps: ELF vmcores as QEMU and the kernel write them, kdump-compressed files, LiME
//! and AVML images.

use std::collections::BTreeMap;
use std::io::Write;

/// The contents of a page frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// RAM, dumped, compressed by the method of this flag.
    Dumped(u32, Vec<u8>),
    /// RAM, left out.
    Excluded,
}

/// A kdump-compressed file to be.
#[derive(Debug, Clone)]
pub(crate) struct Kdump {
    pub(crate) version: i32,
    pub(crate) big: bool,
    pub(crate) machine: &'static str,
    pub(crate) block: usize,
    pub(crate) status: u32,
    pub(crate) vmcoreinfo: Vec<u8>,
    pub(crate) notes: Vec<u8>,
    pub(crate) pages: BTreeMap<u64, Page>,
    /// Page frames whose descriptors this file has.
    pub(crate) split: Option<(u64, u64)>,
}

/// A page of bytes that compress, different for each page frame.
pub(crate) fn content(pfn: u64, block: usize) -> Vec<u8> {
    (0..block)
        .map(|i| if i % 16 == 0 { (i / 16) as u8 } else { pfn as u8 ^ (i % 7) as u8 })
        .collect()
}

fn compress(flag: u32, bytes: &[u8]) -> Vec<u8> {
    match flag {
        1 => {
            let mut encoder =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        // Literals alone are LZO as well: a run of 18 bytes at least, then the end mark.
        2 => {
            let zeroes = (bytes.len() - 18) / 255;
            let last = bytes.len() - 18 - 255 * zeroes;
            let (zeroes, last) = if last == 0 { (zeroes - 1, 255) } else { (zeroes, last) };
            [&[0][..], &vec![0; zeroes], &[last as u8], bytes, &[17, 0, 0]].concat()
        }
        4 => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        0x20 => zstd::bulk::compress(bytes, 1).unwrap(),
        _ => bytes.to_vec(),
    }
}

impl Kdump {
    /// A file of version 6 with these pages.
    pub(crate) fn new(block: usize, pages: BTreeMap<u64, Page>) -> Self {
        let vmcoreinfo = b"OSRELEASE=6.12.0\n".to_vec();
        let machine = "x86_64";
        Self {
            version: 6,
            big: false,
            machine,
            block,
            status: 0,
            vmcoreinfo,
            notes: Vec::new(),
            pages,
            split: None,
        }
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let max = self.pages.keys().next_back().map_or(0, |pfn| pfn + 1);
        let bitmap = (max.div_ceil(8) as usize).next_multiple_of(self.block);
        let mut ram = vec![0u8; bitmap];
        let mut dumped = vec![0u8; bitmap];
        for (pfn, page) in &self.pages {
            ram[*pfn as usize / 8] |= 1 << (pfn % 8);
            if matches!(page, Page::Dumped(..)) {
                dumped[*pfn as usize / 8] |= 1 << (pfn % 8);
            }
        }
        let extra = (1024 + self.vmcoreinfo.len() + self.notes.len()).next_multiple_of(self.block);
        let mut file = self.header(max, extra / self.block, 2 * bitmap / self.block);
        file.extend(self.sub_header(max, extra));
        file.extend([ram, dumped].concat());
        let (start, end) = self.split.unwrap_or((0, u64::MAX));
        let own = self.pages.range(start..end).filter_map(|(_, page)| match page {
            Page::Dumped(flag, bytes) => Some((*flag, bytes)),
            Page::Excluded => None,
        });
        let own: Vec<_> = own.collect();
        let mut data = Vec::new();
        let at = file.len() + 24 * own.len();
        for (flag, bytes) in own {
            let stored = compress(flag, bytes);
            file.extend(self.u64((at + data.len()) as u64));
            file.extend(self.u32(stored.len() as u32));
            file.extend(self.u32(flag));
            file.extend(self.u64(0));
            data.extend(stored);
        }
        file.extend(data);
        file
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u64(&self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// Signature, version, names, time, then ten numbers.
    fn header(&self, max: u64, sub_blocks: usize, bitmap_blocks: usize) -> Vec<u8> {
        let mut head = b"KDUMP   ".to_vec();
        head.extend(self.u32(self.version as u32));
        let names: [&str; 6] = ["Linux", "host", "6.12.0", "#1", self.machine, ""];
        for name in names {
            let mut field = name.as_bytes().to_vec();
            field.resize(65, 0);
            head.extend(field);
        }
        head.resize(408 + 16, 0);
        let numbers = [
            self.status,
            self.block as u32,
            sub_blocks as u32,
            bitmap_blocks as u32,
            max as u32,
            0,
            0,
            0,
            0,
            2,
        ];
        numbers.iter().for_each(|n| head.extend(self.u32(*n)));
        head.resize(self.block, 0);
        head
    }

    fn sub_header(&self, max: u64, len: usize) -> Vec<u8> {
        let from =
            |n: i32, value: u64| if self.version >= n { value } else { 0xdead_beef_dead_beef };
        let (start, end) = self.split.unwrap_or((0, 0));
        let text = (self.block + 1024) as u64;
        let mut sub = self.u64(0).to_vec();
        sub.extend(self.u32(31));
        sub.extend(self.u32(if self.version >= 2 { u32::from(self.split.is_some()) } else { 7 }));
        let info = (self.vmcoreinfo.len() as u64, self.notes.len() as u64);
        let numbers = [
            from(2, start),
            from(2, end),
            from(3, text),
            from(3, info.0),
            from(4, text + info.0),
            from(4, info.1),
        ];
        let more = [from(5, 0), from(5, 0), from(6, start), from(6, end), from(6, max)];
        numbers.iter().chain(&more).for_each(|n| sub.extend(self.u64(*n)));
        sub.resize(1024, 0);
        sub.extend([self.vmcoreinfo.clone(), self.notes.clone()].concat());
        sub.resize(len, 0);
        sub
    }
}

/// A load of an ELF vmcore.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) virt: u64,
    pub(crate) phys: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory: u64,
}

/// A load that is all there.
pub(crate) fn load(virt: u64, phys: u64, bytes: &[u8]) -> Load {
    Load { virt, phys, bytes: bytes.to_vec(), memory: bytes.len() as u64 }
}

/// An ELF64 vmcore; with `hypervisor` in the form that QEMU writes: `e_ehsize` 8, section headers
/// before the program headers.
pub(crate) fn elf(hypervisor: bool, notes: &[u8], loads: &[Load]) -> Vec<u8> {
    let headers_at = if hypervisor { 192 } else { 64 };
    let data_at = headers_at + 56 * (loads.len() + 1);
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    file.resize(16, 0);
    [4u16, 62].iter().for_each(|n| file.extend(n.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    let sections_at = if hypervisor { 64 } else { 0 };
    [0u64, headers_at as u64, sections_at].iter().for_each(|n| file.extend(n.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    let sizes = [
        if hypervisor { 8 } else { 64 },
        56,
        loads.len() as u16 + 1,
        64,
        u16::from(hypervisor) * 2,
        0,
    ];
    sizes.iter().for_each(|n: &u16| file.extend(n.to_le_bytes()));
    file.resize(headers_at, 0);
    let mut header = |kind: u32, numbers: [u64; 6]| {
        file.extend(kind.to_le_bytes());
        file.extend(0u32.to_le_bytes());
        numbers.iter().for_each(|n| file.extend(n.to_le_bytes()));
    };
    header(4, [data_at as u64, 0, 0, notes.len() as u64, notes.len() as u64, 0]);
    let mut at = data_at + notes.len();
    for load in loads {
        header(1, [at as u64, load.virt, load.phys, load.bytes.len() as u64, load.memory, 0]);
        at += load.bytes.len();
    }
    file.extend(notes);
    loads.iter().for_each(|load| file.extend(&load.bytes));
    file
}

/// A LiME range, or with `avml` an AVML one whose stream has chunks of `chunk` bytes, every third
/// one plain.
pub(crate) fn lime(avml: Option<usize>, start: u64, bytes: &[u8]) -> Vec<u8> {
    let mut file =
        if avml.is_some() { b"AVML\x02\0\0\0".to_vec() } else { b"EMiL\x01\0\0\0".to_vec() };
    [start, start + bytes.len() as u64 - 1, 0].iter().for_each(|n| file.extend(n.to_le_bytes()));
    let Some(chunk) = avml else { return [file, bytes.to_vec()].concat() };
    let mut stream = b"\xff\x06\0\0sNaPpY".to_vec();
    for (i, part) in bytes.chunks(chunk).enumerate() {
        let plain = i % 3 == 2;
        let stored = if plain {
            part.to_vec()
        } else {
            snap::raw::Encoder::new().compress_vec(part).unwrap()
        };
        stream.push(u8::from(plain));
        stream.extend(&(stored.len() as u32 + 4).to_le_bytes()[..3]);
        stream.extend([0; 4]);
        stream.extend(stored);
    }
    let len = (stream.len() as u64).to_le_bytes();
    [file, stream, len.to_vec()].concat()
}

/// makedumpfile's flattened stream of a file, in records of odd sizes, the first bytes written
/// twice.
pub(crate) fn flattened(bytes: &[u8], end: bool) -> Vec<u8> {
    let mut file = b"makedumpfile\0\0\0\0".to_vec();
    [1u64, 1].iter().for_each(|n| file.extend(n.to_be_bytes()));
    file.resize(4096, 0);
    let mut record = |offset: usize, data: &[u8]| {
        file.extend((offset as u64).to_be_bytes());
        file.extend((data.len() as u64).to_be_bytes());
        file.extend(data);
    };
    record(0, &vec![0xee; bytes.len().min(100)]);
    for (i, part) in bytes.chunks(777).enumerate() {
        record(i * 777, part);
    }
    if end {
        file.extend([0xff; 16]);
    }
    file
}
