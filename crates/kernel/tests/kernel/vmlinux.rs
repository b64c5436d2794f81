//! A kernel image by a writer that shares nothing with the reader: tables as `scripts/kallsyms.c`
//! orders them, in an ELF file, in a bzImage.

use crate::support::kallsyms::{Encoding, Order, write_in};
use crate::support::memory::Regions;
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

/// An image whose symbol table is in the order, and keeps addresses in the way, of some kernel.
fn elf(order: Order, encoding: Encoding) -> Vec<u8> {
    let btf = Writer::of_kernel().finish(&[]);
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
    let symbols: Vec<_> = symbols.iter().map(|(at, name)| (*at, 'T', name.as_str())).collect();
    let (mut memory, at) = (Regions::default(), BASE + tables_at);
    let tables = write_in(order, &mut memory, at, BASE, encoding, &symbols);
    if encoding == Encoding::OwnPlace {
        // No base follows the offsets.
        let behind = tables.offsets + (symbols.len() as u64 * 4).next_multiple_of(8);
        memory.put(behind, &[0x55; 8]);
    }
    segment.extend(memory.0.remove(&at).unwrap());
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
    check(elf(Order::OffsetsLast, Encoding::OwnPlace));
    check(elf(Order::OffsetsFirst, Encoding::Based));
    let file = elf(Order::OffsetsLast, Encoding::Based);
    check(file.clone());
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
    let mut arm = elf(Order::OffsetsLast, Encoding::Based);
    arm[18] = 183;
    assert!(refused(arm).contains("x86-64"));
    assert!(refused(b"text".to_vec()).contains("an ELF file, or a bzImage"));
    assert!(refused(bz_image(b"neither")).contains("gzip, xz, zstd or lz4"));
    let mut without = elf(Order::OffsetsLast, Encoding::Based);
    let digits = without.windows(4).position(|four| four == b"0\x001\0").unwrap();
    without[digits + 2] = b'x';
    assert!(refused(without).contains("KALLSYMS"));
}

/// Each image that is cut or damaged somewhere is read or refused.
#[test]
fn damage_is_no_panic() {
    let whole = elf(Order::OffsetsLast, Encoding::Based);
    for at in (0..whole.len()).step_by(37) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x81;
        let _ = vmlinux::open(damaged, Arc::new(Budget::default()));
        let _ = vmlinux::open(whole[..at].to_vec(), Arc::new(Budget::default()));
    }
}
