//! Layouts that no kernel has, with the types that describe them: the events are those that the
//! known layouts give. Damaged types invent nothing.

use super::made::{Made, Random, events, has, image, make_of, read, read_by, set};
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_ftrace::Ring;
use lastwords_ftrace::persistent::{self, Members};
use lastwords_image::unwatched;
use lastwords_kernel::btf::{Btf, Types};
use lastwords_testkit::form::Form;
use lastwords_testkit::layouts::{Layout, Structure, Type};
use lastwords_testkit::random::setting;
use std::sync::Arc;

/// The layout by a kernel's types.
fn of_blob(blob: Vec<u8>) -> Result<Members, String> {
    let btf = Btf::parse(blob, None, &Budget::default()).map_err(|error| error.to_string())?;
    Members::of_types(&Types::new(Arc::new(btf)), None).map_err(|error| error.to_string())
}

fn machines() -> impl Iterator<Item = (Form, usize, bool)> {
    let forms = [Form::PerCpu, Form::Common].into_iter();
    forms.flat_map(|form| [(form, 8, false), (form, 8, true), (form, 4, false), (form, 4, true)])
}

/// An invented layout, and a region of it.
fn invent(seed: u64) -> (Layout, Made) {
    let (form, word, is_big) = machines().nth(seed as usize % 8).unwrap();
    let mut random = Random(seed ^ 0xbf58);
    let layout = Layout::invented(form, word, is_big, &mut |end| random.below(end as u64) as usize);
    let made = make_of(&layout, seed);
    (layout, made)
}

/// The types of Debian's kernels, as `pahole` shows them, give the layouts that need no types.
#[test]
fn types_of_known_kernels_give_the_known_layouts() {
    for (form, word, is_big) in machines() {
        let layout = Layout::known(form, word, is_big);
        let members = of_blob(layout.btf()).unwrap();
        assert!(members.is_known(), "{form:?} {word} {is_big}: {members:?}");
        let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
        assert_eq!((members.byte_order, usize::from(members.word_size)), (order, word));
        for seed in 0..20 {
            let made = make_of(&layout, seed);
            let region = read(&made.bytes).unwrap();
            assert_eq!(region.layout, members);
            has(&region, &made.events, format_args!("{form:?} {word} {is_big} {seed}"));
        }
    }
}

/// `LASTWORDS_LAYOUTS` layouts, from the seed `LASTWORDS_SEED` on.
#[test]
fn invented_layouts_are_read_by_their_types() {
    let (count, first) = (setting("LASTWORDS_LAYOUTS", 800), setting("LASTWORDS_SEED", 0));
    let mut needed = 0;
    for seed in first..first + count {
        let (layout, made) = invent(seed);
        let members =
            of_blob(layout.btf()).unwrap_or_else(|why| panic!("{seed}: {why}: {layout:?}"));
        assert!(!members.is_known(), "{seed}");
        let region = read_by(&made.bytes, &[members])
            .unwrap_or_else(|why| panic!("{seed}: {why}: {layout:?}"));
        assert_eq!(region.layout, members, "{seed}");
        made.comes_back(&region, format_args!("{seed}: {layout:?}"));
        let evidence = region.evidence();
        assert!(!evidence.has_losses() && evidence.notes.is_empty(), "{seed}: {evidence:?}");
        let mask = if layout.word == 8 { u64::MAX } else { u32::MAX.into() };
        assert_eq!(region.boot.text_address, Some(0xffff_ffff_8120_0000 & mask), "{seed}");
        if layout.form == Form::Common {
            assert_eq!(region.boot.clock, Some(7), "{seed}");
            let modules: Vec<_> = region
                .boot
                .modules
                .iter()
                .map(|module| (module.address, &module.name[..]))
                .collect();
            assert_eq!(modules, [(0xffff_ffff_c000_1000 & mask, "loop")], "{seed}");
        }
        // Without the types it is searched long, so only for some.
        if seed % 17 == 0 {
            let without = read(&made.bytes).err().unwrap_or_default();
            assert!(without.contains("expected the magic word"), "{seed}: {without}");
            needed += 1;
        }
    }
    println!(
        "{count} layouts from seed {first} on; {needed} were tried without their types, and none of them was read"
    );
}

/// Regions of invented layouts in memory, behind bytes that are none, and beside regions of known
/// layouts.
#[test]
fn regions_of_invented_layouts_are_found_in_memory() {
    for seed in 0..80 {
        let (layout, made) = invent(seed);
        let members = of_blob(layout.btf()).unwrap();
        let known = make_of(&Layout::known(layout.form, 8, false), seed);
        let mut memory = vec![0x5au8; 4096 * (1 + seed as usize % 3)];
        let mut expected = Vec::new();
        for made in [&known, &made] {
            let begin = memory.len() as u64;
            memory.extend_from_slice(&made.bytes);
            expected.push((begin..memory.len() as u64, made.events.clone()));
            memory.resize(memory.len() + 4096, 0x5a);
        }
        let (image, budget) = (image(&memory), Budget::default());
        let found = persistent::find(image.as_ref(), &[members], &budget, &unwatched).unwrap();
        let places: Vec<_> = expected.iter().map(|(place, _)| place.clone()).collect();
        assert_eq!(found, places, "{seed}: {layout:?}");
        for (place, truth) in expected {
            let len = place.end - place.start;
            let region = persistent::read(&image, place.start, len, &[members], &budget).unwrap();
            has(&region, &truth, format_args!("{seed}"));
        }
    }
}

/// A word of the metadata, or all metadata of a CPU, are other bytes in an invented layout: that
/// costs as little as in a known one.
#[test]
fn damage_in_an_invented_layout_costs_nothing() {
    for seed in 0..160 {
        let (layout, mut made) = invent(seed);
        let members = of_blob(layout.btf()).unwrap();
        let mut random = Random(seed ^ 0x3333);
        let (meta, data) = made.places[random.below(made.places.len() as u64) as usize];
        let of_cpu =
            if layout.form == Form::Common { "ring_buffer_cpu_meta" } else { "ring_buffer_meta" };
        let sizes = if layout.form == Form::Common { "struct_sizes" } else { "struct_size" };
        let damaged = match seed / 8 % 5 {
            0 => layout.member("ring_buffer_meta", "magic"),
            1 => layout.member("ring_buffer_meta", sizes),
            2 => (meta + layout.member(of_cpu, "head_buffer").0, 4),
            3 => (meta + layout.member(of_cpu, "buffers").0 + 4, 4),
            _ if made.places.len() > 1 => (meta, data - meta),
            _ => continue,
        };
        made.bytes[damaged.0..damaged.0 + damaged.1].fill(0xf1);
        let region = read_by(&made.bytes, &[members]).unwrap_or_else(|why| panic!("{seed}: {why}"));
        has(&region, &made.events, format_args!("{seed} {damaged:?}"));
        assert!(!region.evidence().notes.is_empty(), "{seed}");
    }
}

/// Two members of a CPU that a kernel after 7.3 adds before the table.
#[test]
fn members_of_a_newer_kernel_are_passed_over() {
    let layout = Layout::newer();
    let members = of_blob(layout.btf()).unwrap();
    for seed in 0..20 {
        let made = make_of(&layout, seed);
        let region = read_by(&made.bytes, &[members]).unwrap();
        has(&region, &made.events, format_args!("{seed}"));
        assert!(region.evidence().notes.is_empty(), "{seed}");
    }
}

/// A scratch area without a clock, which has the same sizes as that of known kernels: only the
/// types can tell. Without them the address of the code is not made of another word; and the types
/// of such a kernel are not believed of a region that has a clock.
#[test]
fn a_scratch_area_without_a_clock_is_told_by_types_alone() {
    let known = Layout::known(Form::Common, 8, false);
    let mut without = known.clone();
    let own =
        without.structures.iter_mut().find(|structure| structure.name == "trace_scratch").unwrap();
    let (number, rows) = (Type::Number(8), Type::Rows("trace_mod_entry"));
    *own = Structure::new(
        "trace_scratch",
        &[("text_addr", number), ("nr_entries", number), ("entries", rows)],
    );
    let types = of_blob(without.btf()).unwrap();
    for seed in 0..20 {
        let (made, of_known) = (make_of(&without, seed), make_of(&known, seed));
        let (right, bare) = (read_by(&made.bytes, &[types]).unwrap(), read(&made.bytes).unwrap());
        let other = read_by(&of_known.bytes, &[types]).unwrap();
        for (region, truth) in [(&right, &made), (&bare, &made), (&other, &of_known)] {
            has(region, &truth.events, format_args!("{seed}"));
        }
        assert_eq!((right.layout, other.layout.is_known()), (types, true), "{seed}");
        assert_eq!(
            (right.boot.text_address, right.boot.clock),
            (Some(0xffff_ffff_8120_0000), None),
            "{seed}"
        );
        assert_eq!(right.boot.modules, other.boot.modules, "{seed}");
        assert!(right.evidence().notes.iter().any(|note| note.contains("not the clock")), "{seed}");
        assert_eq!((bare.boot.text_address, bare.boot.modules.len()), (None, 0), "{seed}");
        assert!(
            bare.evidence().notes.iter().any(|note| note.contains("in place of the address")),
            "{seed}"
        );
    }
}

/// Checks the events that came back by wrong types: each was recorded and comes once, and a loss is
/// told.
fn judge(made: &Made, members: Members, context: &str) -> bool {
    let Ok(region) = read_by(&made.bytes, &[members]) else { return false };
    let found = events(&region);
    let set = set(&region);
    assert_eq!(set.len(), found.len(), "{context}: an event comes twice");
    assert!(set.is_subset(&made.events), "{context}: events are invented");
    let evidence = region.evidence();
    let lost = made.events.len() - set.len();
    assert!(
        lost == 0 || evidence.has_losses(),
        "{context}: {lost} events are lost, and nothing is told: {evidence:?}"
    );
    true
}

/// A member is at another place, or of another size, or is not there; a structure has another size.
#[test]
fn damaged_types_invent_nothing() {
    let (mut refused, mut read) = (0, 0);
    for seed in 0..1000 {
        let (mut layout, made) = invent(seed % 160);
        let mut random = Random(seed ^ 0x77);
        let index = random.below(layout.structures.len() as u64) as usize;
        let structure = &mut layout.structures[index];
        let member = random.below(structure.members.len() as u64) as usize;
        match random.below(6) {
            0 => structure.members[member].at = random.below(structure.size as u64 + 8) as usize,
            1 => {
                let other = random.below(structure.members.len() as u64) as usize;
                let at = structure.members[other].at;
                structure.members[other].at =
                    std::mem::replace(&mut structure.members[member].at, at);
            }
            2 => _ = structure.members.remove(member),
            3 => {
                structure.members[member].of =
                    Type::Number([1, 2, 4, 8, 16][random.below(5) as usize])
            }
            4 => structure.size = random.below(2 * structure.size as u64) as usize,
            _ => structure.members[member].at = usize::MAX >> 36,
        }
        match of_blob(layout.btf()) {
            Ok(members) => read += u64::from(judge(&made, members, &format!("{seed}: {layout:?}"))),
            Err(_) => refused += 1,
        }
    }
    println!("{refused} damaged types were refused, regions were read by {read}");
    assert!(refused > 300 && read > 100, "{refused} {read}");
}

/// Any byte of a blob is another: it is refused, or what it describes invents nothing.
#[test]
fn damaged_blobs_invent_nothing() {
    let (mut refused, mut read) = (0, 0);
    for seed in 0..1000 {
        let (layout, made) = invent(seed % 80);
        let (mut blob, mut random) = (layout.btf(), Random(seed ^ 0x1111));
        for _ in 0..1 + random.below(3) {
            let at = random.below(blob.len() as u64) as usize;
            blob[at] = if random.below(2) == 0 {
                random.below(256) as u8
            } else {
                blob[at] ^ 1 << random.below(8)
            };
        }
        match of_blob(blob) {
            Ok(members) => read += u64::from(judge(&made, members, &format!("{seed}"))),
            Err(_) => refused += 1,
        }
    }
    println!("{refused} damaged blobs were refused, regions were read by {read}");
    assert!(refused > 100 && read > 100, "{refused} {read}");
}
