//! Pages that are missing and headers that are damaged cost only what is in them, and are told.

use crate::made::{DATA, Made, PMU, RING, SIZE, TASK, USER, event, file, sample};
use crate::memory::causes;
use lastwords_kernel::memory::Memory as _;
use lastwords_testkit::random::Random;
use lastwords_trace::evidence::Cause;

/// A record that overlaps the page.
fn overlaps((at, bytes): &(u64, Vec<u8>), page: u64) -> bool {
    let (first, last) = (at % SIZE / 4096, (at + bytes.len() as u64 - 1) % SIZE / 4096);
    first == page || last == page
}

/// Each page of the data in turn is not in the image.
#[test]
fn a_page_that_is_missing_costs_its_records() {
    for is_backward in [false, true] {
        for page in 0..4 {
            let mut made = Made::new(is_backward);
            made.fill(if is_backward { 600 } else { 180 });
            let whole = made.read().0;
            made.memory.drop(DATA + page * 8192);
            let (records, gaps) = made.read();
            let expected: Vec<_> =
                whole.iter().filter(|record| !overlaps(record, page)).cloned().collect();
            assert_eq!(records, expected, "page {page}, backward {is_backward}");
            let missing = gaps.iter().filter(|gap| gap.cause == Cause::Missing);
            let bytes: u64 = missing.filter_map(|gap| gap.bytes).sum();
            let lost: usize =
                whole.iter().filter(|record| overlaps(record, page)).map(|r| r.1.len()).sum();
            // At the end of a buffer that came round lies a part of a record besides.
            let more = bytes.checked_sub(lost as u64).expect("all bytes are told");
            assert!(more == 0 || is_backward && more < 200, "{more}: {gaps:?}");
        }
    }
}

/// Damage to types and sizes: each record that is returned was written, and each that is not is
/// told.
#[test]
fn a_damaged_header_costs_its_record() {
    let mut random = Random(7);
    for round in 0..400 {
        let mut made = Made::new(round % 2 == 1);
        made.fill(if round % 2 == 1 { 600 } else { 180 });
        let whole = made.read().0;
        let victim = random.below(whole.len() as u64) as usize;
        let (at, _) = whole[victim];
        // Type and size; the two bytes of flags between them have all values.
        let byte = [0, 1, 2, 3, 6, 7][random.below(6) as usize];
        let address = Made::address(at + byte);
        let value = made.memory.number(address, 1).unwrap() as u8 ^ (1 << random.below(8));
        made.memory.put(address, &[value]);
        let (records, gaps) = made.read();
        let told: u64 = gaps
            .iter()
            .filter(|gap| gap.cause == Cause::Damaged || gap.cause == Cause::Missing)
            .filter_map(|gap| gap.bytes)
            .sum();
        let kept: u64 = records.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let all: u64 = whole.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let is_last = victim + 1 == whole.len() && round % 2 == 1;
        for record in &records {
            let found = whole.iter().find(|(position, _)| *position == record.0);
            assert!(
                found.is_some_and(|found| found == record || record.0 == at),
                "round {round}: a record at {} that was not written",
                record.0
            );
        }
        assert!(
            is_last || kept + told == all,
            "round {round}: {kept} and {told} of {all}: {gaps:?}"
        );
        assert!(
            records.len() + 1 >= whole.len(),
            "round {round}: {} of {}",
            records.len(),
            whole.len()
        );
    }
}

/// Random bytes everywhere: nothing panics, and nothing is read without an end.
#[test]
fn no_damage_panics() {
    let mut random = Random(11);
    for round in 0..300 {
        let mut made = Made::new(round % 2 == 1);
        made.fill(200);
        let pages = made.memory.all();
        for _ in 0..1 + random.below(20) {
            let places = [RING + random.below(80), USER + random.below(24)];
            let anywhere = pages[random.below(pages.len() as u64) as usize] + random.below(4096);
            let address = [places[0], places[1], anywhere][random.below(3) as usize];
            made.memory.put(address, &[random.below(256) as u8]);
        }
        let (records, _) = made.read();
        assert!(records.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 1 << 24);
    }
}

/// Each page of the kernel in turn is not in the image, or reads as zero: what is lost is told.
#[test]
fn a_structure_that_is_missing_is_told() {
    let mut made = Made::new(false);
    made.fill(60);
    let (whole, no_gaps) = made.read();
    assert!(no_gaps.is_empty());
    for page in made.memory.all() {
        for is_zero in [false, true] {
            let mut damaged = made.clone();
            match is_zero {
                true => damaged.memory.put(page, &[0; 4096]),
                false => damaged.memory.drop(page),
            }
            let (records, gaps) = damaged.read();
            assert!(records == whole || !gaps.is_empty(), "page {page:#x}, zero {is_zero}");
        }
    }
}

/// Records that name neither event nor CPU: many that lead from one to the next prove the first.
#[test]
fn a_page_that_is_missing_costs_its_nameless_records() {
    for page in 0..4 {
        let mut made = Made::new(false);
        made.fill_nameless(150);
        let whole = made.read().0;
        assert_eq!(whole.len(), 150);
        made.memory.drop(DATA + page * 8192);
        let (records, gaps) = made.read();
        let expected: Vec<_> =
            whole.iter().filter(|record| !overlaps(record, page)).cloned().collect();
        assert_eq!(records, expected, "page {page}: {gaps:?}");
    }
}

/// The records of an event that cannot be read are counted; those of others are there.
#[test]
fn a_missing_event_costs_its_own_records() {
    let mut made = Made::new(false);
    (0..150).for_each(|n| made.write(sample(n, n as usize % 90)));
    let whole = made.read().0;
    // The id of the second event, whose records have odd numbers.
    made.memory.put_u64(event(2), 0);
    made.memory.drop(DATA + 8192);
    let (records, gaps) = made.read();
    let is_own = |record: &&(u64, Vec<u8>)| record.1[8] == 41 && !overlaps(record, 1);
    let expected: Vec<_> = whole.iter().filter(is_own).cloned().collect();
    assert_eq!(records, expected);
    let is_other = |record: &&(u64, Vec<u8>)| record.1[8] == 42 && !overlaps(record, 1);
    let others = whole.iter().filter(is_other).count() as u64;
    let foreign: Vec<_> =
        gaps.iter().filter(|gap| gap.cause == Cause::Undescribed).map(|gap| gap.events).collect();
    assert_eq!(foreign, [Some(others)]);
    // They are losses of the process, as is the event; not of another one.
    let mut perf = made.open();
    let (buffer, mut owner) = (perf.buffers[0].clone(), perf.buffers[0].owner.clone());
    perf.records(&buffer, &mut |_| Ok(())).unwrap();
    let lost = perf.losses_of(&owner).gaps;
    let has = |cause| lost.iter().any(|gap| gap.cause == cause);
    assert!(has(Cause::Undescribed) && lost.iter().any(|gap| gap.place.contains("perf event at")));
    owner.pid += 1;
    assert!(perf.losses_of(&owner).gaps.is_empty());
}

/// The last record goes on in a page that reads as zero.
#[test]
fn the_end_of_the_last_record_is_not_taken_from_a_page_that_reads_as_zero() {
    let mut made = Made::new(false);
    while made.all.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() < 4096 - 64 {
        made.write(sample(1, 20));
    }
    made.write(sample(1, 80));
    let whole = made.read().0;
    made.memory.put(DATA + 8192, &[0; 4096]);
    let (records, gaps) = made.read();
    assert_eq!(records, whole[..whole.len() - 1]);
    let bytes = whole[whole.len() - 1].1.len() as u64;
    assert_eq!(causes(&gaps), [(Cause::Missing, Some(1), Some(bytes))]);
}

/// The name of the process is in a page that is missing or reads as zero: the rest is known.
#[test]
fn a_process_without_its_name_has_its_buffers() {
    for is_zero in [false, true] {
        let mut made = Made::new(false);
        made.fill(20);
        let whole = made.read().0;
        match is_zero {
            true => made.memory.put(TASK & !4095, &[0; 4096]),
            false => made.memory.drop(TASK),
        }
        let perf = made.open();
        let owner = &perf.buffers[0].owner;
        assert_eq!((owner.pid, owner.comm.as_str()), (7, "<...>"));
        let (records, gaps) = made.read();
        assert_eq!((records, gaps.len()), (whole, 1));
    }
}

/// The place of an event in its file, or of the buffer in an event, reads as zero: it is no file of
/// another kind and no event without a buffer, but one that is missing.
#[test]
fn an_event_that_reads_as_zero_in_part_is_missing_and_not_another() {
    for place in [file(1) + 8, event(1) + 504] {
        let mut made = Made::new(false);
        (0..60).for_each(|n| made.write(sample(n, 20)));
        let whole = made.read().0;
        made.memory.put(place, &[0; 4096]);
        let (records, gaps) = made.read();
        let of_second: Vec<_> = whole.into_iter().filter(|record| record.1[8] == 42).collect();
        assert_eq!(records, of_second, "{place:#x}");
        let causes: Vec<_> = gaps.iter().map(|gap| (gap.cause, gap.events)).collect();
        assert_eq!(causes.len(), 2, "{place:#x}: {gaps:?}");
        assert!(causes.contains(&(Cause::Undescribed, Some(30))), "{place:#x}: {gaps:?}");
    }
}

/// The places of both events in their files read as zero: each file is told, and no event at the
/// address 0.
#[test]
fn files_without_the_places_of_their_events_are_counted() {
    let mut made = Made::new(false);
    made.fill(20);
    for n in [1, 2] {
        made.memory.put_u64(file(n) + 8, 0);
    }
    let (records, gaps) = made.read();
    assert_eq!((records.len(), gaps.len()), (0, 1), "{gaps:?}");
    let place = &gaps[0].place;
    assert!(place.contains("2 open files") && place.contains("the event of a file"), "{place}");
}

/// The place of a process's files reads as zero: it is no kernel thread, which has none.
#[test]
fn a_process_whose_files_read_as_zero_is_told() {
    let mut made = Made::new(false);
    made.fill(20);
    assert!(!made.read().0.is_empty());
    made.memory.put((TASK & !4095) + 0x2000, &[0; 4096]);
    let (records, gaps) = made.read();
    assert_eq!((records.len(), gaps.len()), (0, 1), "{gaps:?}");
}

/// The name of a PMU is missing, or reads as zero: it is not known, and all records are there.
#[test]
fn a_pmu_without_its_name_is_not_known() {
    for is_zero in [false, true] {
        let mut made = Made::new(false);
        made.fill(20);
        let whole = made.read().0;
        match is_zero {
            true => made.memory.put(PMU + 32, &[0; 16]),
            false => made.memory.put_u64(PMU, TASK + (1 << 30)),
        }
        let perf = made.open();
        let is_of_pmu = |gap: &&lastwords_trace::evidence::Gap| gap.place.contains("the PMU of");
        let unknown: Vec<_> = perf.evidence.gaps.iter().filter(is_of_pmu).collect();
        assert!(unknown.iter().all(|gap| gap.cause == Cause::Unknown), "{unknown:?}");
        assert_eq!(unknown.len(), 2, "zero {is_zero}: {:?}", perf.evidence.gaps);
        let name = &perf.buffers[0].events[0].name;
        assert!(!name.contains("tracepoint") || name.contains('/'), "{name}");
        assert_eq!(made.read().0, whole);
    }
}

/// A tracepoint of which no format is known has its number for a name, and that is told.
#[test]
fn a_tracepoint_without_its_format_is_told() {
    let mut made = Made::new(false);
    made.fill(20);
    let perf = made.open();
    assert_eq!(perf.buffers[0].events[0].name, "tracepoint/config=0x12d/");
    let is_of_name = |place: &str| place.contains("the name of") && place.contains("id 301");
    assert!(perf.evidence.gaps.iter().any(|gap| is_of_name(&gap.place)));
}
