//! Inputs as edits of synthetic images, so that an input is small and most of what it makes is
//! worth a look.

use std::sync::OnceLock;

use lastwords_testkit::image::Image;
use lastwords_testkit::layout::session as se;
use lastwords_testkit::mutate::{self, Arena, EDGES, Field};
use lastwords_testkit::put::Order;
use lastwords_testkit::ring::{DeadSwitch, Form};
use lastwords_testkit::samples;
use lastwords_testkit::session::{ChannelSpec, Session};

/// Takes numbers from the front of an input; zeroes when it is used up.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(crate) fn u64(&mut self) -> u64 {
        (0..8).fold(0, |v, i| v | u64::from(self.u8()) << (8 * i))
    }

    pub(crate) fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}

/// The session that a number stands for.
pub(crate) fn sample(n: u8) -> Session {
    let order = if n & 0x40 == 0 { Order::Little } else { Order::Big };
    match n % 8 {
        0 => samples::small(order),
        1 => samples::one_stream(se::RSEQ, 512, 4, 2),
        2 => samples::one_stream(se::LOCKLESS, 512, 4, 6),
        3 => samples::one_stream(se::LOCKED, 1024, 2, 5),
        4 => samples::with_holes(512, 4, 3, 0b101),
        5 => samples::dead_switch(DeadSwitch::Reserved, 6),
        6 => samples::dead_switch(DeadSwitch::HeaderWritten, 0),
        _ => samples::dead_switch(DeadSwitch::Left, 30),
    }
}

/// An image that edits begin from, and its fields.
struct Base {
    image: Image,
    arena: Arena,
    fields: Vec<Field>,
}

/// The base that a number stands for; made once.
fn base(n: u8) -> &'static Base {
    static BASES: [OnceLock<Base>; 16] = [const { OnceLock::new() }; 16];
    let index = usize::from(n % 8) + if n & 0x40 == 0 { 0 } else { 8 };
    BASES[index].get_or_init(|| {
        let image = sample(n).image();
        Base { arena: Arena::new(&image), fields: mutate::fields(&image), image }
    })
}

/// Which regions edits may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// All.
    Arena,
    /// Those whose name begins so.
    Named(&'static str),
}

/// An arena as the input says: a sample (or, with 0xff first, the bytes of the input), then edits.
pub fn arena(data: &[u8], area: Area) -> Vec<u8> {
    let mut input = Input::new(data);
    let first = input.u8();
    if first == 0xff {
        return input.rest().to_vec();
    }
    let Base { image, arena, fields } = base(first);
    let mut arena = arena.clone();
    let fields: Vec<&Field> = fields.iter().filter(|f| touches(image, f.region, area)).collect();
    let regions: Vec<usize> =
        (0..image.regions.len()).filter(|r| touches(image, *r, area)).collect();
    for _ in 0..64 {
        if input.is_empty() || regions.is_empty() || fields.is_empty() {
            break;
        }
        edit(&mut input, image, &mut arena, &fields, &regions);
    }
    arena.bytes
}

fn touches(image: &Image, region: usize, area: Area) -> bool {
    match area {
        Area::Arena => true,
        Area::Named(name) => image.regions[region].name.starts_with(name),
    }
}

fn edit(
    input: &mut Input<'_>,
    image: &Image,
    arena: &mut Arena,
    fields: &[&Field],
    regions: &[usize],
) {
    let region = regions[usize::from(input.u8()) % regions.len()];
    let (at, len, _) = arena.regions[region];
    let end = arena.bytes.len();
    match input.u8() % 8 {
        0 | 1 => {
            let field = fields[usize::from(input.u16()) % fields.len()];
            let value = arena.edge(field, usize::from(input.u8()) % EDGES);
            if field.at + field.width <= end {
                arena.set(field, value);
            }
        }
        2 => {
            let field = fields[usize::from(input.u16()) % fields.len()];
            let value = input.u64();
            if field.at + field.width <= end {
                arena.set(field, value);
            }
        }
        3 | 4 => {
            let from = at + usize::from(input.u16()) % len;
            let n = usize::from(input.u8() % 32);
            for (i, byte) in input.take(n).iter().enumerate() {
                if let Some(b) = arena.bytes.get_mut(from + i) {
                    *b = *byte;
                }
            }
        }
        5 if at + len <= end => arena.seal(region),
        6 if at + len <= end => {
            arena.seal_records(region);
            for spot in image.spots.iter().filter(|s| s.region == region) {
                arena.seal_packet(image.spot_in_arena(spot), spot.len);
            }
        }
        _ => {
            let keep = usize::from(input.u16()) % len;
            if input.u8() == 0x5a {
                arena.bytes.truncate(at + keep);
            }
        }
    }
}

/// A session that was recorded step by step as the input says, with deaths, clears and swaps. None
/// of it is damage: a reader must find exactly its truth.
pub fn recorded(data: &[u8]) -> Session {
    let mut input = Input::new(data);
    let shape = input.u8();
    let reservation = [se::RSEQ, se::LOCKLESS, se::LOCKED, se::LOCKLESS][usize::from(shape % 4)];
    let mut s = Session::new("recorded", reservation);
    s.order = if shape & 0x80 == 0 { Order::Little } else { Order::Big };
    s.threads = 12;
    let mut spec = ChannelSpec::new("main", 512 << (shape >> 2 & 1), 2 << (shape >> 3 & 1));
    spec.flags = u32::from(shape >> 4 & 1);
    spec.mode = if shape & 0x20 == 0 { se::OVERWRITE } else { se::DISCARD };
    let channel = s.channel(spec);
    samples::describe(&mut s, channel);
    s.stream(channel, 0, reservation);
    let (mut clock, mut n, mut owner) = (5000u64, 0u32, 5u64);
    while !input.is_empty() && n < 600 {
        let op = input.u8();
        clock += u64::from(op) * if op & 0x80 == 0 { 3 } else { 1 << 21 };
        n += 1;
        let event = samples::event(s.order, n, clock, &[]);
        let lockless = reservation == se::LOCKLESS;
        let overwrite = shape & 0x20 == 0;
        let ring = &mut s.rings[0];
        // A recorder that died in a discarding ring may find no room for its hole: only overwriting
        // ones die.
        match op % 16 {
            0 if lockless && overwrite && owner < 40 => {
                ring.die_with_hole(owner, clock, usize::from(op) / 2);
                owner += 1;
            }
            1 if lockless && overwrite && owner < 40 => {
                ring.die_copied(owner, &event, op & 0x40 != 0);
                owner += 1;
            }
            2 if lockless && owner < 40 => {
                ring.die_announced(owner, 40);
                owner += 1;
            }
            3 if lockless
                && overwrite
                && owner < 40
                && !ring.halves[ring.live].position.is_multiple_of(ring.spec.size) =>
            {
                let how = [DeadSwitch::Reserved, DeadSwitch::HeaderWritten, DeadSwitch::Left];
                ring.die_switching(owner, clock, how[usize::from(op >> 4) % 3]);
                owner += 1;
            }
            4 if op & 0x30 == 0 => ring.clear(),
            5 if op & 0x30 == 0 => s.snapshot(),
            6 => {
                ring.push_as(&event, Form::Full);
            }
            _ => {
                ring.push(&event);
            }
        }
    }
    s
}
