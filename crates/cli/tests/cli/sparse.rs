//! Sessions of a few kilobytes whose rings claim to be huge: all but some pages of the files are
//! holes. Each verb ends within the limits of `crafted`, and with less memory than one of the
//! claimed sub-buffers has.

use crate::crafted::run_within;
use crate::support::{Place, stored};
use lastwords_testkit::checksum::checksum;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Most address space of a verb: what the script of crash kernels gives it, twice.
const SPACE: u64 = 2 * 131_072;

/// The length that a ring claims, and where it has bytes.
struct Ring {
    reservation: u32,
    size: u64,
    count: u64,
    /// Sub-buffers with a header.
    headed: Vec<u64>,
    /// Bytes of content that the headers claim.
    content: u64,
    /// There is a byte at the end of each of these sub-buffers too, so that the hole is between
    /// data.
    is_ended: bool,
}

fn put(bytes: &mut [u8], at: usize, value: u64, width: usize) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// Writes the ring as the region of the only stream of a session, by docs/ABI.md, sections 1, 5 and
/// 7.
fn write(place: &Place, folder: &str, ring: &Ring) -> PathBuf {
    let folder = place.at(folder);
    samples::one_stream(ring.reservation, 4096, 2, 1).image().write_folder(&folder).unwrap();
    replace(&folder, ring);
    folder
}

/// Writes the ring in the place of the first one of a session.
fn replace(folder: &Path, ring: &Ring) {
    let Ring { size, count, content, .. } = *ring;
    let path = folder.join("stream-0");
    let old = fs::read(&path).unwrap();
    let header = &old[word(&old, 176)..word(&old, 176) + 84];
    let half = (size * count).next_multiple_of(4096);
    let table = count * 64;
    let end = 4096 + 2 * half + 2 * table.next_multiple_of(4096);
    let mut begin = old[..768].to_vec();
    put(&mut begin, 32, end, 8);
    put(&mut begin, 144, size, 8);
    put(&mut begin, 152, count, 4);
    put(&mut begin, 156, 0, 4);
    for (i, at) in
        [4096 + 2 * half, 4096 + 2 * half + table.next_multiple_of(4096), 4096, 4096 + half]
            .into_iter()
            .enumerate()
    {
        put(&mut begin, 160 + 8 * i, at, 8);
    }
    let last = ring.headed.last().copied().unwrap_or(count - 1);
    // The position of writers: in the last sub-buffer with a header.
    let reserve = last * size + content.min(size - 16);
    [384, 392].into_iter().for_each(|at| put(&mut begin, at, reserve, 8));
    let sum = checksum(&[&begin[..112], &begin[128..192]].concat());
    put(&mut begin, 112, sum, 8);
    fs::remove_file(&path).unwrap();
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.set_len(end).unwrap();
    file.write_all_at(&begin, 0).unwrap();
    for number in &ring.headed {
        let mut header = header.to_vec();
        let closed = if *number == last { 0 } else { content * 8 };
        put(&mut header, 48, closed, 8);
        put(&mut header, 56, size * 8, 8);
        put(&mut header, 64, *number, 8);
        let at = 4096 + number % count * size;
        file.write_all_at(&header, at).unwrap();
        if ring.is_ended {
            file.write_all_at(&[0x5a; 8], at + size - 8).unwrap();
        }
    }
}

#[test]
fn what_is_a_hole_costs_no_time_and_no_memory() {
    let place = Place::new();
    let mut wrong = Vec::new();
    let gib = 1 << 30;
    let rings = [
        (gib, 2, vec![0], 4096),
        (gib, 2, vec![0, 1], gib - 16),
        (gib, 4096, vec![0, 7, 4000], gib - 16),
        (64 << 20, 64, (0..64).collect(), (64 << 20) - 16),
        (gib, 2, vec![], gib - 16),
        (4096, 1 << 20, vec![0, 7, 5000, (1 << 20) - 1], 2048),
        (4096, 1 << 20, vec![(1 << 40) + 7], 2048),
    ];
    for (number, (size, count, headed, content)) in rings.into_iter().enumerate() {
        for reservation in [2, 3] {
            for is_ended in [false, true] {
                let ring =
                    Ring { reservation, size, count, headed: headed.clone(), content, is_ended };
                let folder =
                    write(&place, &format!("ring-{number}-{reservation}-{is_ended}"), &ring);
                assert!(stored(&folder) < 2 << 20, "{}", stored(&folder));
                let what =
                    format!("{count} sub-buffers of {size} bytes, {reservation}, {is_ended}");
                wrong.extend(run_within(&place, &what, &folder, SPACE));
                fs::remove_dir_all(&folder).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A ring whose places are nearly all holes costs only itself: the other rings are read, and its
/// holes are reported.
#[test]
fn a_ring_of_a_million_sub_buffers_leaves_the_others_whole() {
    let place = Place::new();
    let folder = place.at("small");
    samples::small(Order::Little).image().write_folder(&folder).unwrap();
    let input = folder.to_str().unwrap();
    let whole = place.ok(&["report", input]);
    let ring = Ring {
        reservation: 0,
        size: 4096,
        count: 1 << 20,
        headed: vec![0, (1 << 20) - 1],
        content: 2048,
        is_ended: false,
    };
    replace(&folder, &ring);
    let out = place.at("out.txt");
    let out = out.to_str().unwrap();
    for verb in [
        &["report", input][..],
        &["inspect", input],
        &["convert", input, "-o", out, "--to", "text"],
    ] {
        let ran = place.run(verb);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(
            said.contains("which the file does not have") || ran.out.contains("missing"),
            "{verb:?}: {said}"
        );
        assert!(!said.contains("exceed the limit"), "{verb:?}: {said}");
    }
    let left = place.run(&["report", input]).out;
    let others: Vec<_> = left.lines().filter(|line| whole.contains(line)).collect();
    assert!(others.len() >= 20, "{left}\nof\n{whole}");
}

#[test]
fn a_registry_that_is_a_hole_costs_no_memory() {
    let place = Place::new();
    samples::one_stream(2, 4096, 2, 1).image().write_folder(&place.at("a")).unwrap();
    let path = place.at("a/registry");
    let mut bytes = fs::read(&path).unwrap();
    put(&mut bytes, 32, 256 << 20, 8);
    // The end of the records is the first control word.
    put(&mut bytes, 128, (256 << 20) - 64, 8);
    let sum = checksum(&bytes[..112]);
    put(&mut bytes, 112, sum, 8);
    fs::write(&path, &bytes).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(256 << 20).unwrap();
    let wrong = run_within(&place, "a registry of 256 MiB", &place.at("a"), SPACE);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
