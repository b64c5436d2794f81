//! The relation of a file to those of other machines that were recorded with it: the options
//! TRACEID, GUEST and TIME_SHIFT, as `trace-cmd record -A` has them.

use super::clock::INTERPOLATE;
use super::id;
use super::parts::Put;
use lastwords_bytes::ByteOrder;
use serde::{Deserialize, Serialize};

/// The numbers by which readers find the files of one recording of several machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// The number of this file.
    pub trace_id: u64,
    /// Nanoseconds to add to readings of the host's clock to get those since the epoch, if that is
    /// known. All files of a recording have the same, so that it does not shift them.
    pub real_time: Option<i64>,
    /// The guests that were recorded with this host.
    pub guests: Vec<Guest>,
    /// The difference of this guest's clock to that of its host; none in the file of a host.
    pub shift: Option<Shift>,
}

/// A guest that was recorded with a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// The number of its file.
    pub trace_id: u64,
}

/// The difference of a guest's clock to that of its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    /// The number of the host's file.
    pub host: u64,
    /// The measurements in order of time. Between two of them, readers interpolate.
    pub samples: Vec<ShiftSample>,
}

/// A measurement of the difference of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShiftSample {
    /// When it was made, in nanoseconds of the guest's clock.
    pub time: u64,
    /// Nanoseconds to add to the guest's clock for the host's.
    pub offset: i64,
}

/// Returns the options of a relation for a file with so many CPUs: id and data.
pub(super) fn options(relation: &Relation, cpus: usize, order: ByteOrder) -> Vec<(u16, Vec<u8>)> {
    let mut number = Put::new(order);
    number.u64(relation.trace_id);
    let mut out = vec![(id::TRACEID, number.bytes)];
    for guest in &relation.guests {
        let mut put = Put::new(order);
        put.string(&guest.name);
        put.u64(guest.trace_id);
        // The tasks of the host that are the guest's CPUs are not known.
        put.u32(0);
        out.push((id::GUEST, put.bytes));
    }
    out.extend(
        relation.shift.as_ref().map(|shift| (id::TIME_SHIFT, time_shift(shift, cpus, order))),
    );
    out
}

/// Returns the data of the option TIME_SHIFT. Each CPU has the same measurements; the factor of the
/// clock is 1.
fn time_shift(shift: &Shift, cpus: usize, order: ByteOrder) -> Vec<u8> {
    let mut put = Put::new(order);
    put.u64(shift.host);
    put.u32(if shift.samples.len() > 1 { INTERPOLATE } else { 0 });
    put.count(cpus);
    for _ in 0..cpus {
        put.count(shift.samples.len());
        shift.samples.iter().for_each(|sample| put.u64(sample.time));
        shift.samples.iter().for_each(|sample| put.u64(sample.offset.cast_unsigned()));
        shift.samples.iter().for_each(|_| put.u64(1));
    }
    // The numbers of fraction bits of all factors come last, because older readers do not know them.
    (0..cpus.saturating_mul(shift.samples.len())).for_each(|_| put.u64(0));
    put.bytes
}
