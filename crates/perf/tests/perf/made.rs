//! A kernel with one process that has perf's events open, and what a test writes into its buffer.

use crate::memory::{Regions, TEXT};
use lastwords_perf::{Perf, Record};
use lastwords_testkit::btf::Writer;
use lastwords_trace::evidence::Gap;
use std::sync::Arc;

/// Its name is at the end of a page, all else in the next one.
pub(crate) const TASK: u64 = TEXT + 0x1ff0;
const OPERATIONS: u64 = TEXT + 0x3000;
const FILES: u64 = 0xffff_8880_0000_0000;
const TABLE: u64 = FILES + 0x1000;
const SLOTS: u64 = FILES + 0x2000;
const USED: u64 = FILES + 0x3000;
pub(crate) const PMU: u64 = FILES + 0xe000;
pub(crate) const RING: u64 = FILES + 0x10000;
pub(crate) const USER: u64 = FILES + 0x20000;
pub(crate) const DATA: u64 = FILES + 0x40000;
/// Regions of data.
const PAGES: u64 = 4;
pub(crate) const SIZE: u64 = PAGES * 4096;
/// Offset in a `struct perf_event`.
const ATTR: u64 = 64;
/// The same of the buffer, which is the last member.
const BUFFER: u64 = 504;
/// Offset of the table of files in a `struct task_struct`, which is in a page of its own.
const TABLE_OF_TASK: u64 = 0x1018;
/// The CPU of all events.
pub(crate) const CPU: u32 = 3;
/// Fields of samples: tid, time, raw, and those that name CPU and event.
const FIELDS: u64 = 1 << 1 | 1 << 2 | 1 << 10;
const NAMING: u64 = 1 << 7 | 1 << 16;

/// The kernel that is made, and the records that were written.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) memory: Regions,
    is_backward: bool,
    head: u64,
    /// Position and bytes of all records, the oldest first.
    pub(crate) all: Vec<(u64, Vec<u8>)>,
}

impl Made {
    /// A process with two events that share a buffer.
    pub(crate) fn new(is_backward: bool) -> Self {
        let mut m = Regions::default();
        m.put(TASK, &[0; TABLE_OF_TASK as usize]);
        m.put(TASK, b"perf");
        m.put(TASK + 16, &[7, 0, 0, 0, 7, 0, 0, 0]);
        m.put_u64(TASK + 24, TASK + 24);
        m.put_u64(TASK + 32, TASK + 24);
        m.put_u64(TASK + TABLE_OF_TASK, FILES);
        m.put_u64(FILES, TABLE);
        m.put_u32(TABLE, 64);
        m.put_u64(TABLE + 8, SLOTS);
        m.put_u64(TABLE + 16, USED);
        m.put(SLOTS, &[0; 512]);
        m.put_u64(USED, 0b110);
        m.put(PMU, &[0; 64]);
        m.put_u64(PMU, PMU + 32);
        m.put(PMU + 32, b"tracepoint");
        for n in [1, 2] {
            let (file, event) = (file(n), event(n));
            m.put_u64(SLOTS + n * 8, file);
            m.put_u64(file, OPERATIONS);
            m.put_u64(file + 8, event);
            m.put(event, &[0; 512]);
            m.put_u64(event, 40 + n);
            m.put_u32(event + 8, CPU);
            m.put_u64(event + BUFFER, RING);
            m.put_u64(event + 24, PMU);
            m.put(event + ATTR, &[2, 0, 0, 0, 136, 0, 0, 0]);
            m.put_u64(event + ATTR + 8, 300 + n);
            m.put_u64(event + ATTR + 16, 1);
            m.put_u64(event + ATTR + 24, FIELDS | NAMING);
            m.put(event + ATTR + 40, &[1, u8::from(is_backward), 0]);
        }
        m.put(RING, &[0; 128]);
        m.put_u32(RING, PAGES as u32);
        m.put(RING + 4, &[u8::from(is_backward)]);
        m.put_u64(RING + 32, USER);
        m.put(USER, &[0; 4096]);
        m.put_u64(USER + 16, SIZE);
        for page in 0..PAGES {
            m.put_u64(RING + 40 + page * 8, DATA + page * 8192);
            m.put(DATA + page * 8192, &[0; 4096]);
        }
        Self { memory: m, is_backward, head: 0, all: Vec::new() }
    }

    /// Address of a position in the data. Regions are not next to each other.
    pub(crate) fn address(position: u64) -> u64 {
        let offset = position % SIZE;
        DATA + offset / 4096 * 8192 + offset % 4096
    }

    /// Reserves and writes a record; nothing is published.
    pub(crate) fn reserve(&mut self, bytes: Vec<u8>) {
        let size = bytes.len() as u64;
        let position = if self.is_backward { self.head.wrapping_sub(size) } else { self.head };
        self.head = if self.is_backward { position } else { self.head.wrapping_add(size) };
        for (n, byte) in (0..).zip(&bytes) {
            self.memory.put(Self::address(position.wrapping_add(n)), &[*byte]);
        }
        self.memory.put_u64(RING + 8, self.head);
        self.all.push((position, bytes));
    }

    /// Writes a record, as the kernel does.
    pub(crate) fn write(&mut self, bytes: Vec<u8>) {
        self.reserve(bytes);
        self.memory.put_u64(USER, self.head);
    }

    /// Makes samples that name neither their event nor their CPU, and writes some.
    pub(crate) fn fill_nameless(&mut self, count: usize) {
        for n in [1, 2] {
            self.memory.put_u64(event(n) + ATTR + 24, FIELDS);
        }
        for n in 0..count as u64 {
            let raw = vec![n as u8; 28 + n as usize % 10 * 8];
            let size = (raw.len() as u32).to_le_bytes().to_vec();
            let word = |value: u64| value.to_le_bytes().to_vec();
            self.write(record(9, &[word(n), word(n * 1000), size, raw]));
        }
    }

    /// Writes numbered samples, and names of tasks among them.
    pub(crate) fn fill(&mut self, count: usize) {
        for n in 0..count {
            self.write(if n % 7 == 3 { comm(n as u32) } else { sample(n as u64, n % 90) });
        }
    }

    /// Sets the position to which the process has read.
    pub(crate) fn consume(&mut self, records: usize) {
        self.memory.put_u64(USER + 8, self.all[records].0);
    }

    /// Opens the kernel, as it is in memory.
    pub(crate) fn open(&self) -> Perf {
        let symbols = [(TASK, "init_task"), (OPERATIONS, "perf_fops")];
        Perf::read(&Arc::new(self.memory.clone().open(types().finish(&[]), &symbols)))
    }

    /// Returns the records of all buffers, and the gaps.
    pub(crate) fn read(&self) -> (Vec<(u64, Vec<u8>)>, Vec<Gap>) {
        let mut perf = self.open();
        let mut records = Vec::new();
        for buffer in perf.buffers.clone() {
            let take = &mut |Record { position, bytes, .. }| {
                records.push((position, bytes));
                Ok(())
            };
            perf.records(&buffer, take).unwrap();
        }
        records.sort_by_key(|(position, _)| *position);
        // The kernel has no formats of tracepoints.
        perf.evidence.gaps.retain(|gap| !gap.place.contains("no format has the id"));
        (records, perf.evidence.gaps)
    }

    /// Returns records as a reader must find them.
    pub(crate) fn written(&self, range: std::ops::Range<usize>) -> Vec<(u64, Vec<u8>)> {
        let mut records = self.all[range].to_vec();
        records.sort_by_key(|(position, _)| *position);
        records
    }
}

/// The file of the first or the second event. Its last member, which leads to the event, is in a page
/// of its own.
pub(crate) fn file(n: u64) -> u64 {
    FILES + 0x2000 + n * 0x2000 + 0xff8
}

/// The first or the second event. Its last member, which leads to the buffer, is in a page of its own.
pub(crate) fn event(n: u64) -> u64 {
    FILES + 0x7000 + n * 0x2000 + 0x1000 - BUFFER
}

fn record(kind: u32, body: &[Vec<u8>]) -> Vec<u8> {
    let body = body.concat();
    let size = (body.len() + 8) as u16;
    assert!(size.is_multiple_of(8));
    [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), &body].concat()
}

/// A sample of the first or the second event, with so many bytes.
pub(crate) fn sample(number: u64, len: usize) -> Vec<u8> {
    let raw = (len + 4).next_multiple_of(8) - 4;
    let data: Vec<u8> = (0..raw).map(|n| (number as usize * 7 + n) as u8).collect();
    let word = |value: u64| value.to_le_bytes().to_vec();
    let size = (raw as u32).to_le_bytes().to_vec();
    let of = 41 + number % 2;
    record(9, &[word(of), word(number), word(number * 1000), word(CPU.into()), size, data])
}

/// The fields of samples at the end of another record.
fn trailer(number: u64) -> Vec<u8> {
    [number, number * 1000, CPU.into(), 41].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A record that names a task.
pub(crate) fn comm(pid: u32) -> Vec<u8> {
    let ids = [pid.to_le_bytes(), pid.to_le_bytes()].concat();
    record(3, &[ids, b"sh\0\0\0\0\0\0".to_vec(), trailer(pid.into())])
}

/// A record of losses.
pub(crate) fn lost(count: u64) -> Vec<u8> {
    record(2, &[41u64.to_le_bytes().to_vec(), count.to_le_bytes().to_vec(), trailer(9)])
}

/// The types that Linux 6.12 has, with other offsets.
fn types() -> Writer {
    let mut w = Writer::of_kernel();
    let task_size = TABLE_OF_TASK + 8;
    w.declare(&format!(
        "list_head 16: void* next@0, void* prev@8
         fdtable 24: u32 max_fds@0, void** fd@8, u64* open_fds@16
         files_struct 8: fdtable* fdt@0
         task_struct {task_size}: char[16] comm@0, u32 pid@16, u32 tgid@20, list_head tasks@24,
             files_struct* files@{TABLE_OF_TASK}
         file 16: void* f_op@0, void* private_data@8
         perf_event_attr 136: u32 type@0, u32 size@4, u64 config@8, u64 sample_period@16,
             u64 sample_type@24, u64 read_format@32, u8 sample_id_all@40, u8 write_backward@41,
             u8 freq@42
         perf_event_mmap_page 4096: u64 data_head@0, u64 data_tail@8, u64 data_size@16
         perf_buffer 40: u32 nr_pages@0, u8 overwrite@4, u64 head@8, u32 nest@16, u64 lost@24,
             perf_event_mmap_page* user_page@32, void*[0] data_pages@40
         pmu 8: char* name@0
         perf_event 512: u64 id@0, u32 cpu@8, perf_buffer* rb@{BUFFER}, pmu* pmu@24,
             perf_event_attr attr@{ATTR}"
    ));
    w.enumeration(
        "perf_event_type",
        &[("PERF_RECORD_COMM", 3), ("PERF_RECORD_SAMPLE", 9), ("PERF_RECORD_MAX", 22)],
    );
    w
}
