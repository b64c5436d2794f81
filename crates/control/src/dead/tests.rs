//! Sessions on the heap of this process, read as those of a dead one.

use super::*;
use lastwords::internals::create::create;
use lastwords::internals::dirs::Folder;
use lastwords::internals::ending;
use lastwords::internals::regions::Regions;
use lastwords::internals::shared::SessionShared;
use lastwords::{ChannelConfig, Ending, Memory, Session};
use lastwords_testkit::random::{Random, seed};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// A session on the heap in which nobody records, of a random shape.
fn session(random: &mut Random) -> SessionShared {
    let channel =
        ChannelConfig::new("main").sub_buffers(2 << random.below(3), 4096 << random.below(3));
    let mut builder = Session::builder("app")
        .backend(Memory::Heap)
        .channel(channel)
        .snapshot(random.below(2) == 1);
    create(&mut builder, None, false).expect("created").0
}

/// Fills all rings, their slots and positions with random bytes. Some pages stay empty.
fn fill(regions: &Regions, random: &mut Random) {
    for region in regions.streams.iter() {
        for half in 0..2 {
            for page in
                region.stream.page_table(half).iter().map(|page| page.load(Relaxed) as *mut u64)
            {
                if page.is_null() || random.below(8) == 0 {
                    continue;
                }
                for word in 0..BLOCK / 8 {
                    // SAFETY: the table has pages of this size, and nobody records in this session.
                    unsafe { page.add(word).write_volatile(random.bits()) };
                }
            }
            for slot in region.stream.slots(half) {
                slot.committed.store(random.bits(), Relaxed);
            }
            region.stream.control().half[half].reserve.store(random.below(1 << 40), Relaxed);
        }
    }
}

/// The session's regions, as they are found in the memory of its process.
fn found(regions: &Regions) -> Vec<Region> {
    let region = |mapping: &lastwords_ring::backend::Mapping| {
        let address = mapping.as_ptr();
        // SAFETY: the mapping is a region, which begins with its header and the fixed part.
        let (header, fixed) = unsafe {
            let header = address.cast::<RegionHeader>().read();
            (
                header,
                std::slice::from_raw_parts(
                    address.add(HEADER_SIZE as usize),
                    header.fixed_len as usize,
                ),
            )
        };
        Region {
            address: address as u64,
            len: header.size,
            kind: header.kind,
            index: header.index,
            fixed: fixed.to_vec(),
        }
    };
    regions.mappings().map(region).collect()
}

fn own_memory() -> impl Fn(u64, &mut [u8]) -> bool {
    let memory = File::open("/proc/self/mem").expect("a process has memory");
    move |address, buffer| memory.read_exact_at(buffer, address).is_ok()
}

fn bytes_at(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert!(own_memory()(address, &mut bytes));
    bytes
}

const DEATH: Death = Death { pid: 77, pid_namespace: 1, signal: 11 };

/// Copies the session into a folder of sessions at the path. Also returns the number of bytes that
/// are missing.
fn copy_to(base: &Path, dead: &DeadSession<'_>, room: u64) -> Result<(Copied, u64), Error> {
    let limits = CopyLimits::new(room);
    let base = Base::make(base).expect("made");
    let mut copy = CopyFolder::new_in(base, &dead.uuid, dead.name(), &DEATH, &limits)?;
    let missing = dead.copy(&DEATH, &Cell::new(room), &mut copy)?;
    Ok((copy.publish()?, missing))
}

/// Every byte of rings, slots and positions is in the copy, where a session in shared memory has
/// it.
#[test]
fn the_pages_of_a_heap_become_the_data_of_regions() {
    let seed = seed();
    for round in 0..12 {
        let mut random = Random(seed + round);
        let shared = session(&mut random);
        let regions = &shared.regions;
        fill(regions, &mut random);
        let folder = tempfile::tempdir().expect("a folder");
        let (found, read) = (found(regions), own_memory());
        let dead = DeadSession::new(regions.view.uuid, &found, &read).expect("it is whole");
        let (copied, missing) =
            copy_to(&folder.path().join("base"), &dead, 1 << 30).expect("copied");
        assert_eq!((missing, copied.removed), (0, 0), "seed {}", seed + round);
        // The program's own readers take it for a session that the signal ended.
        let opened =
            Regions::open(&Folder::open(&copied.folder).expect("opened")).expect("a session");
        let ended = ending::read(&opened.view);
        assert_eq!((ended.how, ended.pid), (Ending::Signal(Some(11)), 77));
        assert_eq!(opened.streams.len(), regions.streams.len());
        for (copy, region) in opened.streams.iter().zip(regions.streams.iter()) {
            let at = |region: &lastwords::internals::regions::StreamRegion| {
                region.mapping.as_ptr() as u64
            };
            let spec = copy.stream.spec();
            let control = bytes_at(at(region) + CONTROL_OFF as u64, size_of::<StreamControl>());
            assert_eq!(bytes_at(at(copy) + CONTROL_OFF as u64, control.len()), control);
            for half in 0..2 {
                let slots = size_of_val(region.stream.slots(half));
                let from = bytes_at(region.stream.slots(half).as_ptr() as u64, slots);
                assert_eq!(bytes_at(copy.stream.slots(half).as_ptr() as u64, slots), from);
                let data =
                    bytes_at(at(copy) + spec.data_range(half).start, spec.half_size() as usize);
                for (page, copied) in region.stream.page_table(half).iter().zip(data.chunks(BLOCK))
                {
                    let page = page.load(Relaxed);
                    let is = if page == 0 { vec![0; BLOCK] } else { bytes_at(page, BLOCK) };
                    assert!(copied == is, "seed {}, half {half}", seed + round);
                }
            }
        }
    }
}

/// Regions and memory with random damage are copied or refused: no panic, and no more than the
/// limit is read.
#[test]
fn damaged_memory_is_copied_or_refused() {
    let seed = seed();
    for round in 0..60 {
        let mut random = Random(seed + round);
        let shared = session(&mut random);
        fill(&shared.regions, &mut random);
        let mut found = found(&shared.regions);
        for _ in 0..1 + random.below(4) {
            let index = random.below(found.len() as u64) as usize;
            let number = random.bits() >> random.below(64);
            let region = &mut found[index];
            match random.below(8) {
                0 => region.len = number,
                1 => region.kind = number as u32,
                2 => region.index = number as u32,
                3 => region.address = number,
                4 => region.fixed.truncate(random.below(64) as usize),
                _ if region.fixed.is_empty() => {}
                _ => {
                    let at = random.below(region.fixed.len() as u64) as usize;
                    region.fixed[at] = number as u8;
                }
            }
        }
        let (own, damage) = (own_memory(), Cell::new(random.bits()));
        let read = |address: u64, buffer: &mut [u8]| {
            let mut random = Random(damage.get());
            let is_read = own(address, buffer);
            if random.below(16) == 0 {
                let at = random.below(buffer.len() as u64) as usize;
                buffer[at] ^= 1 << random.below(8);
            }
            damage.set(random.bits());
            is_read && random.below(64) != 0
        };
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("base");
        let Some(dead) = DeadSession::new(shared.regions.view.uuid, &found, &read) else {
            continue;
        };
        let written = dead.facts(&DEATH).mark(&DEATH, &|_, bytes| {
            if bytes.len() <= 8 { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
        });
        assert!(written.is_ok());
        if copy_to(&base, &dead, 8 << 20).is_err() {
            let left = std::fs::read_dir(&base).expect("readable").count();
            assert_eq!(left, 0, "seed {}", seed + round);
        }
    }
}

/// Orders that no reader of a session sends make no file outside of the copy, and none above the
/// limits.
#[test]
fn orders_of_a_hostile_reader_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("base");
    let limits = CopyLimits::new(100);
    let base = Base::make(&path).expect("made");
    let mut copy =
        CopyFolder::new_in(base, &[7; 16], "../../x", &DEATH, &limits).expect("a folder");
    assert!(copy.write(0, b"x").is_err(), "no file is begun");
    for name in [
        "../x",
        "/etc/passwd",
        "places",
        "arena",
        ".new-stream-0001",
        "stream-1",
        "stream-00001",
        "",
        ".",
    ] {
        assert!(copy.create(name, 1).is_err(), "{name}");
    }
    copy.create("stream-0001", 200).expect("a stream");
    assert!(copy.create("stream-0001", 200).is_err(), "a second file of the name");
    assert!(copy.create("spans", u64::MAX).is_err(), "no memory has this size");
    assert!(
        copy.write(200, b"x").is_err() && copy.write(u64::MAX, b"x").is_err(),
        "outside of the file"
    );
    copy.write(150, &[1; 50]).expect("within the limits");
    assert!(copy.write(0, &[1; 51]).is_err(), "more bytes than all copies may have");
    limits.files.set(0);
    assert!(copy.create("spans", 1).is_err(), "more files than all copies may have");
    let copied = copy.publish().expect("published");
    assert!(
        copied.folder.starts_with(&path)
            && copied.folder.to_string_lossy().contains("/session.dead-77-")
    );
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
}

#[test]
fn the_oldest_copies_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = Base::make(&folder.path().join("base")).expect("made");
    let make = |name: &str, unique: u64| {
        let mut folder = base.new_folder(name, &format!("{unique:016x}")).expect("a folder");
        folder.publish().expect("published");
    };
    make("app", 1);
    make("app.snapshot-1", 2);
    (0..20).for_each(|pid| make(&format!("app.dead-{pid}"), 100 + pid));
    assert_eq!(remove_oldest(&base), 4);
    assert_eq!(base.sessions().expect("readable").len(), 18);
    assert_eq!(remove_oldest(&base), 0);
}
