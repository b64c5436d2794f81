//! Dumps of physical memory, of every container: read whole, cut and damaged.
#![forbid(unsafe_code)]

use crate::dumps::{Kdump, Load, Page, content, elf, flattened, lime, load};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::{
    Format, Machine, Physical, RawRange, open_physical, open_raw, open_split,
};
use lastwords_image::{HoleCause, unwatched};
use lastwords_testkit::elf::note;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn try_open(bytes: &[u8]) -> Result<Option<Physical>, String> {
    let file = file(bytes);
    open_physical(file.path(), &Budget::default(), &unwatched).map_err(|e| e.to_string())
}

fn open(bytes: &[u8]) -> Physical {
    try_open(bytes).unwrap().unwrap()
}

/// The bytes at an address, or why they are not there.
fn read(physical: &Physical, address: u64, len: usize) -> Result<Vec<u8>, HoleCause> {
    let mut bytes = vec![0u8; len];
    physical.image.read(address, &mut bytes).map(|()| bytes).map_err(|hole| hole.cause)
}

const BLOCK: usize = 512;
const FLAGS: [u32; 5] = [0, 1, 2, 4, 0x20];

/// Frames 3 to 62 in runs: of every five one excluded, one that is no RAM.
fn pages() -> BTreeMap<u64, Page> {
    let page = |pfn: u64| match pfn % 5 {
        0 => Page::Excluded,
        _ => Page::Dumped(FLAGS[pfn as usize % 7 % 5], content(pfn, BLOCK)),
    };
    (3..63).filter(|pfn| pfn % 5 != 4).map(|pfn| (pfn, page(pfn))).collect()
}

fn check(physical: &Physical, pages: &BTreeMap<u64, Page>) {
    for pfn in 0..70 {
        let want = match pages.get(&pfn) {
            Some(Page::Dumped(_, bytes)) => Ok(bytes.clone()),
            Some(Page::Excluded) => Err(HoleCause::Excluded),
            None => Err(HoleCause::Unmapped),
        };
        assert_eq!(read(physical, pfn * BLOCK as u64, BLOCK), want, "page frame {pfn}");
    }
}

#[test]
fn kdump_of_every_version_order_and_compression() {
    for version in 1..=6 {
        for (big, machine) in [(false, "x86_64"), (true, "s390x"), (false, ""), (false, "aarch64")]
        {
            let mut kdump = Kdump { version, big, machine, ..Kdump::new(BLOCK, pages()) };
            kdump.notes = note("CORE", 1, &[7; 336]);
            let physical = open(&kdump.bytes());
            check(&physical, &kdump.pages);
            assert_eq!(
                (physical.format, physical.machine),
                (Format::Kdump, Machine::of_name(machine))
            );
            assert_eq!(physical.vmcoreinfo.is_some(), version >= 3);
            assert_eq!(physical.cpus.len(), usize::from(version >= 4 && !big));
            if !big {
                assert_eq!(physical.notes, Vec::<String>::new());
            }
        }
    }
}

/// Machines and formats that are not read are named, so that nobody takes the file for damaged.
#[test]
fn what_is_not_read_is_named() {
    for (number, name) in [
        (22u16, "s390x"),
        (243, "riscv64"),
        (40, "arm"),
        (21, "ppc64"),
        (999, "machine 999 of ELF"),
    ] {
        let mut bytes =
            elf(true, &note("VMCOREINFO", 0, b"OSRELEASE=6.1\n"), &[load(4096, 4096, &[1; 4096])]);
        bytes[18..20].copy_from_slice(&number.to_le_bytes());
        let physical = open(&bytes);
        assert_eq!((physical.machine, physical.foreign.as_deref()), (None, Some(name)));
    }
    let kdump = Kdump { machine: "s390x", big: true, ..Kdump::new(BLOCK, pages()) };
    assert_eq!(open(&kdump.bytes()).foreign.as_deref(), Some("s390x"));
    // QEMU writes `Unknown`; the last name is damaged.
    for machine in ["", "x86_64", "aarch64", "Unknown", "x86_65"] {
        assert_eq!(open(&Kdump { machine, ..Kdump::new(BLOCK, pages()) }.bytes()).foreign, None);
    }
    let lkcd = 0xa819_0173_618f_23ed_u64;
    for (magic, name) in [
        (lkcd.to_le_bytes().to_vec(), "an LKCD dump"),
        (lkcd.to_be_bytes().to_vec(), "an LKCD dump of a big-endian machine"),
        (b"sadump\0\0".to_vec(), "a sadump file"),
        (b"DISKDUMP".to_vec(), "a diskdump file"),
        (b"PAGEDU64".to_vec(), "a crash dump of Windows"),
    ] {
        let mut bytes = magic;
        bytes.resize(8192, 7);
        let plain = try_open(&bytes).unwrap_err();
        let inner = try_open(&flattened(&bytes, true)).unwrap_err();
        assert!([plain, inner].iter().all(|error| error.contains(name)), "{name}");
    }
}

/// States of virtual machines have memory in forms that their own programs alone know. The error
/// has a command that writes another form.
#[test]
fn saved_states_of_virtual_machines_are_named() {
    let vmware: [u32; 6] =
        [0xbed0_bed0, 0xbed1_bed1, 0xbed2_bed0, 0xbed2_bed2, 0xbed3_bed3, 0xbad1_bad1];
    let vmware = vmware.map(|magic| (magic.to_le_bytes().to_vec(), "VMware", "vmss2core"));
    let others = [
        (b"QEVM\0\0\0\x03".to_vec(), "a migration stream of QEMU", "dump-guest-memory"),
        (b"QEVM\0\0\0\x03".to_vec(), "a migration stream of QEMU", "virsh dump --memory-only"),
        (b"LibvirtQemudSave\x02\0\0\0".to_vec(), "libvirt saved", "virsh restore"),
        (
            b"LibvirtQemudPart\x02\0\0\0".to_vec(),
            "did not save to its end",
            "virsh dump --memory-only",
        ),
        (b"\x7fVirtualBox SavedState V2.0\n".to_vec(), "VirtualBox", "dumpvmcore"),
        (b"Xen saved domain, xl format\n".to_vec(), "Xen", "xl dump-core"),
    ];
    for (mut bytes, name, command) in vmware.into_iter().chain(others) {
        assert!(lastwords_image::vmcore::is_foreign(&bytes), "{name}");
        bytes.resize(8192, 7);
        let error = try_open(&bytes).unwrap_err();
        assert!(error.contains(name) && error.contains(command), "{error}");
    }
}

#[test]
fn kdump_ranges_and_reads_across_pages() {
    let kdump = Kdump::new(BLOCK, pages());
    let physical = open(&kdump.bytes());
    let ranges = physical.image.ranges();
    assert!(ranges.windows(2).all(|w| w[0].end() <= w[1].address));
    for pfn in 0..64 {
        let at = pfn * BLOCK as u64;
        let range = ranges.iter().find(|r| at >= r.address && at < r.end()).map(|r| r.hole);
        let want = kdump
            .pages
            .get(&pfn)
            .map(|p| if *p == Page::Excluded { Some(HoleCause::Excluded) } else { None });
        assert_eq!(range, want, "page frame {pfn}");
    }
    // Frames 6, 7 and 8 are dumped, 9 is no RAM.
    let three = read(&physical, 6 * 512 + 10, 1500).unwrap();
    assert_eq!(three, [content(6, BLOCK), content(7, BLOCK), content(8, BLOCK)].concat()[10..1510]);
    let mut buf = vec![0u8; 600];
    let hole = physical.image.read(8 * 512, &mut buf).unwrap_err();
    assert_eq!(
        (hole.address, hole.cause, buf[..512] == content(8, BLOCK)),
        (9 * 512, HoleCause::Unmapped, true)
    );
    assert_eq!(physical.image.next_data(0, u64::MAX), 3 * 512);
    assert_eq!(physical.image.next_data(9 * 512 + 7, 100_000), 11 * 512);
    assert_eq!(physical.image.next_data(62 * 512 + 7, 100_000), 62 * 512 + 7);
    assert_eq!(physical.image.next_data(63 * 512, 100_000), 63 * 512);
}

#[test]
fn kdump_split_over_files() {
    let whole = Kdump::new(BLOCK, pages());
    let part = |start, end| file(&Kdump { split: Some((start, end)), ..whole.clone() }.bytes());
    let parts = [part(40, 63), part(0, 17), part(17, 40)];
    let paths: Vec<_> = parts.iter().map(|p| p.path()).collect();
    let physical = open_split(&paths, &Budget::default()).unwrap();
    check(&physical, &whole.pages);
    assert_eq!(physical.notes, Vec::<String>::new());
    // One alone tells of the others, and what they have is missing, not excluded.
    let one = open_split(&paths[2..], &Budget::default()).unwrap();
    assert_eq!(one.notes.len(), 2, "{:?}", one.notes);
    assert!(
        one.part_of_split()
            .is_some_and(|note| note.contains("name all of its files, with --split"))
    );
    assert_eq!(physical.part_of_split(), None);
    assert_eq!(read(&one, 18 * 512, 512), Ok(content(18, BLOCK)));
    assert_eq!(read(&one, 41 * 512, 512), Err(HoleCause::Truncated));
    assert_eq!(read(&one, 45 * 512, 512), Err(HoleCause::Excluded));
    let mixed = file(&elf(false, &[], &[]));
    let error = open_split(&[paths[0], mixed.path()], &Budget::default()).unwrap_err().to_string();
    assert!(error.contains("kdump-compressed"), "{error}");
}

#[test]
fn kdump_cut_short_when_written() {
    let kdump = Kdump { status: 8, ..Kdump::new(BLOCK, pages()) };
    let mut bytes = kdump.bytes();
    // Behind a block of header, three of sub-header and two bitmaps of a block.
    let descriptors = 6 * 512;
    // The last descriptors were not written any more.
    let count = kdump.pages.values().filter(|p| **p != Page::Excluded).count();
    bytes[descriptors + 24 * (count - 5)..descriptors + 24 * count].fill(0);
    let physical = open(&bytes);
    assert!(physical.notes[0].contains("cut short"), "{:?}", physical.notes);
    let causes: Vec<_> = (0..63).map(|pfn| read(&physical, pfn * 512, 512).err()).collect();
    assert_eq!(causes.iter().filter(|c| **c == Some(HoleCause::Truncated)).count(), 5);
    assert_eq!(causes.iter().filter(|c| c.is_none()).count(), count - 5);
}

/// Every file is read at every length; what it gives grows with it, and what it lacks is told of.
fn every_cut(bytes: &[u8], frames: u64) {
    let count = |physical: &Physical| {
        (0..frames).filter(|pfn| read(physical, pfn * 512, 512).is_ok()).count()
    };
    let all = count(&open(bytes));
    let mut before = 0;
    for len in (0..bytes.len()).step_by(37) {
        let Ok(Some(physical)) = try_open(&bytes[..len]) else {
            assert_eq!(before, 0, "length {len}");
            continue;
        };
        let got = count(&physical);
        assert!(got >= before && got <= all, "{got} after {before} at length {len}");
        assert!(got == all || !physical.notes.is_empty(), "{got} of {all} at length {len}");
        before = got;
    }
    assert!(all > 0 && before > 0);
}

#[test]
fn cuts_at_every_length() {
    let kdump = Kdump::new(BLOCK, pages());
    every_cut(&kdump.bytes(), 70);
    every_cut(&flattened(&kdump.bytes(), true), 70);
    let ram: Vec<u8> = (0..20).flat_map(|pfn| content(pfn, BLOCK)).collect();
    every_cut(&elf(true, &vmcoreinfo(), &[load(0, 0, &ram)]), 20);
    every_cut(&[lime(None, 0, &ram), lime(None, 0x8000, &ram)].concat(), 100);
    every_cut(&[lime(Some(1000), 0, &ram), lime(Some(4096), 0x8000, &ram)].concat(), 100);
}

fn vmcoreinfo() -> Vec<u8> {
    note("VMCOREINFO", 0, b"OSRELEASE=6.12.0\nPAGESIZE=4096\n")
}

#[test]
fn elf_as_a_hypervisor_writes_it() {
    let notes = [note("CORE", 1, &[1; 336]), note("QEMU", 0, &[2; 440]), vmcoreinfo()].concat();
    let loads = [load(0, 0, &[1; 8192]), load(0, 0xfffc_0000, &[2; 4096])];
    let physical = open(&elf(true, &notes, &loads));
    assert_eq!((physical.format, physical.machine), (Format::Elf, Some(Machine::X86_64)));
    assert_eq!(physical.vmcoreinfo.as_deref(), Some(&b"OSRELEASE=6.12.0\nPAGESIZE=4096\n"[..]));
    assert_eq!(physical.cpus, [vec![1; 336]]);
    assert_eq!(read(&physical, 8191, 1), Ok(vec![1]));
    assert_eq!(read(&physical, 0xfffc_0fff, 1), Ok(vec![2]));
    assert_eq!(read(&physical, 8192, 1), Err(HoleCause::Unmapped));
    // Without any VMCOREINFO it is one all the same.
    assert!(open(&elf(true, &note("QEMU", 0, &[2; 440]), &loads)).vmcoreinfo.is_none());
}

#[test]
fn elf_whose_text_lies_over_its_ram() {
    let ram: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
    let text = load(0xffff_ffff_8100_0000, 0x1_2000, &ram[0x2000..0x4000]);
    let excluded = Load { memory: 60_000, ..load(0xffff_8880_0001_0000, 0x1_0000, &ram) };
    let physical = open(&elf(false, &vmcoreinfo(), &[text, excluded]));
    assert_eq!(read(&physical, 0x1_0000, 40_000), Ok(ram));
    assert_eq!(read(&physical, 0x1_0000 + 40_000, 1), Err(HoleCause::Excluded));
    assert_eq!(physical.notes, Vec::<String>::new());
}

#[test]
fn what_is_no_vmcore() {
    // The core of a process has no physical addresses, or notes of a process.
    let of_process = [note("CORE", 1, &[0; 336]), note("CORE", 3, &[0; 136])].concat();
    assert!(try_open(&elf(false, &of_process, &[load(0x1000, 0, &[1; 100])])).unwrap().is_none());
    assert!(
        try_open(&elf(false, &of_process, &[load(0x1000, 0x1000, &[1; 100])])).unwrap().is_none()
    );
    assert!(try_open(&elf(false, &[], &[load(0x1000, 0, &[1; 100])])).unwrap().is_none());
    assert!(open(&elf(false, &[], &[load(0x1000, 0x1000, &[1; 100])])).vmcoreinfo.is_none());
    assert!(try_open(b"").unwrap().is_none());
    assert!(try_open(&[7; 5000]).unwrap().is_none());
    let folder = tempfile::tempdir().unwrap();
    assert!(open_physical(folder.path(), &Budget::default(), &unwatched).unwrap().is_none());
    assert!(open_physical(&folder.path().join("x"), &Budget::default(), &unwatched).is_err());
}

#[test]
fn flattened_is_what_it_holds() {
    let kdump = Kdump::new(BLOCK, pages());
    let physical = open(&flattened(&kdump.bytes(), true));
    check(&physical, &kdump.pages);
    assert_eq!(physical.notes, Vec::<String>::new());
    let physical = open(&flattened(&kdump.bytes(), false));
    check(&physical, &kdump.pages);
    assert!(physical.notes[0].contains("without an end record"), "{:?}", physical.notes);
    let ram: Vec<u8> = (0..9000u32).map(|i| (i % 253) as u8).collect();
    let physical = open(&flattened(&elf(false, &vmcoreinfo(), &[load(0, 0x5000, &ram)]), true));
    assert_eq!(read(&physical, 0x5000, 9000), Ok(ram));
}

#[test]
fn compressed_with_zstd() {
    let kdump = Kdump::new(BLOCK, pages());
    let packed = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    check(&open(&packed(&kdump.bytes())), &kdump.pages);
    check(&open(&packed(&flattened(&kdump.bytes(), true))), &kdump.pages);
    let physical = open(&packed(&elf(true, &vmcoreinfo(), &[load(0, 0, &[1; 8192])])));
    assert_eq!(read(&physical, 8191, 1), Ok(vec![1]));
    let of_process = note("CORE", 3, &[0; 136]);
    assert!(
        try_open(&packed(&elf(false, &of_process, &[load(0x1000, 0, &[1; 100])])))
            .unwrap()
            .is_none()
    );
    assert!(try_open(&packed(&[7; 5000])).unwrap().is_none());
    // A frame has blocks of 128 KiB, each there as a whole or not at all.
    let ram: Vec<u8> =
        (0..500_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cut = packed(&elf(true, &vmcoreinfo(), &[load(0, 0, &ram)]));
    let physical = open(&cut[..cut.len() - 50]);
    assert!(physical.notes[0].contains("decompression stops"), "{:?}", physical.notes);
    assert_eq!(read(&physical, 1000, 1).as_deref(), Ok(&ram[1000..1001]));
    assert_eq!(read(&physical, 499_999, 1), Err(HoleCause::Truncated));
}

#[test]
fn lime_avml_and_raw() {
    let ram: Vec<u8> = (0..150_000u32).map(|i| (i / 100) as u8).collect();
    for avml in [None, Some(65_536), Some(4000)] {
        let bytes = [lime(avml, 0x1000, &ram), lime(avml, 0x10_0000, &ram[500..])].concat();
        let physical = open(&bytes);
        assert_eq!(
            (physical.format, physical.notes.len()),
            (Format::Lime, 0),
            "{:?}",
            physical.notes
        );
        assert_eq!(read(&physical, 0x1000, 150_000), Ok(ram.clone()));
        assert_eq!(read(&physical, 0x10_0000, 149_500).as_deref(), Ok(&ram[500..]));
        assert_eq!(read(&physical, 0xfff, 1), Err(HoleCause::Unmapped));
        assert_eq!(physical.image.ranges().len(), 2);
    }
    // Both kinds in one file; and what a cut stream lacks is missing, not unknown.
    let mixed = [lime(None, 0x1000, &ram), lime(Some(65_536), 0x10_0000, &ram)].concat();
    let physical = open(&mixed);
    assert_eq!(
        (read(&physical, 0x1000, 150_000), read(&physical, 0x10_0000, 150_000)),
        (Ok(ram.clone()), Ok(ram.clone()))
    );
    let physical = open(&mixed[..mixed.len() - 9000]);
    assert_eq!(read(&physical, 0x10_0000 + 149_000, 1), Err(HoleCause::Truncated));
    assert_eq!(
        physical.image.ranges().iter().filter(|r| r.hole == Some(HoleCause::Truncated)).count(),
        1
    );
    let file = file(&ram);
    let physical = open_raw(file.path(), &[], &Budget::default()).unwrap();
    assert_eq!(
        (physical.format, read(&physical, 140_000, 1)),
        (Format::Raw, Ok(vec![ram[140_000]]))
    );
    let map = [
        RawRange { address: 0x4000_0000, len: 1000, offset: 500 },
        RawRange { address: 0, len: 500, offset: 149_900 },
    ];
    let physical = open_raw(file.path(), &map, &Budget::default()).unwrap();
    assert_eq!(read(&physical, 0x4000_0000, 1000).as_deref(), Ok(&ram[500..1500]));
    assert_eq!(read(&physical, 100, 1), Err(HoleCause::Truncated));
}

#[test]
fn absurd_headers_are_told_of() {
    let good = Kdump::new(BLOCK, pages()).bytes();
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        try_open(&bytes)
    };
    let error = with(8, 9).unwrap_err();
    assert!(
        error.ends_with("offset 0x8: found 0x9, expected a header version of 1 to 6"),
        "{error}"
    );
    let error = with(428, 1000).unwrap_err();
    assert!(error.contains("offset 0x1ac: found 0x3e8, expected a power of two"), "{error}");
    // Numbers of blocks and page frames: the file tells how many there can be.
    for at in [432, 436, 440] {
        for value in [0, 1, 3, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
            if let Some(physical) = with(at, value).unwrap() {
                let _ = (read(&physical, 3 * 512, 512), physical.image.ranges().len());
                let _ = (physical.image.next_data(0, u64::MAX), read(&physical, u64::MAX - 5, 512));
            }
        }
    }
}

proptest! {
    /// Any bytes in any header: an error, a hole or bytes.
    #[test]
    fn mutants(kind in 0usize..6, edits in proptest::collection::vec((0usize..4200, prop::sample::select(vec![0u64, 1, 2, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 62, u64::MAX - 1, u64::MAX]), 1usize..9), 1..5), at: u64) {
        let ram: Vec<u8> = (0..9).flat_map(|pfn| content(pfn, BLOCK)).collect();
        let kdump = Kdump::new(BLOCK, pages());
        let mut bytes = match kind {
            0 => kdump.bytes(),
            1 => flattened(&kdump.bytes(), true),
            2 => elf(true, &vmcoreinfo(), &[load(0, 0, &ram)]),
            3 => [lime(None, 0, &ram), lime(None, 0x8000, &ram)].concat(),
            4 => [lime(Some(1000), 0, &ram), lime(Some(4096), 0x8000, &ram)].concat(),
            _ => Kdump { big: true, ..kdump }.bytes(),
        };
        for (place, value, len) in edits {
            // The interesting bytes are the first ones, and in a stream those behind its padded header.
            let place = if kind == 1 { 4096 + place } else { place } % bytes.len();
            for (to, from) in bytes[place..].iter_mut().zip(&value.to_le_bytes()[..len.min(8)]) {
                *to = *from;
            }
        }
        if let Ok(Some(physical)) = try_open(&bytes) {
            let ranges = physical.image.ranges();
            prop_assert!(ranges.windows(2).all(|w| w[0].end() <= w[1].address));
            for address in (0..70).map(|pfn| pfn * 512 + 5).chain([at, u64::MAX - 100]) {
                let _ = read(&physical, address, 600);
                prop_assert!(physical.image.next_data(address, u64::MAX) >= address);
            }
        }
    }
}

/// Bytes of memory that an image has, by its ranges.
fn held(physical: &Physical) -> u64 {
    physical.image.ranges().iter().filter(|range| range.hole.is_none()).map(|range| range.len).sum()
}

#[test]
fn loads_that_share_the_bytes_of_a_file_give_no_more_memory_than_the_file_can_hold() {
    let bytes = vec![7u8; 1 << 20];
    let count = 2000;
    let loads: Vec<_> = (1..=count).map(|n| load(0, n << 32, &bytes[..1])).collect();
    let mut file = elf(true, &note("VMCOREINFO", 0, b"OSRELEASE=6\n"), &loads);
    let first = file.len() as u64;
    file.extend(&bytes);
    // Each load has all of the bytes.
    for n in 1..=count as usize {
        let at = 192 + 56 * n;
        file[at + 8..at + 16].copy_from_slice(&first.to_le_bytes());
        for field in [32, 40] {
            file[at + field..at + field + 8].copy_from_slice(&(1u64 << 20).to_le_bytes());
        }
    }
    let physical = open(&file);
    assert!(held(&physical) <= 4 * file.len() as u64, "{} bytes of memory", held(&physical));
    assert!(
        physical.notes.iter().any(|note| note.contains("name the same bytes more than 4 times")),
        "{:?}",
        physical.notes
    );
    assert_eq!(read(&physical, 1 << 32, 1 << 20), Ok(bytes));
}

#[test]
fn a_flattened_stream_of_little_gives_no_endless_zeroes_to_look_through() {
    // The inner file's last byte is far away, and a load has all before it.
    let far = 1u64 << 60;
    let mut inner =
        elf(true, &note("VMCOREINFO", 0, b"OSRELEASE=6\n"), &[load(0, 1 << 20, &[7; 64])]);
    for field in [32, 40] {
        inner[192 + 56 + field..192 + 56 + field + 8]
            .copy_from_slice(&(far - (1 << 20)).to_le_bytes());
    }
    let mut file = flattened(&inner, false);
    file.extend([(far - 1).to_be_bytes(), 1u64.to_be_bytes()].concat());
    file.push(1);
    file.extend([0xff; 16]);
    let physical = open(&file);
    let (mut at, end, mut steps) = (1 << 20, 1 << 60, 0);
    while at < end {
        at = physical.image.next_data(at, end).max(at) + (1 << 20);
        steps += 1;
    }
    assert!(steps < 10, "{steps} steps");
}

#[test]
fn a_file_that_expands_is_refused_where_memory_does_not() {
    // Words that repeat, as no memory has them throughout: 1 KiB for each 10 MiB.
    let bytes = elf(
        true,
        &note("VMCOREINFO", 0, b"OSRELEASE=6\n"),
        &[load(0, 1 << 20, &vec![7; 64 << 20])],
    );
    let file = file(&zstd::bulk::compress(&bytes, 1).unwrap());
    let budget = Budget::new(lastwords_bytes::Limits { bytes: 32 << 20, ..Default::default() });
    let error = open_physical(file.path(), &budget, &unwatched).unwrap_err().to_string();
    assert!(error.contains("would exceed the limit"), "{error}");
    // Of zeroes, 64 times as many are no burden.
    let bytes = elf(
        true,
        &note("VMCOREINFO", 0, b"OSRELEASE=6\n"),
        &[load(0, 1 << 20, &vec![0; 64 << 20])],
    );
    let file = self::file(&zstd::bulk::compress(&bytes, 1).unwrap());
    let budget = Budget::new(lastwords_bytes::Limits { bytes: 2 << 20, ..Default::default() });
    assert!(open_physical(file.path(), &budget, &unwatched).unwrap().is_some());
}
