//! Ring buffers: every record that was submitted is there, and every other one is accounted for.

use crate::made::{CONSUMER, DATA, Made, OVERWRITTEN, PRODUCER};
use crate::memory::{Regions, causes};
use lastwords_bpf::{Bpf, Content, Record, State};
use lastwords_trace::evidence::{Cause, Gap};

const SIZE: u64 = 0x4000;
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;

/// A program that writes numbered records, and what it has written.
struct Writer {
    ring: u64,
    at: u64,
    /// Position, state and data of all records.
    all: Vec<(u64, State, Vec<u8>)>,
}

impl Writer {
    fn new(ring: u64) -> Self {
        Self { ring, at: 0, all: Vec::new() }
    }

    /// Writes one record, with the bits of its length word.
    fn write(&mut self, memory: &mut Regions, len: usize, bits: u32) {
        let number = self.all.len();
        let data: Vec<u8> = (0..len).map(|n| (number * 7 + n) as u8 | 1).collect();
        let header = self.ring + DATA + self.at % SIZE;
        memory.put_u32(header, len as u32 | bits);
        memory.put_u32(header + 4, ((header - self.ring) >> 12) as u32);
        for (n, byte) in (self.at + 8..).zip(&data) {
            memory.put(self.ring + DATA + n % SIZE, &[*byte]);
        }
        let state = match bits {
            0 => State::Committed,
            BUSY => State::InFlight,
            _ => State::Discarded,
        };
        self.all.push((self.at, state, data));
        self.at += 8 + (len as u64).next_multiple_of(8);
        memory.put_u64(self.ring + PRODUCER, self.at);
    }

    /// Returns the records from a position on, as a reader must find them.
    fn from(&self, position: u64) -> Vec<Record> {
        let of = |(position, state, data): &(u64, State, Vec<u8>)| Record {
            position: *position,
            state: *state,
            len: data.len() as u32,
            bytes: if *state == State::Committed { data.clone() } else { Vec::new() },
        };
        self.all.iter().filter(|row| row.0 >= position).map(of).collect()
    }

    fn position(&self, record: usize) -> u64 {
        self.all[record].0
    }
}

/// Returns the records of the only map, and the gaps.
fn read(made: &Made) -> (Vec<Record>, Vec<Gap>) {
    let kernel = made.finished().open();
    let mut bpf = Bpf::read(&kernel);
    let mut records = Vec::new();
    for map in bpf.maps.clone() {
        let take = &mut |content| {
            if let Content::Record(record) = content {
                records.push(record);
            }
            Ok(())
        };
        assert!(bpf.content(&map, take).unwrap());
    }
    (records, bpf.evidence.gaps)
}

fn made() -> (Made, Writer) {
    let mut made = Made::default();
    let (_, ring) = made.ring("events", SIZE);
    (made, Writer::new(ring))
}

#[test]
fn records_from_the_consumer_to_the_producer() {
    let (mut made, mut writer) = made();
    for (len, bits) in [(24, 0), (1, 0), (0, 0), (17, DISCARD), (40, BUSY), (300, 0)] {
        writer.write(&mut made.memory, len, bits);
    }
    made.memory.put_u64(writer.ring + CONSUMER, writer.position(2));
    let (records, gaps) = read(&made);
    assert_eq!(records, writer.from(writer.position(2)));
    let consumed = (Cause::Consumed, Some(2), Some(writer.position(2)));
    assert_eq!(causes(&gaps), [(Cause::InFlight, Some(1), Some(40)), consumed]);
}

/// A ring that came round: the newest record goes on at the start of the data.
#[test]
fn a_record_goes_on_at_the_start() {
    let (mut made, mut writer) = made();
    while writer.at < 3 * SIZE {
        writer.write(&mut made.memory, 1000, 0);
    }
    let first = writer.from(writer.at - SIZE)[0].position;
    made.memory.put_u64(writer.ring + CONSUMER, first);
    let (records, gaps) = read(&made);
    assert_eq!(records, writer.from(first));
    assert!(records.iter().any(|r| r.position % SIZE + 1008 > SIZE), "none goes round");
    assert_eq!(causes(&gaps), [(Cause::Consumed, None, Some(first))]);
}

#[test]
fn overwrite_mode_begins_at_the_oldest_that_is_left() {
    let (mut made, mut writer) = made();
    while writer.at < 2 * SIZE {
        writer.write(&mut made.memory, 100, 0);
    }
    let first = writer.from(writer.at - SIZE)[0].position;
    made.memory.put(writer.ring + 72, &[1]);
    made.memory.put_u64(writer.ring + OVERWRITTEN, first);
    made.memory.put_u64(writer.ring + CONSUMER, writer.position(3));
    let (records, gaps) = read(&made);
    assert_eq!(records, writer.from(first));
    let bytes = first - writer.position(3);
    let overwritten = (Cause::Overwritten, None, Some(bytes));
    assert_eq!(causes(&gaps), [(Cause::Consumed, None, None), overwritten]);
    // A consumer that is ahead has read some of those that are left.
    let ahead = writer.from(first)[5].position;
    made.memory.put_u64(writer.ring + CONSUMER, ahead);
    let (records, gaps) = read(&made);
    assert_eq!(records, writer.from(ahead));
    assert_eq!(causes(&gaps), [(Cause::Consumed, None, None)]);
}

/// Each page that is taken away, or that reads as zero, costs the records that begin or go on in it.
#[test]
fn a_page_costs_only_itself() {
    let (mut made, mut writer) = made();
    for n in 0..130 {
        writer.write(&mut made.memory, 100 + n % 9, 0);
    }
    assert!(writer.at < SIZE);
    for page in 0..SIZE / 4096 {
        for is_zero in [false, true] {
            let mut damaged = made.clone();
            let place = writer.ring + DATA + page * 4096;
            match is_zero {
                true => damaged.memory.put(place, &[0; 4096]),
                false => damaged.memory.drop(place),
            }
            let (records, gaps) = read(&damaged);
            let touches = |r: &&Record| {
                let last = r.position + 8 + u64::from(r.len) - 1;
                r.position >> 12 == page || last >> 12 == page
            };
            let all = writer.from(0);
            let whole: Vec<_> = all.iter().filter(|r| !touches(r)).cloned().collect();
            assert_eq!(records, whole, "page {page}, zero: {is_zero}");
            assert!(gaps.iter().any(|gap| gap.cause == Cause::Missing), "page {page}: {gaps:?}");
            let lost: u64 = gaps.iter().filter_map(|gap| gap.bytes).sum();
            assert!(lost <= 4096 + 2 * 120, "{gaps:?}");
        }
    }
}

/// User space may write the consumer's position.
#[test]
fn a_wrong_position_costs_no_record() {
    let (mut made, mut writer) = made();
    while writer.at < 2 * SIZE {
        writer.write(&mut made.memory, 100, 0);
    }
    for wrong in [writer.at + 8, 3, u64::MAX, 0] {
        made.memory.put_u64(writer.ring + CONSUMER, wrong);
        let (records, gaps) = read(&made);
        // The first record that is whole in memory.
        assert_eq!(records, writer.from(writer.at - SIZE), "{wrong}");
        assert!(gaps[0].place.contains("consumer_pos") && gaps[0].cause == Cause::Unknown);
    }
    made.memory.drop(writer.ring + CONSUMER);
    assert_eq!(read(&made).0, writer.from(writer.at - SIZE));
}

/// A length that was damaged costs its record, and the address of the header is told.
#[test]
fn a_damaged_header_costs_its_record() {
    let (mut made, mut writer) = made();
    (0..20).for_each(|_| writer.write(&mut made.memory, 64, 0));
    let header = writer.ring + DATA + writer.position(7);
    for wrong in [u32::MAX >> 2, 65_000, 56] {
        made.memory.put_u32(header, wrong);
        let (records, gaps) = read(&made);
        let expected: Vec<_> =
            writer.from(0).into_iter().filter(|r| r.position != writer.position(7)).collect();
        let found: Vec<_> =
            records.into_iter().filter(|r| r.position != writer.position(7)).collect();
        assert_eq!(found, expected, "{wrong}");
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert!(gaps[0].cause == Cause::Damaged);
    }
    made.memory.put_u32(header, 65_000);
    let (_, gaps) = read(&made);
    assert!(gaps[0].place.contains(&format!("{header:#x}")), "{gaps:?}");
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let (mut made, mut writer) = made();
    writer.write(&mut made.memory, 64, 0);
    // The last is that of a page that reads as zero.
    for (offset, value) in [(64, 0x5fff), (64, u64::MAX), (64, 7), (PRODUCER, 71), (PRODUCER, 0)] {
        let mut damaged = made.clone();
        damaged.memory.put_u64(writer.ring + offset, value);
        let (records, gaps) = read(&damaged);
        assert!(records.is_empty());
        assert_eq!((gaps.len(), gaps[0].events), (1, None), "{gaps:?}");
    }
}

/// In a ring of user space, the headers are its own: no page is in them.
#[test]
fn rings_that_user_space_writes() {
    let (mut made, mut writer) = made();
    (0..5).for_each(|_| writer.write(&mut made.memory, 64, 0));
    for n in 0..5 {
        made.memory.put_u32(writer.ring + DATA + writer.position(n) + 4, 0);
    }
    assert!(read(&made).0.is_empty(), "without their pages they are no headers of the kernel");
    let map = *made.memory.all().first().unwrap();
    let map = made.memory.all().into_iter().find(|at| *at >= 0xffff_8880_0000_0000).unwrap_or(map);
    made.memory.put_u32(map + 8, 31);
    assert_eq!(read(&made).0, writer.from(0));
}
