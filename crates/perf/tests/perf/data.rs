//! The file `perf.data`, which a reader of its own takes apart.

use crate::made::Made;
use std::io::Cursor;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn a_file_has_attributes_ids_records_and_features() {
    let mut made = Made::new(false);
    made.fill(100);
    let mut perf = made.open();
    let recordings = perf.recordings();
    assert_eq!(recordings.len(), 1);
    let mut out = Cursor::new(Vec::new());
    let written = perf.write_data(&recordings[0], &mut out).unwrap();
    let bytes = out.into_inner();
    assert_eq!((written.records, written.bytes), (100, bytes.len() as u64));
    assert_eq!(&bytes[..8], b"PERFILE2");
    let head: Vec<u64> = (0..13).map(|n| word(&bytes, n * 8)).collect();
    // The header's size, that of an attribute with the place of its ids; the attributes of 64 bytes.
    assert_eq!(head[1..3], [104, 64 + 16]);
    let (attrs, attrs_len, data, data_len) =
        (head[3] as usize, head[4] as usize, head[5] as usize, head[6] as usize);
    assert_eq!(attrs_len, 2 * 80);
    for (n, attr) in bytes[attrs..attrs + attrs_len].chunks(80).enumerate() {
        assert_eq!(attr[..8], [2, 0, 0, 0, 64, 0, 0, 0]);
        assert_eq!(word(attr, 8), 301 + n as u64);
        let (ids, len) = (word(attr, 64) as usize, word(attr, 72));
        assert_eq!((len, word(&bytes, ids)), (8, 41 + n as u64));
    }
    // The last records are those of the buffer, byte by byte.
    let records: Vec<u8> = made.written(0..100).into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(bytes[data..data + data_len].ends_with(&records));
    // Each feature has a section in the file: tracing data, version, CPUs, names of events.
    let bits = head[9];
    assert_eq!(bits, 1 << 1 | 1 << 5 | 1 << 7 | 1 << 12);
    let mut end = data + data_len + 4 * 16;
    for n in 0..4 {
        let at = data + data_len + n * 16;
        assert_eq!(word(&bytes, at), end as u64);
        end += word(&bytes, at + 8) as usize;
    }
    assert_eq!(end, bytes.len());
}

/// perf keeps the order of records with the same time: the oldest comes first in the file.
#[test]
fn a_buffer_that_is_written_backward_has_its_oldest_record_first() {
    let mut made = Made::new(true);
    made.fill(60);
    let mut perf = made.open();
    let mut out = Cursor::new(Vec::new());
    perf.write_data(&perf.recordings()[0], &mut out).unwrap();
    let bytes = out.into_inner();
    let end = (word(&bytes, 40) + word(&bytes, 48)) as usize;
    let records: Vec<u8> = made.all.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert!(bytes[..end].ends_with(&records));
}
