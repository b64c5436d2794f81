//! Reads trace arrays: the top level, the instances, their snapshots, options and clocks.

use super::memory_ring::{MemoryRing, Role};
use super::ring::{self, Shape, default_shape};
use super::{carve, loose, lost};
use crate::{Array, Clock, Format, HeaderPage, Latency, Ring, UNKNOWN};
use lastwords_kernel::btf::MemberKind;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_kernel::{Error, Kernel, Mask, Object};
use lastwords_trace::evidence::{Evidence, Gap};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Bit of `trace_buffer.record_disabled`: `tracing_on` switched recording off.
const OFF: u64 = 1 << 20;
/// Most CPUs of a ring of which nothing else says which CPUs are possible.
const CPUS_MAX: usize = 1 << 16;
/// Most options of a tracer.
const TRACER_OPTIONS_MAX: u64 = 64;

/// Reads all trace arrays: the top level first, then the instances by name.
pub(super) fn read(
    kernel: &Arc<Kernel>,
    memory: Option<&Arc<VirtualMemory>>,
    known: &BTreeMap<u16, Format>,
    evidence: &mut Evidence,
) -> Result<Vec<Array>, Error> {
    let top = kernel.symbol("global_trace")?;
    let (addresses, mut is_whole) = addresses(kernel, top, evidence)?;
    let (mut drafts, mut why) = (Vec::new(), None);
    for address in addresses {
        match one(kernel, memory, address, drafts.len()) {
            Ok(draft) => drafts.push(draft),
            Err(error) => {
                is_whole = false;
                let which = if address == top {
                    "the top level".to_owned()
                } else {
                    format!("the instance at {address:#x}")
                };
                evidence.gaps.push(ring::missing(None, format!("{which}: {error}")));
                if address == top {
                    drafts.push(Draft::unknown(
                        MemoryRing::new(kernel.clone(), None, default_shape(kernel), Vec::new(), 0),
                        String::new(),
                    ));
                    why = Some(error);
                }
            }
        }
    }
    if let Some(error) = why.filter(|_| drafts.len() == 1) {
        return Err(error);
    }
    if let Some(instances) = drafts.get_mut(1..) {
        instances.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if let Some(memory) = memory {
        let rings =
            drafts.iter_mut().flat_map(|d| std::iter::once(&mut d.live).chain(d.snapshot.as_mut()));
        let mut rings: Vec<_> = rings.collect();
        let lists = lost::fill(kernel, memory, &mut rings, (is_whole, known), evidence);
        let pages = carve::fill(kernel, memory, &mut rings, known, evidence);
        let taken: HashSet<String> = drafts.iter().map(|draft| draft.name.clone()).collect();
        let mut names = (1..=u32::MAX)
            .map(|number| format!("{UNKNOWN}-{number}"))
            .filter(|name| !taken.contains(name));
        drafts.extend(
            lists
                .into_iter()
                .zip(&mut names)
                .map(|(list, name)| unknown(kernel, memory, list, name)),
        );
        let mut arrays: Vec<Array> = drafts.into_iter().map(Draft::finish).collect();
        for (shape, pages) in &pages {
            arrays.extend(loose::arrays(kernel, memory, (*shape, pages), &mut names));
        }
        return Ok(arrays);
    }
    Ok(drafts.into_iter().map(Draft::finish).collect())
}

/// Addresses of the trace arrays, the top level first. The list of instances may end early; then
/// false is returned too.
pub(super) fn addresses(
    kernel: &Kernel,
    top: u64,
    evidence: &mut Evidence,
) -> Result<(Vec<u64>, bool), Error> {
    let mut addresses = vec![top];
    let (arrays, hole) =
        kernel.entries(kernel.symbol("ftrace_trace_arrays")?, "trace_array", "list")?;
    for place in arrays.iter().map(Object::place) {
        if !addresses.contains(&place) {
            addresses.push(place);
        }
    }
    if let Some(error) = &hole {
        let why = format!("the list of instances ends early: {error}");
        evidence.gaps.push(ring::missing(None, why));
    }
    Ok((addresses, hole.is_none()))
}

/// Makes an array of a list of which nothing proves whose it is.
fn unknown(
    kernel: &Arc<Kernel>,
    memory: &Arc<VirtualMemory>,
    list: lost::Unowned,
    name: String,
) -> Draft {
    let (shape, found) = list.into_cpu(kernel, loose::no_cpu(kernel));
    let mut live =
        MemoryRing::new(kernel.clone(), Some(memory.physical().clone()), shape, vec![found], 0);
    live.count_events(0);
    live.facts = ["its name", "its tracer", "its clock", "its options"]
        .map(|fact| Gap::not_known(None, fact))
        .to_vec();
    Draft::unknown(live, name)
}

/// A trace array whose rings may still lack sub-buffers.
struct Draft {
    name: String,
    live: MemoryRing,
    snapshot: Option<MemoryRing>,
    /// Adds what is known besides the rings.
    describe: Box<dyn FnOnce(Array) -> Array>,
}

impl Draft {
    /// Makes an array of which only the ring is known.
    fn unknown(live: MemoryRing, name: String) -> Self {
        Self { name, live, snapshot: None, describe: Box::new(|array| array) }
    }

    fn finish(self) -> Array {
        let snapshot = self.snapshot.map(|ring| Arc::new(ring) as Arc<dyn Ring>);
        let array = Array { snapshot, ..Array::unknown(self.name, Arc::new(self.live)) };
        (self.describe)(array)
    }
}

/// Facts of an array: what cannot be read is noted as not known.
#[derive(Default)]
struct Facts {
    not_known: Vec<Gap>,
}

impl Facts {
    /// Returns the fact; none if it cannot be read.
    fn take<T>(&mut self, name: &str, fact: Result<T, Error>) -> Option<T> {
        fact.map_err(|error| self.not_known.push(Gap::not_known(None, &format!("{name}: {error}"))))
            .ok()
    }
}

fn one(
    kernel: &Arc<Kernel>,
    memory: Option<&Arc<VirtualMemory>>,
    address: u64,
    number: usize,
) -> Result<Draft, Error> {
    let array = kernel.object("trace_array", address)?;
    let mut facts = Facts::default();
    // Only the top level has none.
    let is_top = kernel.symbol("global_trace").is_ok_and(|top| top == address);
    let name = match array.text("name") {
        _ if is_top => String::new(),
        Ok(name) if !name.is_empty() => name,
        Ok(_) | Err(Error::Hole { .. }) => {
            facts.not_known.push(Gap::not_known(None, "its name"));
            format!("instance-{:x}", array.place())
        }
        Err(error) => return Err(error),
    };
    let current = facts.take("its tracer", array.pointer("current_trace"));
    let tracer = current.as_ref().and_then(|tracer| {
        facts.take("its tracer", tracer.text("name").and_then(|name| not_empty(name, "tracer")))
    });
    let tracer_options = current
        .as_ref()
        .and_then(|tracer| facts.take("the options of its tracer", tracer_options(&array, tracer)));
    let shows_longest =
        current.as_ref().and_then(|tracer| facts.take("its tracer", tracer.bool("print_max")));
    let clock = facts.take("its clock", clock(kernel, &array));
    let options = facts.take("its options", options(kernel, &array));
    let mut live = read_ring(kernel, memory, &array, "array_buffer")?;
    let is_on = facts.take("whether it was recording", is_on(&array));
    // Only the search for lost rings needs these.
    let enabled = enabled(kernel, &array).ok();
    live.role = Role { array: number, is_snapshot: false, enabled };
    let spare = ["max_buffer", "snapshot_buffer"].into_iter().find(|name| array.has(name));
    let has_snapshot = match spare.filter(|_| array.has("allocated_snapshot")) {
        Some(_) => facts.take("whether it has a snapshot", array.bool("allocated_snapshot")),
        None => Some(false),
    };
    let snapshot = match spare.filter(|_| has_snapshot == Some(true)) {
        Some(spare) => {
            let mut ring = read_ring(kernel, memory, &array, spare)?;
            ring.role = Role { is_snapshot: true, ..live.role.clone() };
            Some(ring)
        }
        None => None,
    };
    if has_snapshot.is_none() {
        // A list that is lost may be of the snapshot.
        live.role.enabled = None;
    }
    live.facts = facts.not_known;
    let (tracer_options, shows_longest) =
        (tracer_options.unwrap_or_default(), shows_longest.unwrap_or(false));
    let describe = move |array: Array| Array {
        tracer,
        clock,
        options,
        tracer_options,
        shows_longest,
        is_on,
        ..array
    };
    Ok(Draft { name, live, snapshot, describe: Box::new(describe) })
}

fn is_on(array: &Object<'_>) -> Result<bool, Error> {
    let buffer = array.pointer("array_buffer.buffer")?;
    // A page that reads as zero has no clock.
    if buffer.address("clock")? == 0 {
        return Err(Error::Null { structure: "trace_buffer".into(), member: "clock".into() });
    }
    Ok(buffer.u64("record_disabled")? & OFF == 0)
}

/// The array's clock. An entry of `trace_clocks` is a function, a name and a number.
fn clock(kernel: &Kernel, array: &Object<'_>) -> Result<Clock, Error> {
    let word = u64::from(kernel.memory.word_size());
    let entry = word.saturating_mul(3).saturating_mul(array.u64("clock_id")?);
    let at = kernel.symbol("trace_clocks")?.wrapping_add(entry);
    let name = kernel.text(pointer(kernel, at.wrapping_add(word))?)?;
    let in_ns = kernel
        .memory
        .number(at.wrapping_add(word.saturating_mul(2)), 4)
        .map_err(Error::hole("a table of the tracer"))?;
    Ok(Clock { name: not_empty(name, "clock")?, is_in_ns: in_ns != 0 })
}

/// Names of the enabled trace options; `trace_options` has the name of each bit.
fn options(kernel: &Kernel, array: &Object<'_>) -> Result<Vec<String>, Error> {
    let word = u64::from(kernel.memory.word_size());
    let names = kernel.symbol("trace_options")?;
    let set = array.u64("trace_flags")?;
    let mut options = Vec::new();
    for bit in 0..64u32 {
        let name = pointer(kernel, names.wrapping_add(u64::from(bit).saturating_mul(word)))?;
        if name == 0 {
            break;
        }
        if set.wrapping_shr(bit) & 1 == 1 {
            options.push(not_empty(kernel.text(name)?, "trace_options")?);
        }
    }
    Ok(options)
}

/// Refuses an empty name: a page that reads as zero has such.
fn not_empty(name: String, of: &str) -> Result<String, Error> {
    let null = || Error::Null { structure: of.to_owned(), member: "name".into() };
    if name.is_empty() { Err(null()) } else { Ok(name) }
}

fn pointer(kernel: &Kernel, at: u64) -> Result<u64, Error> {
    kernel.memory.pointer(at).map_err(Error::hole("a table of the tracer"))
}

/// Names of the enabled options of the current tracer.
fn tracer_options(array: &Object<'_>, tracer: &Object<'_>) -> Result<Vec<String>, Error> {
    let flags = match array.has("current_trace_flags") {
        true => array.pointer_or_null("current_trace_flags")?,
        false => tracer.pointer_or_null("flags")?,
    };
    let Some(flags) = flags else { return Ok(Vec::new()) };
    let set = flags.u64("val")?;
    let mut options = Vec::new();
    for n in 0..TRACER_OPTIONS_MAX {
        let option = flags.element("opts", n)?;
        if option.address("name")? == 0 {
            break;
        }
        if set & option.u64("bit")? != 0 {
            options.push(option.text("name")?);
        }
    }
    Ok(options)
}

/// Reads the ring of an `array_buffer` member.
fn read_ring(
    kernel: &Arc<Kernel>,
    memory: Option<&Arc<VirtualMemory>>,
    array: &Object<'_>,
    member: &str,
) -> Result<MemoryRing, Error> {
    let part = |path: &str| format!("{member}.{path}");
    let buffer = array.pointer(&part("buffer"))?;
    let header = HeaderPage::of_word_size(kernel.memory.word_size());
    let size = match sub_buffer_size(kernel, &buffer, header) {
        // The default size is one page.
        Err(Error::Hole { .. }) => kernel.memory.page_size(),
        size => size?,
    };
    let shape = Shape { size: usize::try_from(size.clamp(64, 1 << 26)).unwrap_or(4096), header };
    let mut cpus = Vec::new();
    let mut possible = kernel.cpus(Mask::Possible);
    if possible.is_empty() {
        // The buffer has a pointer for each; it is zero for one that is not possible.
        possible = (0..buffer.fit("cpus")?).take(CPUS_MAX).collect();
    }
    if possible.is_empty() {
        return Err(Error::Null {
            structure: "cpumask".into(),
            member: "cpu_possible_mask".into(),
        });
    }
    let with_ring = cpus_with_ring(kernel, &buffer);
    for cpu in possible {
        let ring = match per_cpu_ring(kernel, &buffer, cpu) {
            // A CPU that was never online has none.
            Ok(0) if !with_ring.contains(&cpu) => continue,
            Ok(0) => None,
            address => {
                match address.and_then(|address| ring::cpu(kernel, address, shape, cpus.len())) {
                    Err(Error::Hole { .. }) => None,
                    ring => Some(ring?),
                }
            }
        };
        cpus.push(ring.unwrap_or_else(|| {
            ring::lost(cpu, shape, sub_buffers(kernel, array, member, shape, cpu))
        }));
    }
    let time_start = array.u64(&part("time_start")).unwrap_or(0);
    let physical = memory.map(|m| m.physical().clone());
    let mut ring = MemoryRing::new(kernel.clone(), physical, shape, cpus, time_start);
    // Values that the image lacks are zero, as in a ring whose tracer measures no latency.
    ring.latency = latency(kernel, array, member).unwrap_or_default();
    Ok(ring)
}

/// Reads the longest latency that the array noted: the CPU, and that CPU's `struct
/// trace_array_cpu`.
fn latency(kernel: &Kernel, array: &Object<'_>, member: &str) -> Result<Latency, Error> {
    let cpu = u32::try_from(array.u64(&format!("{member}.cpu"))?).unwrap_or_default();
    let place = kernel.per_cpu(array.address(&format!("{member}.data"))?, cpu)?;
    let data = kernel.object("trace_array_cpu", place)?;
    Ok(Latency {
        cpu,
        time: data.u64("saved_latency").unwrap_or_default(),
        comm: data.text("comm").unwrap_or_default(),
        pid: data.i64("pid").unwrap_or_default(),
        uid: data.fit("uid.val").unwrap_or_default(),
        nice: data.i64("nice").unwrap_or_default(),
        policy: data.u64("policy").unwrap_or_default(),
        rt_priority: data.u64("rt_priority").unwrap_or_default(),
        section: (
            data.u64("critical_start").unwrap_or_default(),
            data.u64("critical_end").unwrap_or_default(),
        ),
    })
}

/// Size of a sub-buffer with its header, bytes. `struct trace_buffer` of Linux 6.8 has the size
/// without the header; 7.2.12 has only the page order; before 6.8 it is one page.
fn sub_buffer_size(kernel: &Kernel, buffer: &Object<'_>, header: HeaderPage) -> Result<u64, Error> {
    let page = kernel.memory.page_size();
    if buffer.has("subbuf_size") {
        return Ok(buffer.u64("subbuf_size")?.saturating_add(u64::from(header.data_offset)));
    }
    if buffer.has("subbuf_order") {
        let order = u32::try_from(buffer.u64("subbuf_order")?).unwrap_or(u32::MAX);
        return Ok(1u64.checked_shl(order).map_or(u64::MAX, |pages| page.saturating_mul(pages)));
    }
    Ok(page)
}

/// Number of sub-buffers in a CPU's list, computed from the bytes that the tracer noted for it.
fn sub_buffers(
    kernel: &Kernel,
    array: &Object<'_>,
    member: &str,
    shape: Shape,
    cpu: u32,
) -> Option<u64> {
    let data = kernel.per_cpu(array.address(&format!("{member}.data")).ok()?, cpu).ok()?;
    let bytes = kernel.object("trace_array_cpu", data).ok()?.u64("entries").ok()?;
    let room = (shape.size as u64).saturating_sub(u64::from(shape.header.data_offset));
    bytes.checked_add(room.checked_sub(1)?)?.checked_div(room)
}

/// Ids of the enabled events.
fn enabled(kernel: &Kernel, array: &Object<'_>) -> Result<HashSet<u16>, Error> {
    let mut ids = HashSet::new();
    for file in kernel.list(array.at("events")?.place(), "trace_event_file", "list")? {
        let file = file?;
        if file.u64("flags")? & 1 != 0 {
            ids.insert(file.pointer("event_call")?.fit("event.type")?);
        }
    }
    Ok(ids)
}

/// The CPUs that have rings in a buffer: those of its mask, which has one at least, or those online
/// where it reads as zero.
fn cpus_with_ring(kernel: &Kernel, buffer: &Object<'_>) -> Vec<u32> {
    let place = match buffer.member("cpumask") {
        Ok(member) if member.kind == MemberKind::Pointer => buffer.address("cpumask").ok(),
        _ => buffer.at("cpumask").ok().map(|mask| mask.place()),
    };
    let cpus = place.map_or_else(Vec::new, |place| kernel.mask(place));
    if cpus.is_empty() { kernel.cpus(Mask::Online) } else { cpus }
}

/// Address of `trace_buffer.buffers[cpu]`: the table is separate, or at the end of the structure.
fn per_cpu_ring(kernel: &Kernel, buffer: &Object<'_>, cpu: u32) -> Result<u64, Error> {
    let word = u64::from(kernel.memory.word_size());
    let table = match buffer.member("buffers")?.kind {
        MemberKind::Array { .. } => buffer.at("buffers")?.place(),
        _ => buffer.address("buffers")?,
    };
    pointer(kernel, table.wrapping_add(word.saturating_mul(cpu.into())))
}
