//! Every field with 12 edge values, every pair of a length and an offset of one region, with and
//! without the checksums put right. No panic, no hang, no allocation beyond 256 MiB; the result is
//! events and evidence, or a located error.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Bytes, Watchdog, late_differs, walk_bytes};
use lastwords_testkit::mutate::{Arena, EDGES, Field, Role, fields};
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;

/// Longest that one mutant may take.
const LIMIT: Duration = Duration::from_secs(5);

/// One mutant: fields and edge values, and whether checksums are put right.
struct Mutant {
    set: Vec<(usize, usize)>,
    sealed: bool,
}

fn mutants(fields: &[Field]) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (f, _) in fields.iter().enumerate() {
        for edge in 0..EDGES {
            all.push(Mutant { set: vec![(f, edge)], sealed: true });
            all.push(Mutant { set: vec![(f, edge)], sealed: false });
        }
    }
    for (l, length) in fields.iter().enumerate().filter(|(_, f)| f.role == Role::Length) {
        let partner =
            |f: &&(usize, &Field)| f.1.role == Role::Offset && f.1.region == length.region;
        for (o, _) in fields.iter().enumerate().filter(|f| partner(&f)) {
            for pair in 0..EDGES * EDGES {
                all.push(Mutant { set: vec![(l, pair / EDGES), (o, pair % EDGES)], sealed: true });
            }
        }
    }
    all
}

/// In one of so many cases, the checksums are compared when packets are delivered, too.
const LATE: u64 = 7;

#[test]
fn every_field_and_every_pair_of_length_and_offset() {
    let session = samples::small(Order::Little);
    let image = session.image();
    let fields = fields(&image);
    let arena = Arena::new(&image);
    let mutants = mutants(&fields);
    assert!(mutants.len() >= 20_000, "{} mutants", mutants.len());
    let right = walk_bytes(&arena.bytes).expect("a whole image");
    let watchdog = Watchdog::new("every field", LIMIT * 2);
    let slow = common::parallel(mutants.len() as u64, |case| {
        let mutant = &mutants[case as usize];
        watchdog.case(case);
        let mut hostile = arena.clone();
        let mut names = String::new();
        for (f, edge) in &mutant.set {
            let field = &fields[*f];
            let value = hostile.edge(field, *edge);
            hostile.set(field, value);
            names += &format!("{} = {value:#x} ", field.name);
            if mutant.sealed {
                seal(&mut hostile, &image, field);
            }
        }
        let begun = Instant::now();
        match walk_bytes(&hostile.bytes) {
            Ok(found) => {
                assert!(found.events() <= hostile.bytes.len(), "{names}: more events than bytes");
                // A forged checksum makes a forged sub-buffer a sound one.
                let lost = !mutant.sealed && found.events() < right.events();
                assert!(
                    !lost || found.evidence != right.evidence,
                    "{names}: fewer events and nothing says so"
                );
            }
            Err(error) => {
                assert!(error.to_string().contains("image"), "{names}: {error} has no place")
            }
        }
        if case % LATE == 0
            && let Some(why) =
                late_differs(Bytes::new(hostile.bytes.as_slice().into(), hostile.bytes.len(), None))
        {
            return Some(format!("{names}: compared late, {why}"));
        }
        (begun.elapsed() > LIMIT).then_some(names)
    });
    let wrong: Vec<String> = slow.into_iter().filter_map(|(_, why)| why).collect();
    assert!(wrong.is_empty(), "more than {LIMIT:?}, or compared late: {wrong:?}");
}

/// Puts right whatever checksum covers the field.
fn seal(arena: &mut Arena, image: &lastwords_testkit::image::Image, field: &Field) {
    for spot in image.spots.iter().filter(|s| s.region == field.region) {
        let at = image.spot_in_arena(spot);
        let in_body = (at..at + spot.len - 8).contains(&field.at);
        if in_body {
            arena.seal_packet(at, spot.len);
        }
    }
    if !field.name.ends_with("CHECK_AT") {
        if field.name.starts_with("registry") {
            arena.seal_records(field.region);
        }
        arena.seal(field.region);
    }
}
