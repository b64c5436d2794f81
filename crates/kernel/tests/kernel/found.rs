//! A kernel that is found in physical memory: page tables, names and VMCOREINFO written by hand.
#![forbid(unsafe_code)]

use lastwords_bytes::{Budget, ByteOrder, Limits};
use lastwords_image::vmcore::{Format, Machine, Physical, RawRange};
use lastwords_image::{Hole, HoleCause, Image, Range, unwatched};
use lastwords_kernel::find::{self, Error};
use lastwords_kernel::memory::Memory;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

/// RAM from an address on, pages of it left out.
struct Ram {
    ranges: Vec<Range>,
    start: u64,
    bytes: Vec<u8>,
    excluded: Vec<u64>,
}

impl Image for Ram {
    fn name(&self) -> &str {
        "ram"
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        for (i, byte) in buf.iter_mut().enumerate() {
            let address = address.saturating_add(i as u64);
            let there = address.checked_sub(self.start).and_then(|at| self.bytes.get(at as usize));
            *byte = *there.ok_or(Hole { address, cause: HoleCause::Unmapped })?;
            if self.excluded.contains(&(address & !0xfff)) {
                return Err(Hole { address, cause: HoleCause::Excluded });
            }
        }
        Ok(())
    }
}

/// Memory that is being written.
struct Writer {
    start: u64,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(start: u64) -> Self {
        Self { start, bytes: vec![0; 4 << 20] }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = (at - self.start) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    fn physical(self, excluded: &[u64], note: Option<&str>) -> Physical {
        let len = self.bytes.len() as u64;
        let ranges =
            vec![Range { address: self.start, len, name: "ram".into(), offset: 0, hole: None }];
        Physical {
            image: Arc::new(Ram {
                ranges,
                start: self.start,
                bytes: self.bytes,
                excluded: excluded.to_vec(),
            }),
            format: Format::Raw,
            machine: None,
            foreign: None,
            order: ByteOrder::Little,
            vmcoreinfo: note.map(|text| text.as_bytes().to_vec()),
            cpus: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A container that names another machine is refused with that name.
#[test]
fn other_machines_are_named() {
    for machine in ["s390x", "riscv64", "ppc64", "arm"] {
        let (ram, note) = x86_64(RELEASE);
        let mut physical = ram.physical(&[], Some(&note));
        physical.foreign = Some(machine.to_owned());
        let error =
            find::kernel(&physical, &Budget::default(), &unwatched).err().unwrap().to_string();
        assert!(
            error.contains(&format!("architecture {machine}: only x86_64 and aarch64")),
            "{error}"
        );
    }
}

const RELEASE: &str = "6.12.107-test";

/// An x86-64 kernel whose image's first 2 MiB, at 0xffffffff81000000, are at 2 MiB of physical
/// memory.
fn x86_64(release: &str) -> (Writer, String) {
    let mut ram = Writer::new(0);
    // The top table is 4 KiB into the image.
    let top = 0x20_1000;
    ram.word(top + 511 * 8, 0x20_2003);
    ram.word(0x20_2000 + 510 * 8, 0x20_3003);
    ram.word(0x20_3000 + 8 * 8, 0x20_0083);
    ram.put(0x20_8000 + 2 * 65, release.as_bytes());
    let text = format!(
        "OSRELEASE={RELEASE}\nPAGESIZE=4096\nSYMBOL(init_uts_ns)=ffffffff81007ff8\nOFFSET(uts_namespace.name)=8\n\
         SYMBOL(swapper_pg_dir)=ffffffff81001000\nNUMBER(phys_base)=-14680064\nNUMBER(pgtable_l5_enabled)=0\n"
    );
    (ram, text)
}

fn aarch64() -> (Writer, String) {
    let mut ram = Writer::new(0x4000_0000);
    let (top, image) = (0x4000_1000u64, 0xffff_8000_0000_0000u64);
    ram.word(top + 256 * 8, 0x4000_2003);
    ram.word(0x4000_2000, 0x4000_3003);
    ram.word(0x4000_3000, 0x4000_4003);
    for page in 0..512 {
        ram.word(0x4000_4000 + page * 8, (0x4000_0000 + page * 4096) | 0x703);
    }
    ram.put(0x4000_8000 + 2 * 65, RELEASE.as_bytes());
    let text = format!(
        "OSRELEASE={RELEASE}\nPAGESIZE=4096\nSYMBOL(init_uts_ns)={:x}\nOFFSET(uts_namespace.name)=0\nSYMBOL(swapper_pg_dir)={:x}\n\
         NUMBER(VA_BITS)=48\nNUMBER(kimage_voffset)={:#x}\nNUMBER(PHYS_OFFSET)=0x40000000\nNUMBER(TCR_EL1_T1SZ)=0x10\n",
        image + 0x8000,
        image + 0x1000,
        image - 0x4000_0000
    );
    (ram, text)
}

fn kernel(physical: &Physical) -> Result<find::FoundKernel, Error> {
    find::kernel(physical, &Budget::default(), &unwatched)
}

#[test]
fn by_the_note() {
    let (ram, text) = x86_64(RELEASE);
    let found = kernel(&ram.physical(&[], Some(&text))).unwrap();
    assert_eq!((found.scanned, found.memory.machine()), (None, Machine::X86_64));
    assert_eq!(found.memory.text(0xffff_ffff_8100_8082, 65).unwrap(), RELEASE);
    assert_eq!(found.memory.translate(0xffff_ffff_8100_8082).unwrap().physical, 0x20_8082);
}

#[test]
fn by_looking_for_it() {
    // As the text at the start of a page, and as the note with its header; a copy that holds of
    // nothing stands before it.
    for place in [0x30_0000u64, 0x30_0018] {
        let (mut ram, text) = x86_64(RELEASE);
        ram.put(0x1000, text.replace("phys_base)=-14680064", "phys_base)=-12582912").as_bytes());
        ram.put(0x2000 + 7, text.as_bytes());
        ram.put(place, text.as_bytes());
        let found = kernel(&ram.physical(&[0x20_9000, 0x2f_f000], None)).unwrap();
        assert_eq!(found.scanned, Some(place));
        assert_eq!(found.info.release(), Some(RELEASE));
        // A hole is told of at its virtual address.
        let mut buf = [0u8; 16];
        let hole = found.memory.read(0xffff_ffff_8100_8ff8, &mut buf).unwrap_err();
        assert_eq!(hole, Hole { address: 0xffff_ffff_8100_9000, cause: HoleCause::Excluded });
        let hole = found.memory.read(0xffff_ffff_811f_fff8, &mut buf).unwrap_err();
        assert_eq!(hole, Hole { address: 0xffff_ffff_8120_0000, cause: HoleCause::Unmapped });
    }
    let (mut ram, text) = aarch64();
    ram.put(0x4020_0018, text.as_bytes());
    let found = kernel(&ram.physical(&[], None)).unwrap();
    assert_eq!((found.scanned, found.memory.machine()), (Some(0x4020_0018), Machine::Aarch64));
    assert_eq!(found.memory.text(0xffff_8000_0000_8082, 65).unwrap(), RELEASE);
}

/// The whole kernel of an earlier boot stands before the running one, which has copies of its text:
/// each is found once.
#[test]
fn other_kernels_are_told() {
    let (mut ram, text) = x86_64(RELEASE);
    let earlier = ram.bytes[0x20_0000..0x20_9000].to_vec();
    ram.put(0x10_0000, &earlier);
    for (table, next) in [(0x10_1000 + 511 * 8, 0x10_2003), (0x10_2000 + 510 * 8, 0x10_3003)] {
        ram.word(table, next);
    }
    // Pages of 4 KiB, because the earlier image is at no multiple of 2 MiB.
    ram.word(0x10_3000 + 8 * 8, 0x10_a003);
    for page in 0..16 {
        ram.word(0x10_a000 + page * 8, (0x10_0000 + page * 4096) | 3);
    }
    let old =
        text.replace("phys_base)=-14680064", &format!("phys_base)={}", 0x10_0000 - 0x100_0000));
    for (place, text) in [(0xf_0000, &old), (0x30_0000, &text), (0x30_1018, &text)] {
        ram.put(place, text.as_bytes());
    }
    let found = kernel(&ram.physical(&[], None)).unwrap();
    let others: Vec<_> = found.others.iter().map(|other| other.scanned).collect();
    assert_eq!((found.scanned, others), (Some(0xf_0000), vec![Some(0x30_0000)]));
    assert_eq!(found.others[0].words(), format!("Linux {RELEASE}, with VMCOREINFO at 0x300000"));
}

/// VMCOREINFO's text as kernels have it, of which the second half is not needed to find the
/// version.
fn long_text(text: &str) -> String {
    let symbols: String =
        (0..40).map(|n| format!("SYMBOL(symbol_{n})=ffffffff8100{n:04x}\n")).collect();
    format!("{text}{symbols}")
}

#[test]
fn a_damaged_vmcoreinfo_note_is_not_trusted() {
    let zeroed =
        |text: &str, from: usize| text[..from].to_owned() + &"\0".repeat(text.len() - from);
    let (_, text) = x86_64(RELEASE);
    let text = long_text(&text);
    let line_end = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    let flipped = |from: &str, to: &str| text.replace(from, to);
    let damaged = [
        // The second half is zero, from within a line and from a line's beginning; it is cut; it
        // is other bytes.
        zeroed(&text, text.len() / 2),
        zeroed(&text, line_end),
        text[..text.len() / 2].to_owned(),
        text[..line_end].to_owned() + &"~\u{1}".repeat((text.len() - line_end) / 2),
        // One character of a value that leads to the version.
        flipped("init_uts_ns)=ffffffff81007ff8", "init_uts_ns)=ffffffff81007fb8"),
        flipped("phys_base)=-14680064", "phys_base)=-14680065"),
        flipped("swapper_pg_dir", "swapper_pg_dis"),
        flipped("6.12.107-test", "6.12.117-test"),
    ];
    for note in damaged {
        let (mut ram, _) = x86_64(RELEASE);
        // A damaged copy stands before the one that is whole.
        ram.put(0x1000, zeroed(&text, text.len() / 2).as_bytes());
        ram.put(0x30_0018, text.as_bytes());
        let found = kernel(&ram.physical(&[], Some(&note))).unwrap();
        assert_eq!(found.scanned, Some(0x30_0018), "{note:?}");
        assert!(
            found.notes[0].contains("a copy was found in memory, at 0x300018"),
            "{:?}",
            found.notes
        );
        assert_eq!(found.info.symbol("symbol_39"), Some(0xffff_ffff_8100_0027));
    }
}

#[test]
fn a_damaged_vmcoreinfo_note_is_used_where_there_is_no_other() {
    let (ram, text) = x86_64(RELEASE);
    let note = long_text(&text);
    let found = kernel(&ram.physical(&[], Some(&note[..note.len() / 2]))).unwrap();
    assert!(
        found.scanned.is_none() && found.notes[0].contains("used as it is"),
        "{:?}",
        found.notes
    );
    assert_eq!(found.memory.text(0xffff_ffff_8100_8082, 65).unwrap(), RELEASE);
    // Of several copies in memory that are all damaged, the first that leads to the kernel.
    let (mut ram, _) = x86_64(RELEASE);
    ram.put(0x30_0000, &note.as_bytes()[..note.len() / 2]);
    let found = kernel(&ram.physical(&[], None)).unwrap();
    assert_eq!(found.scanned, Some(0x30_0000));
}

#[test]
fn a_whole_vmcoreinfo_note_needs_no_search() {
    let (ram, text) = x86_64(RELEASE);
    // Padding, as a note may have it. A Budget for no search at all.
    let nothing = Budget::new(Limits { bytes: 0, ..Limits::default() });
    let found =
        find::kernel(&ram.physical(&[], Some(&format!("{text}\0\0\0"))), &nothing, &unwatched)
            .unwrap();
    assert!(found.scanned.is_none() && found.notes.is_empty());
    // The names stand behind a kref in kernels whose VMCOREINFO does not tell where.
    let (ram, text) = x86_64(RELEASE);
    let old = text.replace("OFFSET(uts_namespace.name)=8\n", "").replace("81007ff8", "81007ffc");
    assert!(
        find::kernel(&ram.physical(&[], Some(&old)), &nothing, &unwatched)
            .unwrap()
            .notes
            .is_empty()
    );
}

#[test]
fn what_is_not_found_is_told() {
    let (ram, _) = x86_64(RELEASE);
    let error = kernel(&ram.physical(&[], None)).unwrap_err().to_string();
    assert!(error.contains("no Linux kernel is found"), "{error}");
    let (mut ram, text) = x86_64("6.1.0-another");
    ram.put(0x30_0000, text.as_bytes());
    let error = kernel(&ram.physical(&[], None)).unwrap_err().to_string();
    assert!(error.contains("none of 1 found in memory"), "{error}");
    let (ram, _) = x86_64(RELEASE);
    assert!(matches!(
        kernel(&ram.physical(&[], Some("OSRELEASE=1\n"))),
        Err(Error::Machine { .. })
    ));
    let (ram, _) = x86_64(RELEASE);
    let error = kernel(&ram.physical(&[], Some("NUMBER(phys_base)=0\n"))).unwrap_err().to_string();
    assert!(error.contains("SYMBOL(swapper_pg_dir)"), "{error}");
    let (ram, _) = x86_64(RELEASE);
    let little = Budget::new(Limits { bytes: 1 << 20, ..Limits::default() });
    assert!(matches!(
        find::kernel(&ram.physical(&[], None), &little, &unwatched),
        Err(Error::Bytes(_))
    ));
}

#[test]
fn where_raw_memory_was() {
    // RAM of arm64 begins where VMCOREINFO says; nothing in the file does.
    let (mut ram, text) = aarch64();
    ram.put(0x4020_0018, text.as_bytes());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&ram.bytes).unwrap();
    let raw = |path: &std::path::Path, map: &[RawRange]| {
        find::raw(path, map, &Budget::default(), &unwatched)
    };
    let (physical, found) = raw(file.path(), &[]).unwrap();
    assert_eq!(
        (physical.image.ranges()[0].address, found.scanned),
        (0x4000_0000, Some(0x4020_0018))
    );
    assert_eq!(found.memory.text(0xffff_8000_0000_8082, 65).unwrap(), RELEASE);
    // A map that is given is not doubted.
    let map = |address| [RawRange { address, len: 4 << 20, offset: 0 }];
    assert!(raw(file.path(), &map(0x4000_0000)).is_ok());
    assert!(matches!(raw(file.path(), &map(0)), Err(Error::Nothing { rejected: 1, .. })));
    // RAM of x86-64 above 3 GiB is above 4 GiB: here the kernel's is, behind a hole of the file.
    let (mut ram, text) = x86_64(RELEASE);
    for at in [0x20_1000 + 511 * 8, 0x20_2000 + 510 * 8, 0x20_3000 + 8 * 8] {
        let low = u64::from_le_bytes(ram.bytes[at..at + 8].try_into().unwrap());
        ram.word(at as u64, low + (1 << 32));
    }
    let text =
        text.replace("phys_base)=-14680064", &format!("phys_base)={}", (1u64 << 32) - 14_680_064));
    ram.put(0x30_0000, text.as_bytes());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.seek(SeekFrom::Start(0xc000_0000)).unwrap();
    file.write_all(&ram.bytes).unwrap();
    let (physical, found) = raw(file.path(), &[]).unwrap();
    assert_eq!((physical.image.ranges().len(), found.scanned), (2, Some((1 << 32) + 0x30_0000)));
    assert_eq!(found.memory.text(0xffff_ffff_8100_8082, 65).unwrap(), RELEASE);
}
