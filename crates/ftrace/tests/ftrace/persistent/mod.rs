//! Persistent ring buffers that are made here, of both layouts, whole and damaged: what comes back
//! is what was put in, and less than that is told.

mod layouts;
mod made;
mod several;
mod sub_buffers;

use lastwords_bytes::Budget;
use lastwords_ftrace::Ring;
use lastwords_ftrace::persistent;
use lastwords_image::unwatched;
use lastwords_testkit::form::Form;
use lastwords_testkit::persistent::{Boot, Cpu, SIZE, put, region};
use lastwords_testkit::random::setting;
use made::{Random, events, has, image, make, read, regions, set, sub_buffer};
use std::collections::BTreeSet;

#[test]
fn all_events_come_back_in_order() {
    for (seed, form, made) in regions(150) {
        let region = read(&made.bytes).unwrap();
        let expected =
            if form == Form::PerCpu { persistent::Form::PerCpu } else { persistent::Form::Common };
        assert_eq!((region.layout.form(), region.layout.word_size), (expected, 8));
        made.comes_back(&region, format_args!("{form:?} {seed}"));
        let evidence = region.evidence();
        assert!(
            !evidence.has_losses() && evidence.notes.is_empty(),
            "{form:?} {seed}: {evidence:?}"
        );
        if form == Form::Common {
            assert_eq!(region.boot.clock, Some(7));
            assert_eq!(
                region.boot.modules.first().map(|module| (module.address, module.name.as_str())),
                Some((0xffff_ffff_c000_1000, "loop"))
            );
        }
    }
}

/// What a kernel makes of memory that holds nothing of an earlier boot, as after a loss of power: no
/// events, and no loss. One word that is not as the kernel leaves it is a loss or an event.
#[test]
fn memory_that_a_kernel_has_cleared_has_no_loss() {
    for form in [Form::PerCpu, Form::Common] {
        let cpu = Cpu { order: (0..8).collect(), head: 1, commit: 1, ..Cpu::default() };
        let made = region(form, &Boot::default(), &[cpu.clone(), cpu]);
        let unused = read(&made.bytes).unwrap();
        let evidence = unused.evidence();
        assert!(events(&unused).is_empty() && !evidence.has_losses(), "{form:?}: {evidence:?}");
        assert!(evidence.sub_buffers.is_empty(), "{form:?}: {evidence:?}");
        let is_told = evidence.notes.iter().any(|note| note.contains("nothing of an earlier boot"));
        assert!(is_told, "{form:?}: {evidence:?}");
        let (meta, data) = made.places[1];
        let meta = meta + form.addresses();
        // A sub-buffer that has a time but no size; a head that went on; another order.
        for (place, value) in [(data + SIZE, 7), (meta + 8, 3), (meta + 32, 1)] {
            let mut bytes = made.bytes.clone();
            put(&mut bytes, place, value, 4);
            let damaged = read(&bytes).unwrap().evidence();
            let is_told = damaged.notes.iter().any(|note| note.contains("of an earlier boot"));
            assert!(!is_told && damaged.has_losses(), "{form:?} {place}: {damaged:?}");
        }
    }
}

/// Wrong metadata cost no event: the sub-buffers are ordered by their time stamps.
#[test]
fn damaged_words_of_metadata_cost_nothing() {
    for (seed, form, made) in regions(60) {
        let mut random = Random(seed ^ 0x5555);
        let cpu = random.below(made.places.len() as u64) as usize;
        let meta = made.places[cpu].0 + form.addresses();
        for word in [8, 16, 32 + 4 * random.below(made.count as u64) as usize] {
            let mut bytes = made.bytes.clone();
            put(&mut bytes, meta + word, 0x7fff_fff0 + random.below(9), 4);
            let region = read(&bytes).unwrap();
            has(&region, &made.events, format_args!("{form:?} {seed} {word}"));
            assert!(!region.evidence().notes.is_empty(), "{form:?} {seed} {word}");
        }
    }
}

/// Where the head is damaged, nothing says which sub-buffers were written: those that have nothing
/// are told, but for the reader's.
#[test]
fn blank_sub_buffers_beside_damaged_metadata_are_told() {
    let mut told = BTreeSet::new();
    for (seed, form, made) in regions(60) {
        let mut random = Random(seed ^ 0x7777);
        let cpu = random.below(made.places.len() as u64) as usize;
        let (meta, data) = (made.places[cpu].0 + form.addresses(), made.places[cpu].1);
        let mut bytes = made.bytes.clone();
        put(&mut bytes, meta + 8, 0x7fff_fff0, 4);
        let gone = random.below(made.count as u64) as usize;
        bytes[data + gone * SIZE..][..SIZE].fill(0);
        let reader = u32::from_le_bytes(bytes[meta + 32..][..4].try_into().unwrap()) as usize;
        let is_blank =
            |number: &usize| bytes[data + number * SIZE..][..SIZE].iter().all(|byte| *byte == 0);
        let expected = (0..made.count).filter(is_blank).filter(|number| *number != reader).count();
        let evidence = read(&bytes).unwrap().evidence();
        let gaps = evidence.gaps.iter().filter(|gap| gap.stream == Some(cpu));
        let found = gaps.filter_map(|gap| {
            gap.place
                .split_once(" sub-buffers have nothing")
                .or(gap.place.split_once(" sub-buffer has nothing"))
        });
        let found: Vec<usize> =
            found.map(|(count, _)| count.split(' ').next().unwrap().parse().unwrap()).collect();
        let expected: Vec<usize> = (expected > 0).then_some(expected).into_iter().collect();
        assert_eq!(found, expected, "{form:?} {seed}: {evidence:?}");
        told.extend(found);
    }
    assert!(told.len() > 1, "{told:?}");
}

/// All metadata of a CPU, or the header that all CPUs have in common, are other bytes: the
/// sub-buffers stand in the order of their times.
#[test]
fn metadata_of_a_cpu_that_is_gone_costs_nothing() {
    for (seed, form, mut made) in regions(80).filter(|(_, _, made)| made.places.len() > 1) {
        let cpu = Random(seed ^ 0x99).below(made.places.len() as u64) as usize;
        let (mut begin, mut end) = made.places[cpu];
        if form == Form::Common && seed % 3 == 0 {
            (begin, end) = (0, SIZE);
        }
        made.bytes[begin..end].fill(if seed % 2 == 0 { 0 } else { 0xa5 });
        let region = read(&made.bytes).unwrap();
        has(&region, &made.events, format_args!("{form:?} {seed}, CPU {cpu}"));
        assert!(!region.evidence().notes.is_empty(), "{form:?} {seed}");
    }
}

/// Sub-buffers that a reader of the boot before had consumed, which newer kernels leave as they
/// are.
#[test]
fn what_was_read_before_the_reboot_is_offered_again() {
    let mut several = 0;
    for seed in 0..60 {
        let mut made = make(Form::Common, seed);
        for (cpu, (meta, data)) in made.places.iter().enumerate() {
            let Some(ring) = made.order[cpu].get(1..).filter(|ring| ring.len() > 2) else {
                continue;
            };
            let base = u64::from_le_bytes(made.bytes[*meta..meta + 8].try_into().unwrap());
            // The reader holds the newest that it has consumed. It stands before the head and
            // behind the consumed ones of the ring.
            let page = |number: usize| data + number * SIZE;
            let (reader, oldest) = (made.order[cpu][0], ring[0]);
            let of_reader: Vec<u8> = made.bytes[page(reader)..][..SIZE].to_vec();
            made.bytes.copy_within(page(oldest)..page(oldest) + SIZE, page(reader));
            made.bytes[page(oldest)..][..SIZE].copy_from_slice(&of_reader);
            put(&mut made.bytes, meta + 8, base + (ring[1] * SIZE) as u64, 8);
            several += 1;
        }
        let region = read(&made.bytes).unwrap();
        made.comes_back(&region, seed);
        assert!(!region.evidence().has_losses(), "{seed}: {:?}", region.evidence());
    }
    assert!(several > 20, "{several}");
}

/// A sub-buffer that Linux 6.12 emptied after a reader had consumed it: its events are not shown,
/// and a note says so.
#[test]
fn an_emptied_sub_buffer_is_noted() {
    for (seed, _, mut made) in regions(40) {
        let number = made.order[0][1];
        let emptied = made.pages.get(&(0, number)).filter(|events| !events.is_empty());
        let Some(emptied) = emptied.cloned() else { continue };
        assert!(
            !read(&made.bytes)
                .unwrap()
                .evidence()
                .notes
                .iter()
                .any(|note| note.contains("empty header"))
        );
        let commit = made.place(0, number) + 8;
        made.bytes[commit..commit + 8].fill(0);
        let region = read(&made.bytes).unwrap();
        has(&region, &(&made.events - &emptied), format_args!("{seed}"));
        let notes = region.evidence().notes;
        assert!(
            notes.iter().any(|note| note.starts_with("CPU 0: 1 sub-buffer has an empty header")),
            "{seed}: {notes:?}"
        );
    }
}

/// A full sub-buffer outside the chain, emptied: its events make a ring of their own and are not
/// among those of the last boot.
#[test]
fn emptied_sub_buffers_are_kept_apart() {
    let mut several = 0;
    for (seed, form, mut made) in regions(80) {
        let Some(number) = (0..made.count).find(|number| !made.order[0].contains(number)) else {
            continue;
        };
        let mut own = BTreeSet::new();
        let mut page = sub_buffer(&mut Random(seed), 0, &mut 5_000_000, &mut own);
        let at = 16 + usize::from(u16::from_le_bytes([page[8], page[9]]));
        put(&mut page, at, 29 | 1 << 5, 4);
        put(&mut page, at + 4, (SIZE - at - 4) as u64, 4);
        put(&mut page, 8, 0, 8);
        let begin = made.place(0, number);
        assert!(read(&made.bytes).unwrap().emptied().is_none());
        made.bytes[begin..begin + SIZE].copy_from_slice(&page);
        let region = read(&made.bytes).unwrap();
        has(&region, &made.events, format_args!("{form:?} {seed}"));
        let emptied = region.emptied().as_ref().map(set);
        assert!(emptied == Some(own), "{form:?} {seed}: {emptied:?}");
        several += 1;
    }
    assert!(several > 40, "{several}");
}

/// Every word of the metadata, one at a time, with random values: all events come back as they
/// were, or a loss is told; none is invented. `LASTWORDS_MUTANTS` regions of each form, from the
/// seed `LASTWORDS_SEED` on.
#[test]
fn mutated_metadata_invents_nothing() {
    let (count, first) = (setting("LASTWORDS_MUTANTS", 400), setting("LASTWORDS_SEED", 1));
    for form in [Form::PerCpu, Form::Common] {
        let mut complete = 0;
        for seed in first..first + count {
            let made = make(form, seed % 50);
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9));
            let cpu = random.below(made.places.len() as u64) as usize;
            let (meta, _) = made.places[cpu];
            let words = (form.fixed() + 4 * made.count) / 4;
            // The header that all CPUs have in common is metadata too.
            let at = match random.below(4) {
                0 if form == Form::Common => random.below(24) as usize * 4,
                _ => meta + random.below(words as u64) as usize * 4,
            };
            let old = u32::from_le_bytes(made.bytes[at..at + 4].try_into().unwrap());
            let new = match random.below(6) {
                0 => 0,
                1 => u32::MAX,
                2 => old ^ 1 << random.below(32),
                3 => old.wrapping_add(1),
                4 => old.wrapping_sub(SIZE as u32),
                _ => random.below(1 << 31) as u32 ^ old,
            };
            let mut bytes = made.bytes.clone();
            put(&mut bytes, at, u64::from(new), 4);
            // A region that cannot be recognised is refused aloud.
            let Ok(region) = read(&bytes) else { continue };
            let found = events(&region);
            let set = set(&region);
            let context =
                format!("{form:?}, seed {seed}: offset {at:#x}, {new:#x} in place of {old:#x}");
            assert_eq!(set.len(), found.len(), "{context}: an event comes twice");
            let invented = set.difference(&made.events).count();
            assert_eq!(invented, 0, "{context}: events are invented");
            let evidence = region.evidence();
            let lost = made.events.len() - set.len();
            assert!(
                lost == 0 || evidence.has_losses(),
                "{context}: {lost} events are lost, and nothing is told"
            );
            complete += u64::from(lost == 0);
        }
        assert!(
            complete * 100 >= count * 95,
            "{form:?}: {complete} of {count} mutants gave all events"
        );
    }
}

/// Regions in memory, at addresses that nothing tells, with other bytes between them; a copy of a
/// magic word alone is no region.
#[test]
fn regions_are_found_in_memory() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let (mut memory, mut expected) =
            (vec![0x5au8; SIZE * (1 + random.below(5) as usize)], Vec::new());
        put(&mut memory, 0, 0x38_0bad_feed, 8);
        for (index, form) in [Form::Common, Form::PerCpu, Form::Common].into_iter().enumerate() {
            let made = make(form, seed * 3 + index as u64);
            expected
                .push((memory.len() as u64..(memory.len() + made.bytes.len()) as u64, made.events));
            memory.extend_from_slice(&made.bytes);
            memory.resize(memory.len() + SIZE * random.below(3) as usize, 0);
        }
        let (image, budget) = (image(&memory), Budget::default());
        let found = persistent::find(image.as_ref(), &[], &budget, &unwatched).unwrap();
        assert_eq!(
            found,
            expected.iter().map(|(place, _)| place.clone()).collect::<Vec<_>>(),
            "{seed}"
        );
        for (place, truth) in expected {
            let region =
                persistent::read(&image, place.start, place.end - place.start, &[], &budget)
                    .unwrap();
            has(&region, &truth, format_args!("{seed}"));
            assert!(!region.evidence().has_losses(), "{seed}");
        }
    }
}

/// A region in memory is found at its own place although its first words, or the metadata of one of
/// several CPUs, are damaged.
#[test]
fn damaged_regions_are_found_in_memory() {
    let mut several = [0; 2];
    for seed in 0..60 {
        for form in [Form::Common, Form::PerCpu] {
            let made = make(form, seed);
            let mut bytes = made.bytes.clone();
            let has_others = form == Form::PerCpu && made.places.len() > 1 && seed % 2 == 1;
            if has_others {
                let (meta, data) = made.places[seed as usize / 2 % made.places.len()];
                bytes[meta..data].fill(0);
            } else {
                put(&mut bytes, 4 * (seed as usize / 2 % 2), 0, 4);
            }
            let begin = SIZE * 3;
            let mut memory = vec![0x5au8; begin];
            memory.extend_from_slice(&bytes);
            memory.extend_from_slice(&[0x5a; 2 * SIZE]);
            let (image, budget) = (image(&memory), Budget::default());
            let found = persistent::find(image.as_ref(), &[], &budget, &unwatched).unwrap();
            let place = begin as u64..(begin + bytes.len()) as u64;
            assert_eq!(found, std::slice::from_ref(&place), "{form:?} {seed} {has_others}");
            let region =
                persistent::read(&image, place.start, place.end - place.start, &[], &budget)
                    .unwrap();
            has(&region, &made.events, format_args!("{form:?} {seed}"));
            several[usize::from(has_others)] += 1;
        }
    }
    assert!(several.iter().all(|count| *count > 15), "{several:?}");
}

#[test]
fn any_bytes_end_in_an_answer() {
    for seed in 0..1500 {
        let form = if seed % 2 == 0 { Form::PerCpu } else { Form::Common };
        let mut bytes = make(form, seed % 40).bytes;
        let mut random = Random(seed);
        for _ in 0..1 + random.below(6) {
            let len = bytes.len() as u64;
            let at =
                if random.below(2) == 0 { random.below(256.min(len)) } else { random.below(len) }
                    as usize;
            bytes[at] = random.below(256) as u8;
        }
        if random.below(4) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        let _ = read(&bytes).map(|region| events(&region));
    }
}
