//! A kernel image by a writer that shares nothing with the reader: tables as `scripts/kallsyms.c`
//! orders them, in an ELF file, in a bzImage.

use lastwords_bytes::Budget;
use lastwords_kernel::vmlinux;
use lastwords_testkit::btf::Writer;
use std::sync::Arc;

const BASE: u64 = 0xffff_ffff_8100_0000;
const BANNER: &[u8] = b"Linux version 6.12.0 (somebody@somewhere)\0";
/// Offset in the segment of the banner, the notes, the BTF and the symbol table.
const PLACES: [u64; 4] = [0x10, 0x100, 0x200, 0x1000];
/// Offset in the file of the segment.
const SEGMENT: usize = 0x1000;

/// How the image's symbol table keeps addresses.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Offsets {
    FromBase,
    FromOwnPlace,
    /// From a base, before the number of symbols: kernels up to Linux 6.3.
    First,
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// The tables at the end of a segment: each name is a length and tokens of one character.
fn tables(segment: &mut Vec<u8>, symbols: &[(u64, String)], offsets: Offsets) {
    if offsets == Offsets::First {
        symbols.iter().for_each(|(address, _)| {
            segment.extend((address.wrapping_sub(BASE) as u32).to_le_bytes())
        });
        align(segment);
        segment.extend(BASE.to_le_bytes());
    }
    segment.extend((symbols.len() as u32).to_le_bytes());
    align(segment);
    let names = segment.len();
    let mut markers = Vec::new();
    for (n, (_, name)) in symbols.iter().enumerate() {
        if n % 256 == 0 {
            markers.push((segment.len() - names) as u32);
        }
        segment.push(name.len() as u8 + 1);
        segment.extend([b"T", name.as_bytes()].concat());
    }
    align(segment);
    markers.iter().for_each(|marker| segment.extend(marker.to_le_bytes()));
    align(segment);
    let (table, mut index) = (segment.len(), Vec::new());
    for token in 0..=255u8 {
        index.extend(((segment.len() - table) as u16).to_le_bytes());
        segment.extend([token.max(1), 0]);
    }
    align(segment);
    segment.extend(index);
    if offsets == Offsets::First {
        return;
    }
    for (address, _) in symbols {
        let from = if offsets == Offsets::FromBase { BASE } else { BASE + segment.len() as u64 };
        segment.extend((address.wrapping_sub(from) as u32).to_le_bytes());
    }
    align(segment);
    segment.extend(if offsets == Offsets::FromBase { BASE.to_le_bytes() } else { [0x55; 8] });
}

fn elf(offsets: Offsets) -> Vec<u8> {
    let mut types = Writer::default();
    types.int("int", 4, true);
    types.int("long unsigned int", 8, false);
    let btf = types.finish(&[]);
    let mut notes = [4u32, 4, 3].map(u32::to_le_bytes).concat();
    notes.extend(b"GNU\0\xab\xcd\xef\x01");
    let [banner, note, blob, tables_at] = PLACES;
    let mut symbols = vec![
        (BASE, "_text".to_owned()),
        (BASE, "_stext".to_owned()),
        (BASE + banner, "linux_banner".to_owned()),
        (BASE + note, "__start_notes".to_owned()),
        (BASE + note + notes.len() as u64, "__stop_notes".to_owned()),
        (BASE + blob, "__start_BTF".to_owned()),
        (BASE + blob + btf.len() as u64, "__stop_BTF".to_owned()),
    ];
    symbols.extend((0..700).map(|n| (BASE + 0x2000 + n, format!("symbol_number_{n}"))));
    symbols.push((BASE + 0x9000, "_end".to_owned()));
    let mut segment = vec![0; tables_at as usize];
    for (at, bytes) in [(banner, BANNER), (note, &notes), (blob, &btf)] {
        segment[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    tables(&mut segment, &symbols, offsets);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let header: [u64; 3] = [BASE, 64, 0];
    header.iter().for_each(|word| file.extend(word.to_le_bytes()));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let len = segment.len() as u64;
    [SEGMENT as u64, BASE, 0, len, 0xa000, 0x1000]
        .iter()
        .for_each(|word| file.extend(word.to_le_bytes()));
    file.resize(SEGMENT, 0);
    file.extend(segment);
    file
}

/// A bzImage with a payload after two sectors of setup code and 16 bytes.
fn bz_image(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 3 * 512 + 16];
    file[0x1f1] = 2;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
    file[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    file.extend_from_slice(payload);
    file.extend([0x90; 512]);
    file
}

fn check(file: Vec<u8>) {
    let kernel =
        vmlinux::open(file, Arc::new(Budget::default())).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kernel.kallsyms().len(), 708);
    assert_eq!(kernel.symbol("symbol_number_699"), Ok(BASE + 0x2000 + 699));
    assert_eq!(kernel.build_id().as_deref(), Some("abcdef01"));
    let mut behind = [7];
    kernel.memory.read(BASE + 0x9000 - 0x1000, &mut behind).unwrap();
    assert_eq!(behind, [0], "what the file does not have is zero");
}

#[test]
fn symbols_types_and_build_id_are_found() {
    for offsets in [Offsets::FromBase, Offsets::FromOwnPlace, Offsets::First] {
        check(elf(offsets));
    }
    let file = elf(Offsets::FromBase);
    check(bz_image(&file));
    assert!(
        vmlinux::is_image(&file)
            && vmlinux::is_image(&bz_image(&file))
            && !vmlinux::is_image(b"\x7fEL")
    );
}

#[test]
fn what_is_no_kernel_for_x86_is_refused() {
    let refused =
        |file: Vec<u8>| vmlinux::open(file, Arc::new(Budget::default())).err().unwrap().to_string();
    let mut arm = elf(Offsets::FromBase);
    arm[18] = 183;
    assert!(refused(arm).contains("x86-64"));
    assert!(refused(b"text".to_vec()).contains("an ELF file, or a bzImage"));
    assert!(refused(bz_image(b"neither")).contains("gzip, xz, zstd or lz4"));
    let mut without = elf(Offsets::FromBase);
    let digits = without.windows(4).position(|four| four == b"0\x001\0").unwrap();
    without[digits + 2] = b'x';
    assert!(refused(without).contains("KALLSYMS"));
}

/// Each image that is cut or damaged somewhere is read or refused.
#[test]
fn damage_is_no_panic() {
    let whole = elf(Offsets::FromBase);
    for at in (0..whole.len()).step_by(37) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x81;
        let _ = vmlinux::open(damaged, Arc::new(Budget::default()));
        let _ = vmlinux::open(whole[..at].to_vec(), Arc::new(Budget::default()));
    }
}
