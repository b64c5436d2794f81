//! Writes a file `perf.data`, as `tools/perf/Documentation/perf.data-file-format.txt` describes it:
//! a header, the attributes of the events with their ids, records, and features.
//!
//! Before the records of buffers are records that name the tasks, as perf writes them when it begins.
//! Here they have the names that the tasks had at the end.

use crate::event::{ATTR_SIZE_AT, put};
use crate::layout::{has_identifier, trailer_size};
use crate::ring::Region;
use crate::{Buffer, Event, Owner, Perf};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_kernel::Mask;
use lastwords_kernel::tasks::NAMELESS;
use lastwords_trace::evidence::Evidence;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek, SeekFrom, Write};

/// Size of the file's header, bytes.
const HEADER: u64 = 104;
/// The first eight bytes, as a number in the file's byte order: `PERFILE2`.
const MAGIC: u64 = u64::from_le_bytes(*b"PERFILE2");
/// Type of a record that names a task (`PERF_RECORD_COMM`).
const COMM: u32 = 3;
/// Texts in features are filled up to a multiple of this many bytes.
const TEXT: usize = 64;

/// Numbers of features; each is a bit of the header.
const TRACING_DATA: u8 = 1;
const HOSTNAME: u8 = 3;
const OSRELEASE: u8 = 4;
const VERSION: u8 = 5;
const ARCH: u8 = 6;
const NRCPUS: u8 = 7;
const EVENT_DESC: u8 = 12;

/// The buffers of one recording, which fit into one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The process that recorded.
    pub owner: Owner,
    /// Its buffers.
    pub buffers: Vec<Buffer>,
}

/// The size of a file that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Records out of the buffers.
    pub records: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Events with the same attributes, which are one event of the file.
struct Group {
    name: String,
    attr: Vec<u8>,
    ids: Vec<u64>,
}

/// Bytes in the byte order of the machine.
struct Put {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Put {
    fn new(order: ByteOrder) -> Self {
        Self { bytes: Vec::new(), order }
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&self.order.little(value.to_le_bytes()));
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&self.order.little(value.to_le_bytes()));
    }

    fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&self.order.little(value.to_le_bytes()));
    }

    /// Appends a length and text, filled up with zeros, one at least.
    fn text(&mut self, text: &str) {
        let size = text.len().saturating_add(1).next_multiple_of(TEXT);
        self.u32(low_u32(size as u64));
        let end = self.bytes.len().saturating_add(size);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.resize(end, 0);
    }
}

/// What all events of one file must have in common: perf refuses other files.
fn form(event: &Event) -> (u64, u64, bool) {
    let sample_type = if has_identifier(event) { 0 } else { event.sample_type };
    (sample_type, event.read_format, event.has_sample_id)
}

impl Perf {
    /// Returns the recordings whose buffers have records, each with the buffers that one file can
    /// hold: those of one process whose samples have one form.
    #[must_use]
    pub fn recordings(&self) -> Vec<Recording> {
        let mut all: Vec<Recording> = Vec::new();
        let key = |buffer: &Buffer| (buffer.owner.pid, buffer.events.first().map(form));
        for buffer in self.buffers.iter().filter(|buffer| Region::new(buffer).len > 0) {
            let same = all
                .iter_mut()
                .find(|recording| recording.buffers.first().map(key) == Some(key(buffer)));
            match same {
                Some(recording) => recording.buffers.push(buffer.clone()),
                None => all
                    .push(Recording { owner: buffer.owner.clone(), buffers: vec![buffer.clone()] }),
            }
        }
        all
    }

    /// Returns what is lost of the buffers of a process, as far as they were read. Whether a process
    /// had more of them is not part of it.
    #[must_use]
    pub fn losses_of(&self, owner: &Owner) -> Evidence {
        // All places of gaps name the process in this form.
        let words = format!(" of {} ({})", owner.comm, owner.pid);
        let gaps = self.evidence.gaps.iter().filter(|gap| gap.place.contains(&words));
        Evidence { gaps: gaps.cloned().collect(), ..Evidence::default() }
    }

    /// Writes a recording as a file `perf.data`, from the begin of `out` on.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_data<W: Write + Seek>(
        &mut self,
        recording: &Recording,
        out: &mut W,
    ) -> io::Result<Written> {
        let order = self.kernel.memory.byte_order();
        let groups = groups(recording, order);
        let attr_size = groups.first().map_or(0, |group| group.attr.len());
        let mut head = Put::new(order);
        head.bytes.resize(usize::try_from(HEADER).unwrap_or_default(), 0);
        let mut attrs = Put::new(order);
        for group in &groups {
            attrs.bytes.extend_from_slice(&group.attr);
            attrs.u64(head.bytes.len() as u64);
            attrs.u64((group.ids.len() as u64).saturating_mul(8));
            group.ids.iter().for_each(|id| head.u64(*id));
        }
        let attrs_at = head.bytes.len() as u64;
        head.bytes.extend_from_slice(&attrs.bytes);
        let data_at = head.bytes.len() as u64;
        head.bytes.extend_from_slice(&self.comms(recording));
        out.write_all(&head.bytes)?;
        let (mut end, mut records) = (head.bytes.len() as u64, 0u64);
        for buffer in &recording.buffers {
            // A buffer that is written backward gives its newest record first, and perf keeps the
            // order of records with the same time.
            let mut newest_first = Vec::new();
            let mut write = |record: &[u8]| {
                end = end.saturating_add(record.len() as u64);
                records = records.saturating_add(1);
                out.write_all(record)
            };
            self.records(buffer, &mut |record| match buffer.is_backward {
                true => {
                    newest_first.push(record.bytes);
                    Ok(())
                }
                false => write(&record.bytes),
            })?;
            newest_first.iter().rev().try_for_each(|record| write(record))?;
        }
        let features = self.features(recording, &groups);
        let bytes = end.saturating_add(write_features(order, end, &features, out)?);
        let mut put = Put::new(order);
        let sections =
            [(attrs_at, attrs.bytes.len() as u64), (data_at, end.saturating_sub(data_at)), (0, 0)];
        let sizes = [MAGIC, HEADER, (attr_size as u64).saturating_add(16)];
        sizes.into_iter().for_each(|word| put.u64(word));
        sections.into_iter().for_each(|(at, size)| {
            put.u64(at);
            put.u64(size);
        });
        let bits =
            features.iter().fold(0u64, |bits, (bit, _)| bits | 1u64.wrapping_shl((*bit).into()));
        [bits, 0, 0, 0].into_iter().for_each(|word| put.u64(word));
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&put.bytes)?;
        Ok(Written { records, bytes })
    }

    /// Returns records that name the tasks: those that there were at the end, and others whose names
    /// ftrace saved. The idle tasks have names in perf itself.
    fn comms(&self, recording: &Recording) -> Vec<u8> {
        let event = recording.buffers.first().and_then(|buffer| buffer.events.first());
        let trailer = event.map_or(0, trailer_size);
        let tgid = |pid: u32| self.tracing.tgids.get(&pid).copied().unwrap_or(pid);
        let saved = self.tracing.comms.iter().map(|(pid, comm)| (*pid, (tgid(*pid), comm.clone())));
        let mut tasks: BTreeMap<u32, (u32, String)> = saved.collect();
        let listed = self.kernel.tasks().rows.into_iter().filter(|task| task.comm != NAMELESS);
        tasks.extend(listed.map(|task| (task.pid, (task.tgid, task.comm))));
        tasks.remove(&0);
        let mut put = Put::new(self.kernel.memory.byte_order());
        for (pid, (tgid, comm)) in tasks {
            let name = comm.len().saturating_add(1).next_multiple_of(8);
            let size = name.saturating_add(trailer).saturating_add(16);
            let Ok(size) = u16::try_from(size) else { continue };
            put.u32(COMM);
            put.u16(0);
            put.u16(size);
            put.u32(tgid);
            put.u32(pid);
            let end = put.bytes.len().saturating_add(name).saturating_add(trailer);
            put.bytes.extend_from_slice(comm.as_bytes());
            put.bytes.resize(end, 0);
        }
        put.bytes
    }

    /// Returns the features in the order of their bits, each with its section.
    fn features(&self, recording: &Recording, groups: &[Group]) -> Vec<(u8, Vec<u8>)> {
        let order = self.kernel.memory.byte_order();
        let mut features = Vec::new();
        let events = recording.buffers.iter().flat_map(|buffer| &buffer.events);
        let ids: BTreeSet<u16> = events.filter_map(Event::tracepoint).collect();
        if !ids.is_empty() {
            let data = lastwords_ftrace::dat::tracing_data(&self.tracing, &ids);
            features.push((TRACING_DATA, data));
        }
        let uname = self.kernel.uname().unwrap_or_default();
        let own = concat!("lastwords ", env!("CARGO_PKG_VERSION"));
        let texts = [
            (HOSTNAME, uname.node.as_str()),
            (OSRELEASE, uname.release.as_str()),
            (VERSION, own),
            (ARCH, uname.machine.as_str()),
        ];
        for (bit, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let mut put = Put::new(order);
            put.text(text);
            features.push((bit, put.bytes));
        }
        let [available, online] =
            [Mask::Possible, Mask::Online].map(|mask| self.kernel.cpus(mask).len() as u64);
        let mut put = Put::new(order);
        put.u32(low_u32(available));
        put.u32(low_u32(online.max(u64::from(self.tracing.cpus))));
        features.push((NRCPUS, put.bytes));
        features.push((EVENT_DESC, descriptions(groups, order)));
        features
    }
}

/// Returns the events of a recording, those with the same attributes together. All attributes have
/// the size of the largest.
fn groups(recording: &Recording, order: ByteOrder) -> Vec<Group> {
    let events = || recording.buffers.iter().flat_map(|buffer| &buffer.events);
    let size = events().map(|event| event.attr.len()).max().unwrap_or_default();
    let mut groups: Vec<Group> = Vec::new();
    for event in events() {
        let mut attr = event.attr.clone();
        attr.resize(size, 0);
        put(&mut attr, ATTR_SIZE_AT, &order.little(low_u32(size as u64).to_le_bytes()));
        match groups.iter_mut().find(|group| group.attr == attr) {
            Some(group) => group.ids.push(event.id),
            None => groups.push(Group { name: event.name.clone(), attr, ids: vec![event.id] }),
        }
    }
    groups
}

/// Returns the names of events, each with its attributes and ids.
fn descriptions(groups: &[Group], order: ByteOrder) -> Vec<u8> {
    let mut put = Put::new(order);
    put.u32(low_u32(groups.len() as u64));
    put.u32(low_u32(groups.first().map_or(0, |group| group.attr.len()) as u64));
    for group in groups {
        put.bytes.extend_from_slice(&group.attr);
        put.u32(low_u32(group.ids.len() as u64));
        put.text(&group.name);
        group.ids.iter().for_each(|id| put.u64(*id));
    }
    put.bytes
}

/// Writes the table of features and their sections, which begin at `at`. Returns their size.
fn write_features(
    order: ByteOrder,
    at: u64,
    features: &[(u8, Vec<u8>)],
    out: &mut impl Write,
) -> io::Result<u64> {
    let table = (features.len() as u64).saturating_mul(16);
    let mut put = Put::new(order);
    let mut place = at.saturating_add(table);
    for (_, section) in features {
        put.u64(place);
        put.u64(section.len() as u64);
        place = place.saturating_add(section.len() as u64);
    }
    features.iter().for_each(|(_, section)| put.bytes.extend_from_slice(section));
    out.write_all(&put.bytes)?;
    Ok(put.bytes.len() as u64)
}
