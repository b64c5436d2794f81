//! Reads the rings of a channel: geometry, positions, counters, pages.

use super::Memory;
use crate::{Counters, Loss, Mode, Ring, SetData, Slot, Stream};
use lastwords_image::{Hole, HoleCause, front, read_parts};
use lastwords_kernel::{Error, Kernel, Mask, Object};
use std::sync::Arc;

/// Most sub-buffers of a ring, and largest sub-buffer in bytes, that are accepted.
const SLOTS_MAX: u64 = 1 << 20;
const SIZE_MAX: u64 = 1 << 30;

/// Properties that all rings of a channel share.
struct Channel {
    id: u32,
    mode: Mode,
    slots: u64,
    sub_buffer_size: u64,
    counter_mask: u64,
}

/// Reads the streams of a channel, ordered by CPU, and notes.
pub(super) fn streams(
    memory: &Memory<'_>,
    object: &Object<'_>,
) -> Result<(Vec<Stream>, Vec<String>), Error> {
    let rb = object.pointer("rb_chan")?;
    let backend = rb.at("backend")?;
    let channel = channel(memory, object, &rb, &backend)?;
    let (mut streams, mut notes) = (Vec::new(), Vec::new());
    for (cpu, address) in rings(memory, &backend)? {
        let buffer = memory.object("lttng_kernel_ring_buffer", address)?;
        match stream(memory, &channel, &buffer, cpu) {
            Ok(stream) => streams.push(stream),
            Err(error @ Error::Bytes(_)) => return Err(error),
            Err(error) => {
                let cpu = cpu.map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
                notes.push(format!("channel {}{cpu}: its ring is not known: {error}", channel.id));
            }
        }
    }
    Ok((streams, notes))
}

fn channel(
    memory: &Memory<'_>,
    object: &Object<'_>,
    rb: &Object<'_>,
    backend: &Object<'_>,
) -> Result<Channel, Error> {
    let size = |member: &str, most: u64| {
        let value = backend.u64(member)?;
        let fits = value.is_power_of_two() && value <= most;
        let structure =
            || format!("channel_backend at {:#x} ({member} is {value})", backend.place());
        fits.then_some(value).ok_or_else(|| Error::Shape {
            structure: structure(),
            member: member.to_owned(),
            expected: "a power of two that a ring can have",
        })
    };
    let overwrite = memory.types.enum_value("RING_BUFFER_OVERWRITE").unwrap_or(0).cast_unsigned();
    Ok(Channel {
        id: u32::try_from(object.u64("id")?).unwrap_or(u32::MAX),
        mode: if backend.u64("config.mode")? == overwrite {
            Mode::Overwrite
        } else {
            Mode::Discard
        },
        slots: size("num_subbuf", SLOTS_MAX)?,
        sub_buffer_size: size("subbuf_size", SIZE_MAX)?,
        counter_mask: rb.u64("commit_count_mask")?,
    })
}

/// Finds the addresses of the rings: one for each CPU, or one for all CPUs.
pub(super) fn rings(
    memory: &Memory<'_>,
    backend: &Object<'_>,
) -> Result<Vec<(Option<u32>, u64)>, Error> {
    let kernel = memory.kernel;
    let per_cpu = memory.types.enum_value("RING_BUFFER_ALLOC_PER_CPU").unwrap_or(0).cast_unsigned();
    let is_per_cpu = backend.u64("config.alloc")? == per_cpu;
    let pointer = |names: [&'static str; 2]| {
        names.into_iter().find(|name| backend.has(name)).unwrap_or("buf")
    };
    if !is_per_cpu {
        return Ok(vec![(None, backend.address(pointer(["global_buf", "buf"]))?)]);
    }
    let base = backend.address(pointer(["percpu_buf", "buf"]))?;
    let mask = match backend.member("cpumask")?.kind {
        lastwords_kernel::btf::MemberKind::Pointer => backend.address("cpumask")?,
        _ => backend.at("cpumask")?.place(),
    };
    let mut cpus = kernel.mask(mask);
    if cpus.is_empty() {
        cpus = kernel.cpus(Mask::Possible);
    }
    cpus.into_iter().map(|cpu| Ok((Some(cpu), kernel.per_cpu(base, cpu)?))).collect()
}

fn stream(
    memory: &Memory<'_>,
    channel: &Channel,
    buffer: &Object<'_>,
    cpu: Option<u32>,
) -> Result<Stream, Error> {
    let kernel = memory.kernel;
    let word = kernel.memory.word_size();
    let backend = buffer.at("backend")?;
    kernel.budget().steps("slots", channel.slots)?;
    let sets = Sets::read(memory, channel, &backend)?;
    let slot = |n: u64| {
        let number = |table: Result<Object<'_>, Error>, member: &str| {
            table.and_then(|row| row.u64(member)).ok()
        };
        let id = number(backend.element("buf_wsb", n), "id");
        Slot {
            counters: Counters {
                contiguous: number(buffer.element("commit_hot", n), "seq"),
                delivered: number(buffer.element("commit_cold", n), "cc_sb"),
            },
            set: id.map(|id| channel.mode.set(id, word)),
        }
    };
    let is_held = buffer.u64("get_subbuf").unwrap_or(0) != 0;
    let time =
        ["last_timestamp", "last_tsc", "time"].into_iter().find_map(|name| buffer.u64(name).ok());
    Ok(Stream {
        channel: channel.id,
        channel_name: String::new(),
        cpu,
        ring: Ring {
            sub_buffer_size: channel.sub_buffer_size,
            mode: channel.mode,
            word,
            produced: buffer.u64("offset")?,
            consumed: buffer.u64("consumed")?,
            counter_mask: channel.counter_mask,
            slots: (0..channel.slots).map(slot).collect(),
            reader: backend.u64("buf_rsb.id").ok().map(|id| channel.mode.set(id, word)),
            held: if is_held { buffer.u64("get_subbuf_consumed").ok() } else { None },
        },
        loss: Loss {
            full: buffer.u64("records_lost_full").unwrap_or(0),
            wrap: buffer.u64("records_lost_wrap").unwrap_or(0),
            big: buffer.u64("records_lost_big").unwrap_or(0),
        },
        // On kernels of 32 bits this field has only the upper bits of the clock.
        last_time: time.filter(|_| word == 8),
        packets: Vec::new(),
        data: Arc::new(sets),
    })
}

/// The sets of pages of one ring.
struct Sets {
    kernel: Arc<Kernel>,
    /// Each set's table of pages and length of data; none if unreadable.
    sets: Vec<Option<Set>>,
    /// Distance of two rows of a table, and offset of the pointer in a row, bytes.
    stride: u64,
    pointer: u64,
}

#[derive(Clone, Copy)]
struct Set {
    table: u64,
    data_size: Option<u64>,
}

impl Sets {
    fn read(memory: &Memory<'_>, channel: &Channel, backend: &Object<'_>) -> Result<Self, Error> {
        // In overwrite mode the reader has an extra set.
        let count = channel.slots.saturating_add(1);
        let page = memory.types.member("lttng_kernel_ring_buffer_backend_page", "virt")?;
        let mut sets = Vec::new();
        for index in 0..count {
            let set = backend
                .element("array", index)
                .and_then(|pointer| pointer.pointer(""))
                .and_then(|pages| {
                    Ok(Set {
                        table: pages.at("p")?.place(),
                        data_size: pages.u64("data_size").ok(),
                    })
                });
            sets.push(set.ok());
        }
        Ok(Self {
            kernel: Arc::clone(memory.kernel),
            sets,
            stride: memory.types.size_of("lttng_kernel_ring_buffer_backend_page")?,
            pointer: page.offset,
        })
    }
}

impl SetData for Sets {
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let nowhere = Hole { address: set, cause: HoleCause::Unmapped };
        let index = usize::try_from(set).map_err(|_| nowhere)?;
        let set = self.sets.get(index).copied().flatten().ok_or(nowhere)?;
        let size = self.kernel.memory.page_size().max(1);
        read_parts(at, buf, |at, rest| {
            let (page, inside) = (at.checked_div(size).unwrap_or(0), at & size.wrapping_sub(1));
            let row =
                set.table.wrapping_add(page.wrapping_mul(self.stride)).wrapping_add(self.pointer);
            let address = self.kernel.memory.pointer(row)?;
            let part = front(rest, size.saturating_sub(inside));
            self.kernel.memory.read(address.wrapping_add(inside), part)?;
            Ok(part.len())
        })
    }

    fn data_size(&self, set: u64) -> Option<u64> {
        self.sets.get(usize::try_from(set).ok()?)?.as_ref()?.data_size
    }
}
