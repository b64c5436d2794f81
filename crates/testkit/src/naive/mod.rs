//! A second reader of sessions: simple, slow, and written only from docs/ABI.md. It shares no code
//! with the project's reader, so that the results of both can be compared.
//!
//! It reads memory that does not change. Regions with a wrong checksum are skipped, and damaged
//! sub-buffers give no events.

mod half;
mod registry;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::checksum::checksum;
use crate::layout::{region as rg, session as se, stream as st};
use crate::put::Order;
use crate::ring::Event;

pub use registry::{Class, Classes, Type, records};

/// The verdict on a sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Closed, with a valid checksum.
    Committed,
    /// Not closed, without holes.
    Open,
    /// With holes.
    Torn,
    /// Belongs to an older lap.
    Stale,
    /// Damaged.
    Invalid,
}

/// A sub-buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sub {
    /// Number of the sub-buffer.
    pub number: u64,
    /// Verdict on the sub-buffer.
    pub verdict: Verdict,
    /// Events with their positions.
    pub events: Vec<(u64, Event)>,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Index in the session.
    pub index: u32,
    /// Channel id.
    pub channel: u32,
    /// CPU or 0xffffffff.
    pub cpu: u32,
    /// Sub-buffers of the live half.
    pub live: Vec<Sub>,
    /// Sub-buffers of the snapshot; empty without one.
    pub snapshot: Vec<Sub>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// UUID.
    pub uuid: [u8; 16],
    /// Name.
    pub name: String,
    /// Streams in order of index.
    pub streams: Vec<Stream>,
}

impl Session {
    /// All events of the live halves, with the index of their stream.
    pub fn events(&self) -> Vec<(u32, Event)> {
        let of = |s: &Stream| flat(s.index, &s.live);
        self.streams.iter().flat_map(of).collect()
    }

    /// All events of the snapshot, with the index of their stream.
    pub fn snapshot_events(&self) -> Vec<(u32, Event)> {
        let of = |s: &Stream| flat(s.index, &s.snapshot);
        self.streams.iter().flat_map(of).collect()
    }
}

fn flat(index: u32, subs: &[Sub]) -> Vec<(u32, Event)> {
    subs.iter().flat_map(|s| s.events.iter().map(|(_, e)| (index, e.clone()))).collect()
}

/// Reads the sessions whose regions are in the files of a folder.
///
/// # Errors
/// The error of the operating system.
pub fn read(folder: &Path) -> io::Result<Vec<Session>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let files = paths.iter().map(std::fs::read).collect::<io::Result<Vec<_>>>()?;
    Ok(read_files(&files.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

/// Reads the sessions whose regions are at multiples of 4096 in these files (or pieces of memory).
pub fn read_files(files: &[&[u8]]) -> Vec<Session> {
    read_memory(files, &|_, _| None)
}

/// Function that returns bytes of the writer's memory, by address and length.
pub type Memory<'a> = dyn Fn(u64, usize) -> Option<&'a [u8]> + 'a;

/// Same as [`read_files`], also for sessions with paged streams; `memory` reads the writer's
/// memory.
pub fn read_memory<'a>(files: &[&'a [u8]], memory: &Memory<'a>) -> Vec<Session> {
    let mut sessions: BTreeMap<[u8; 16], Vec<Found<'a>>> = BTreeMap::new();
    for file in files {
        let mut at = 0;
        while at < file.len() {
            if let Some(region) = Found::at(&file[at..]) {
                at += region.bytes.len();
                sessions.entry(region.session).or_default().push(region);
            } else {
                at += rg::PAGE;
            }
        }
    }
    sessions.into_values().filter_map(|regions| session(&regions, memory)).collect()
}

/// A region with a valid checksum.
pub(crate) struct Found<'a> {
    bytes: &'a [u8],
    order: Order,
    kind: u32,
    index: u32,
    session: [u8; 16],
}

impl<'a> Found<'a> {
    fn at(bytes: &'a [u8]) -> Option<Self> {
        if bytes.get(..16)? != rg::MAGIC {
            return None;
        }
        let order = match Order::Little.at32(bytes, rg::BYTE_ORDER_AT)? {
            rg::BYTE_ORDER_MARK => Order::Little,
            0x0403_0201 => Order::Big,
            _ => return None,
        };
        let size = usize::try_from(order.at64(bytes, rg::SIZE_AT)?).ok()?;
        let fixed = usize::try_from(order.at32(bytes, rg::FIXED_LEN_AT)?).ok()?;
        let major = order.at16(bytes, rg::MAJOR_AT)?;
        // Streams of channels that were created while the session recorded have 2.
        let is_known =
            major == 1 || (major == 2 && order.at32(bytes, rg::KIND_AT)? == rg::KIND_STREAM);
        if !is_known || size == 0 || size % rg::PAGE != 0 {
            return None;
        }
        let bytes = bytes.get(..size)?;
        let covered =
            [bytes.get(..rg::CHECK_AT)?, bytes.get(rg::HEADER_LEN..)?.get(..fixed)?].concat();
        if order.at64(bytes, rg::CHECK_AT)? != checksum(&covered) {
            return None;
        }
        let session = bytes.get(rg::SESSION_AT..)?.get(..16)?.try_into().ok()?;
        let (kind, index) = (order.at32(bytes, rg::KIND_AT)?, order.at32(bytes, rg::INDEX_AT)?);
        Some(Self { bytes, order, kind, index, session })
    }

    fn u32(&self, at: usize) -> u32 {
        self.order.at32(self.bytes, at).unwrap_or(0)
    }

    fn u64(&self, at: usize) -> u64 {
        self.order.at64(self.bytes, at).unwrap_or(0)
    }

    fn text(&self, at: usize, max: usize) -> String {
        let bytes = self.bytes.get(at..).and_then(|b| b.get(..max)).unwrap_or_default();
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// A reservation in flight.
pub(crate) struct InFlight {
    target: u64,
    owner: u64,
    begin: u64,
    end: u64,
    confirmed: u64,
    state: u64,
}

fn session<'a>(regions: &[Found<'a>], memory: &Memory<'a>) -> Option<Session> {
    let control = regions.iter().find(|r| r.kind == rg::KIND_SESSION)?;
    let registry = regions.iter().find(|r| r.kind == rg::KIND_REGISTRY)?;
    let info = |at: usize| control.u32(se::INFO_AT + at) as usize;
    let contexts: Vec<u32> = (0..se::CHANNELS_MAX)
        .map(|c| {
            control.u32(info(se::CHANNELS_OFF_AT) + c * se::CHANNEL_LEN + se::CHANNEL_CONTEXTS_AT)
        })
        .collect();
    let classes = Classes::read(registry.bytes, registry.order, &contexts);
    let in_flight = in_flight(control, info(se::THREADS_OFF_AT), info(se::THREADS_AT));
    let at = info(se::CONTROL_OFF_AT);
    let (flip, snapshot) = (control.u32(at + se::FLIP_AT), control.u32(at + se::SNAPSHOT_AT));
    let alone = control.u32(at + se::SNAPSHOT_STREAM_AT);
    let mut streams: Vec<Stream> = regions
        .iter()
        .filter(|r| r.kind == rg::KIND_STREAM)
        .map(|r| {
            let live = ((flip ^ r.u32(st::CONTROL_AT + st::FLIP_AT)) & 1) as usize;
            let taken = (se::SNAPSHOT_SWAPPING..=se::SNAPSHOT_READING).contains(&snapshot);
            let cpu = r.u32(st::INFO_AT + st::CPU_AT);
            let of_cpu = alone >> 31 == 1 && alone & 0x7fff_ffff == cpu;
            let taken = taken && (alone == 0 || alone == r.index.wrapping_add(1) || of_cpu);
            let read = |h: usize| half::read(r, h, &classes, &in_flight, memory);
            Stream {
                index: r.index,
                channel: r.u32(st::INFO_AT + st::CHANNEL_AT),
                cpu,
                live: read(live),
                snapshot: if taken { read(live ^ 1) } else { Vec::new() },
            }
        })
        .collect();
    streams.sort_by_key(|s| s.index);
    streams.dedup_by_key(|s| s.index);
    Some(Session {
        uuid: control.session,
        name: control.text(se::INFO_AT + se::NAME_AT, se::NAME_LEN),
        streams,
    })
}

fn in_flight(control: &Found<'_>, table: usize, threads: usize) -> Vec<InFlight> {
    let fit = control.bytes.len().saturating_sub(table) / se::THREAD_LEN;
    let mut all = Vec::new();
    for index in 0..threads.min(fit) * se::LEVELS {
        let at = table
            + index / se::LEVELS * se::THREAD_LEN
            + se::LEVELS_AT
            + index % se::LEVELS * se::LEVEL_LEN;
        let target = control.u64(at + se::TARGET_AT);
        if target != 0 {
            all.push(InFlight {
                target,
                owner: index as u64 + 1,
                begin: control.u64(at + se::BEGIN_AT),
                end: control.u64(at + se::END_AT),
                confirmed: control.u64(at + se::CONFIRMED_AT),
                state: control.u64(at + se::STATE_AT),
            });
        }
    }
    all
}
