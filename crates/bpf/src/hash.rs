//! Reads the entries of hash maps (`struct bpf_htab`): buckets of singly linked lists, each of which
//! ends with an odd number.

use crate::array::per_cpu;
use crate::content::{Content, Entry, Sink};
use crate::value::Value;
use lastwords_kernel::{Error, Mask};
use lastwords_trace::evidence::Cause;
use std::collections::HashSet;
use std::io;

/// Where the entries of a table are.
struct Table {
    buckets: u64,
    count: u64,
    /// Size of a bucket, and offset of its list, bytes.
    size: u64,
    head: u64,
    /// Offset of the links and of the key in an entry.
    links: u64,
    key: u64,
    /// The CPUs that have values of their own; empty if all share them.
    cpus: Vec<u32>,
}

/// Reads the entries of the sink's map.
///
/// # Errors
/// The sink fails.
pub(crate) fn read(sink: &mut Sink<'_>, is_per_cpu: bool) -> io::Result<()> {
    let table = match find(sink, is_per_cpu) {
        Ok(table) => table,
        Err(error) => {
            sink.unreadable(&error);
            return Ok(());
        }
    };
    let mut seen = HashSet::new();
    for bucket in 0..table.count {
        seen.clear();
        if let Err(error) = sink.kernel.budget().steps("BPF map", 1) {
            sink.unreadable(&error.into());
            return Ok(());
        }
        table.bucket(sink, bucket, &mut seen)?;
    }
    Ok(())
}

fn find(sink: &Sink<'_>, is_per_cpu: bool) -> Result<Table, Error> {
    let types = &sink.kernel.types;
    let table = sink.kernel.object("bpf_htab", sink.map.address)?;
    let bucket = table.pointer("buckets")?;
    let entry = types.id("htab_elem")?;
    Ok(Table {
        buckets: bucket.place(),
        count: table.u64("n_buckets")?,
        size: bucket.size(),
        head: bucket.member("head.first")?.offset,
        links: types.member_of(entry, "hash_node")?.offset,
        key: types.member_of(entry, "key")?.offset,
        cpus: if is_per_cpu { sink.kernel.cpus(Mask::Possible) } else { Vec::new() },
    })
}

impl Table {
    /// Reads the entries of a bucket. What follows a hole in its list is lost.
    fn bucket(&self, sink: &mut Sink<'_>, at: u64, seen: &mut HashSet<u64>) -> io::Result<()> {
        let bucket = self.buckets.wrapping_add(self.size.wrapping_mul(at));
        let mut next = sink.kernel.memory.pointer(bucket.wrapping_add(self.head));
        loop {
            let place = match next {
                // The end of a list.
                Ok(end) if end & 1 != 0 => return Ok(()),
                Ok(0) => {
                    let place = format!("bucket {at} at {bucket:#x}: its list has no end");
                    sink.gap(Cause::Damaged, &place).events = None;
                    return Ok(());
                }
                Ok(place) if !seen.insert(place) => {
                    let place = format!("bucket {at} at {bucket:#x}: its list loops at {place:#x}");
                    sink.gap(Cause::Damaged, &place).events = None;
                    return Ok(());
                }
                Ok(place) => place,
                Err(hole) => {
                    let place = format!("the rest of bucket {at} at {bucket:#x}: {hole}");
                    sink.gap(Cause::Missing, &place).events = None;
                    return Ok(());
                }
            };
            let (key, value) = (sink.map.key_size, sink.map.value_size);
            let cost = u64::from(key).saturating_add(value.into());
            let budget = sink.kernel.budget();
            let paid = budget.steps("BPF map", 1).and_then(|()| budget.bytes("BPF map", cost));
            if let Err(error) = paid {
                sink.unreadable(&error.into());
                return Ok(());
            }
            next = sink.kernel.memory.pointer(place);
            // An entry whose list ends with 0 is in a page that reads as zero.
            if !matches!(next, Ok(0)) {
                self.entry(sink, place.wrapping_sub(self.links))?;
            }
        }
    }

    fn entry(&self, sink: &mut Sink<'_>, entry: u64) -> io::Result<()> {
        let kernel = sink.kernel;
        let key_place = entry.wrapping_add(self.key);
        let value_place = key_place.wrapping_add(u64::from(sink.map.key_size).next_multiple_of(8));
        let key = match sink.read(key_place, sink.map.key_size) {
            Ok(key) => Value::new(sink.map.key.as_ref(), &key, kernel.budget()),
            Err(hole) => {
                let bytes = u64::from(sink.map.key_size);
                sink.missing(&format!("the entry at {entry:#x}"), hole, bytes);
                return Ok(());
            }
        };
        let size = sink.map.value_size;
        let places: Vec<_> = if self.cpus.is_empty() {
            vec![(None, Ok(value_place))]
        } else {
            let base = kernel.memory.pointer(value_place);
            let of_cpu = |cpu: &u32| (Some(*cpu), base.and_then(|base| per_cpu(sink, base, *cpu)));
            self.cpus.iter().map(of_cpu).collect()
        };
        for (cpu, place) in places {
            match place.and_then(|place| sink.read(place, size)) {
                Ok(bytes) => {
                    let value = Value::new(sink.map.value.as_ref(), &bytes, kernel.budget());
                    sink.put(Content::Entry(Entry { key: key.clone(), cpu, value }))?;
                }
                Err(hole) => sink.missing(&format!("the value of {key}"), hole, size.into()),
            }
        }
        Ok(())
    }
}
