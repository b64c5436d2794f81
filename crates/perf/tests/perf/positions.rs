//! Each committed record that was not consumed or overwritten is there; all others are accounted for.

use crate::made::{Made, RING, SIZE, USER, lost, sample};
use crate::memory::causes;
use lastwords_trace::evidence::Cause;

#[test]
fn unread_records_are_found_and_described() {
    let mut made = Made::new(false);
    made.fill(150);
    made.consume(40);
    let (records, gaps) = made.read();
    assert_eq!(records, made.written(40..150));
    let consumed = made.all[40].0;
    assert_eq!(causes(&gaps), [(Cause::Consumed, None, Some(consumed))]);
    let report = made.open().report();
    let [row] = report.buffers.as_slice() else { panic!("{report:?}") };
    assert_eq!((row.buffer.owner.pid, row.buffer.owner.comm.as_str()), (7, "perf"));
    assert_eq!((row.buffer.cpu, row.buffer.size), (Some(3), SIZE));
    assert_eq!(row.records.values().sum::<u64>(), 110);
    assert_eq!(row.records["comm"], (40..150).filter(|n| n % 7 == 3).count() as u64);
    let ids: Vec<(u64, u64)> = row.buffer.events.iter().map(|e| (e.id, e.config)).collect();
    assert_eq!(ids, [(41, 301), (42, 302)]);
}

/// The data came round more than once.
#[test]
fn a_ring_that_wrapped_is_read_from_the_readers_position() {
    let mut made = Made::new(false);
    made.fill(600);
    let from = made.all.iter().position(|(at, _)| at + SIZE >= made.all[599].0 + 400).unwrap();
    made.consume(from);
    assert_eq!(made.read().0, made.written(from..600));
}

#[test]
fn a_buffer_in_overwrite_mode_is_read_from_its_newest_record() {
    let mut made = Made::new(true);
    made.fill(600);
    let (records, gaps) = made.read();
    let head = made.all[599].0;
    let is_whole =
        |(at, bytes): &&(u64, Vec<u8>)| at.wrapping_sub(head) + bytes.len() as u64 <= SIZE;
    let count = made.all.iter().filter(is_whole).count();
    assert!(count > 100 && records == made.written(600 - count..600));
    let overwritten = 0u64.wrapping_sub(head) - SIZE;
    assert_eq!(causes(&gaps), [(Cause::Overwritten, None, Some(overwritten))]);
}

/// One that never came round ends at position 0.
#[test]
fn a_young_buffer_in_overwrite_mode_is_whole() {
    let mut made = Made::new(true);
    made.fill(50);
    let (records, gaps) = made.read();
    assert_eq!((records, gaps), (made.written(0..50), Vec::new()));
}

#[test]
fn a_record_that_is_being_written_is_in_flight() {
    for is_backward in [false, true] {
        let mut made = Made::new(is_backward);
        made.fill(if is_backward { 600 } else { 50 });
        let committed = made.all.len();
        made.reserve(sample(1000, 40));
        made.reserve(sample(1001, 40));
        made.memory.put(RING + 16, &[1]);
        let bytes: usize = made.all[committed..].iter().map(|(_, bytes)| bytes.len()).sum();
        let (records, gaps) = made.read();
        let newest = if is_backward { records.first() } else { records.last() };
        assert_eq!(newest, made.all.get(committed - 1));
        assert_eq!(causes(&gaps)[0], (Cause::InFlight, None, Some(bytes as u64)));
        // What they overwrote is not there any more.
        let newest = made.all[committed + 1].0;
        let end = |(at, bytes): &(u64, Vec<u8>)| at.wrapping_sub(newest) + bytes.len() as u64;
        assert!(!is_backward || records.iter().all(|record| end(record) <= SIZE));
    }
}

#[test]
fn losses_are_told() {
    let mut made = Made::new(false);
    made.fill(10);
    made.write(lost(17));
    made.write(lost(4));
    made.memory.put_u64(RING + 24, 5);
    let (records, gaps) = made.read();
    assert_eq!(records.len(), 12);
    let expected = [(Cause::Discarded, Some(5), None), (Cause::Discarded, Some(21), None)];
    assert_eq!(causes(&gaps), expected);
}

/// Without the positions of the process, all that is in memory is read, and what it had read is not
/// known.
#[test]
fn without_the_shared_page_all_is_read() {
    let mut made = Made::new(false);
    made.fill(60);
    made.consume(20);
    made.memory.drop(USER);
    let (records, gaps) = made.read();
    assert_eq!(records, made.written(0..60));
    assert_eq!(causes(&gaps), [(Cause::Missing, None, None)]);
    let mut wrapped = Made::new(false);
    wrapped.fill(600);
    wrapped.consume(590);
    wrapped.memory.put(USER, &[0; 4096]);
    let (records, gaps) = wrapped.read();
    assert!(records.len() > 150 && records == wrapped.written(600 - records.len()..600));
    assert_eq!(causes(&gaps)[0].0, Cause::Damaged);
}

#[test]
fn a_position_that_cannot_be_right_is_not_used() {
    let mut made = Made::new(false);
    made.fill(60);
    for tail in [made.all[59].0 + 4096, 12] {
        made.memory.put_u64(USER + 8, tail);
        let (records, gaps) = made.read();
        assert_eq!(records, made.written(0..60));
        assert_eq!(causes(&gaps), [(Cause::Unknown, Some(0), None)]);
    }
}
