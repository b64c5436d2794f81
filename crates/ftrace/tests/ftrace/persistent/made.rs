//! Regions with events at random, and what comes back of them.

use lastwords_bytes::Budget;
use lastwords_ftrace::Ring;
use lastwords_ftrace::page::Events;
use lastwords_ftrace::persistent::{self, Members, Region};
use lastwords_image::{Image, open, unwatched};
use lastwords_testkit::form::Form;
use lastwords_testkit::layouts::Layout;
use lastwords_testkit::persistent::{Boot, Cpu, SIZE, put, region_of};
pub(crate) use lastwords_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

/// A CPU, a time and a payload.
pub(crate) type Event = (usize, u64, Vec<u8>);

/// A region that was made.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    pub(crate) events: BTreeSet<Event>,
    /// By CPU and number of the sub-buffer: the events of each.
    pub(crate) pages: BTreeMap<(usize, usize), BTreeSet<Event>>,
    /// Numbers of each CPU's sub-buffers, the oldest first.
    pub(crate) order: Vec<Vec<usize>>,
    /// Offset of each CPU's metadata, and of its sub-buffers.
    pub(crate) places: Vec<(usize, usize)>,
    pub(crate) count: usize,
}

impl Made {
    /// Offset of a sub-buffer.
    pub(crate) fn place(&self, cpu: usize, number: usize) -> usize {
        self.places[cpu].1 + number * SIZE
    }

    /// Offset in a sub-buffer of the end of its events, as its header has it.
    pub(crate) fn end(&self, cpu: usize, number: usize) -> usize {
        let commit = self.place(cpu, number) + 8;
        16 + usize::from(u16::from_le_bytes([self.bytes[commit], self.bytes[commit + 1]]))
    }

    /// Makes a sub-buffer zero.
    pub(crate) fn clear(&mut self, cpu: usize, number: usize) {
        let begin = self.place(cpu, number);
        self.bytes[begin..begin + SIZE].fill(0);
    }

    /// Makes a sub-buffer full: behind its events stands one padding up to its end, as a writer
    /// leaves it in front of an event that has no room.
    pub(crate) fn fill(&mut self, cpu: usize, number: usize) {
        let (begin, at) = (self.place(cpu, number), self.end(cpu, number));
        put(&mut self.bytes, begin + at, 29 | 1 << 5, 4);
        put(&mut self.bytes, begin + at + 4, (SIZE - at - 4) as u64, 4);
    }

    /// The ring of CPU 0 behind the reader's sub-buffer, the oldest first.
    pub(crate) fn ring(&self) -> Vec<usize> {
        self.order[0].get(1..).unwrap_or_default().to_vec()
    }

    /// The events but those of a sub-buffer.
    pub(crate) fn without(&self, cpu: usize, number: usize) -> BTreeSet<Event> {
        &self.events - &self.pages[&(cpu, number)]
    }

    /// Fails unless all events come back, each once, those of each CPU in the order of their times.
    #[track_caller]
    pub(crate) fn comes_back(&self, region: &Region, context: impl Display) {
        let found = events(region);
        in_order(&found, &context);
        assert_eq!(found.len(), self.events.len(), "{context}");
        has(region, &self.events, context);
    }
}

/// Regions of both forms from as many seeds.
pub(crate) fn regions(count: u64) -> impl Iterator<Item = (u64, Form, Made)> {
    (0..count)
        .flat_map(|seed| [Form::PerCpu, Form::Common].map(|form| (seed, form, make(form, seed))))
}

/// The first bytes of an event, the same in both byte orders: an id, flags, a counter, and a
/// process ID.
fn entry(random: &mut Random) -> [u8; 8] {
    let mut byte = |end| random.below(end) as u8;
    let (id, pid) = (1 + byte(254), byte(0x40));
    [id, id, byte(256), byte(256), 0, pid, pid, 0]
}

/// A sub-buffer that begins at `time`, with some events; the time of the last.
pub(crate) fn sub_buffer(
    random: &mut Random,
    cpu: usize,
    time: &mut u64,
    events: &mut BTreeSet<Event>,
) -> Vec<u8> {
    let mut page = vec![0; SIZE];
    *time += 1 + random.below(1000);
    put(&mut page, 0, *time, 8);
    let mut at = 16;
    for number in 0..1 + random.below(60) {
        let words = 2 + random.below(12) as usize;
        if at + 4 + words * 4 > SIZE {
            break;
        }
        let delta = if number == 0 { 0 } else { random.below(5000) };
        *time += delta;
        put(&mut page, at, words as u64 | delta << 5, 4);
        let mut payload: Vec<u8> = (0..words * 4).map(|_| random.below(256) as u8).collect();
        payload[..8].copy_from_slice(&entry(random));
        page[at + 4..at + 4 + words * 4].copy_from_slice(&payload);
        events.insert((cpu, *time, payload));
        at += 4 + words * 4;
    }
    put(&mut page, 8, at as u64 - 16, 8);
    page
}

/// A sub-buffer as another machine has it: of another byte order, or with another header.
fn page_of(layout: &Layout, page: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let word = |value: u32| if layout.is_big { value.to_be_bytes() } else { value.to_le_bytes() };
    let begin = layout.member("buffer_data_page", "data").0;
    let (time, commit) = ([number(0), number(4)], number(8));
    let mut other: Vec<u8> =
        if layout.is_big { [time[1], time[0]] } else { time }.into_iter().flat_map(word).collect();
    let zeroes = vec![0; layout.word - 4];
    let words = [word(commit).to_vec(), zeroes];
    other.extend(
        if layout.is_big { [&words[1][..], &words[0]] } else { [&words[0][..], &words[1]] }
            .concat(),
    );
    other.resize(begin, 0);
    let mut at = 16;
    while at < 16 + commit as usize {
        // Kind and time have their bits from the other end.
        let (kind, delta) = (number(at) & 31, number(at) >> 5);
        other.extend(word(if layout.is_big { kind << 27 | delta } else { number(at) }));
        other.extend(&page[at + 4..at + 4 + kind as usize * 4]);
        at += 4 + kind as usize * 4;
    }
    other
}

/// A region of a known layout.
pub(crate) fn make(form: Form, seed: u64) -> Made {
    make_of(&Layout::known(form, 8, false), seed)
}

/// A region of a layout: each CPU's ring stands anywhere in its order, and has come round where it
/// is full.
pub(crate) fn make_of(layout: &Layout, seed: u64) -> Made {
    let mut random = Random(seed);
    let (cpus, count) = (1 + random.below(3) as usize, 3 + random.below(9) as usize);
    let (mut pages, mut chains, mut rings) = (BTreeMap::new(), Vec::new(), Vec::new());
    for cpu in 0..cpus {
        // The numbers of sub-buffers in a random order: the reader's first.
        let mut order: Vec<usize> = (0..count).collect();
        (1..count).rev().for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
        let used = 1 + random.below(count as u64 - 1) as usize;
        let begin = random.below(count as u64 - 1) as usize;
        let ring: Vec<usize> = (0..used).map(|n| order[1 + (begin + n) % (count - 1)]).collect();
        let mut time = 1_000_000_000 + random.below(1000);
        let mut cpu_pages = BTreeMap::new();
        for number in [order[0]].iter().chain(&ring) {
            let mut events = BTreeSet::new();
            let page = sub_buffer(&mut random, cpu, &mut time, &mut events);
            cpu_pages.insert(*number, page_of(layout, &page));
            pages.insert((cpu, *number), events);
        }
        chains.push([order[0]].into_iter().chain(ring.iter().copied()).collect());
        rings.push(Cpu { order, head: ring[0], commit: *ring.last().unwrap(), pages: cpu_pages });
    }
    let modules = vec![(0xffff_ffff_c000_1000, "loop".to_owned())];
    let made = region_of(layout, &Boot { text: 0xffff_ffff_8120_0000, clock: 7, modules }, &rings);
    let events = pages.values().flatten().cloned().collect();
    Made { bytes: made.bytes, events, pages, order: chains, places: made.places, count }
}

/// Fails unless the region has these events and no others.
#[track_caller]
pub(crate) fn has(region: &Region, expected: &BTreeSet<Event>, context: impl Display) {
    let found = set(region);
    assert!(found == *expected, "{context}: {} of {}", found.len(), expected.len());
}

/// Fails unless the events of each CPU are in the order of their times.
#[track_caller]
pub(crate) fn in_order(found: &[Event], context: impl Display) {
    let is_in_order = |two: &[Event]| two[0].0 < two[1].0 || two[0].1 <= two[1].1;
    assert!(found.windows(2).all(is_in_order), "{context}");
}

pub(crate) fn image(bytes: &[u8]) -> Arc<dyn Image> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    open(file.path(), &Budget::default(), &unwatched).unwrap().image
}

pub(crate) fn read(bytes: &[u8]) -> Result<Region, String> {
    read_by(bytes, &[])
}

/// Reads a region by layouts that types gave.
pub(crate) fn read_by(bytes: &[u8], layouts: &[Members]) -> Result<Region, String> {
    let budget = Budget::default();
    persistent::read(&image(bytes), 0, bytes.len() as u64, layouts, &budget)
        .map_err(|error| error.to_string())
}

/// The events of a region, each once.
pub(crate) fn set(region: &Region) -> BTreeSet<Event> {
    events(region).into_iter().collect()
}

/// The events of a region, in its order.
pub(crate) fn events(region: &Region) -> Vec<Event> {
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    for (cpu, ring) in region.cpus().iter().enumerate() {
        for number in 0..ring.sub_buffers {
            let info = region.sub_buffer(cpu, number, &mut bytes);
            for event in
                Events::new(&bytes, region.header_page(), region.layout.byte_order, info.committed)
            {
                let event = event.unwrap();
                all.push((cpu, event.time, bytes[event.payload].to_vec()));
            }
        }
    }
    all
}
