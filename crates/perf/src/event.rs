//! An event of perf (`struct perf_event`) and its attributes.

use lastwords_bytes::Error as BytesError;
use lastwords_ftrace::Tracing;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::Gap;
use serde::Serialize;

/// Sizes of `struct perf_event_attr` that were published; the first is the least.
const ATTR_SIZES: [usize; 9] = [64, 72, 80, 96, 104, 112, 120, 128, 136];
/// Offset of the structure's size in it, bytes.
pub(crate) const ATTR_SIZE_AT: usize = 4;

const CONFIG_AT: usize = 8;

/// PMUs of the clocks, by their `config` as software events. The kernel gives such events the
/// number of the PMU, which differs between boots, in place of the type with which they were opened.
const CLOCKS: [&str; 2] = ["cpu_clock", "task_clock"];

/// The type of tracepoints (`PERF_TYPE_TRACEPOINT`). The types are part of the kernel's ABI.
const TRACEPOINT: u32 = 2;
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;

/// An event whose records are in a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Id of the event; records name it.
    pub id: u64,
    /// Name of the event: `sched:sched_switch`, `cpu-clock`, or the name of a PMU.
    pub name: String,
    /// Type of the event (`perf_event_attr.type`): 2 is a tracepoint, 1 a software event.
    #[serde(rename = "type")]
    pub kind: u32,
    /// What it counts (`perf_event_attr.config`); of a tracepoint it is the event's id.
    pub config: u64,
    /// The fields of its samples (`perf_event_attr.sample_type`).
    pub sample_type: u64,
    /// Form of counters in its samples (`perf_event_attr.read_format`).
    pub read_format: u64,
    /// All its records end with fields of samples (`perf_event_attr.sample_id_all`).
    pub has_sample_id: bool,
    /// Events, or samples a second with `is_frequency`, between two samples.
    pub period: u64,
    /// `period` is a frequency.
    pub is_frequency: bool,
    /// CPU of the event, or null if it is of a task on all CPUs.
    pub cpu: Option<u32>,
    /// Its buffer is written from the end to the begin.
    pub is_backward: bool,
    /// Samples that found no room, as far as the kernel counts them for each event.
    pub lost_samples: Option<u64>,
    /// Its attributes in the shortest form of all that hold them.
    #[serde(skip)]
    pub attr: Vec<u8>,
}

impl Event {
    /// Reads an event.
    ///
    /// # Errors
    /// The image lacks the event, or it is damaged.
    pub(crate) fn read(
        kernel: &Kernel,
        tracing: &Tracing,
        event: &Object<'_>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Self, Error> {
        whole(kernel, event)?;
        let attr = event.at("attr")?;
        let id = event.u64("id")?;
        // A page that reads as zero would be the event 0, which there is not.
        if id == 0 || attr.u64("size")? < ATTR_SIZES[0] as u64 {
            let expected = "the id of an event";
            return Err(BytesError::value("perf_event", event.place(), id, expected).into());
        }
        let mut unknown = |what: &str, why: &str| {
            let fact = format!("{what} of the perf event at {:#x}: {why}", event.place());
            gaps.push(Gap::not_known(None, &fact));
        };
        let pmu = pmu(kernel, event).unwrap_or_else(|error| {
            unknown("the PMU", &error.to_string());
            String::new()
        });
        let (kind, config) = match CLOCKS.iter().position(|clock| *clock == pmu) {
            Some(clock) => (SOFTWARE, clock as u64),
            None => (attr.fit("type")?, attr.u64("config")?),
        };
        let mut bytes = event.bytes("attr")?;
        let order = kernel.memory.byte_order();
        put(&mut bytes, 0, &order.little(kind.to_le_bytes()));
        put(&mut bytes, CONFIG_AT, &order.little(config.to_le_bytes()));
        let lost_samples = event.has("lost_samples").then(|| event.u64("lost_samples"));
        let name = name(kernel, tracing, &pmu, kind, config);
        if kind == TRACEPOINT && name.contains('/') {
            unknown("the name", &format!("no format has the id {config}"));
        }
        Ok(Self {
            id,
            name,
            kind,
            config,
            sample_type: attr.u64("sample_type")?,
            read_format: attr.u64("read_format")?,
            has_sample_id: attr.bool("sample_id_all")?,
            period: attr.u64("sample_period")?,
            is_frequency: attr.bool("freq")?,
            cpu: u32::try_from(event.i64("cpu")?).ok(),
            is_backward: attr.has("write_backward") && attr.bool("write_backward")?,
            lost_samples: lost_samples.transpose()?,
            attr: shortest(bytes),
        })
    }

    /// Returns the id of the tracepoint, if it is one.
    #[must_use]
    pub fn tracepoint(&self) -> Option<u16> {
        (self.kind == TRACEPOINT).then(|| u16::try_from(self.config).ok())?
    }
}

/// Checks that no page of an event reads as zero.
fn whole(kernel: &Kernel, object: &Object<'_>) -> Result<(), Error> {
    let (first, last) = (object.place(), object.moved(object.size().saturating_sub(1)).place());
    match [first, last].into_iter().find(|at| kernel.is_zero_page(*at)) {
        None => Ok(()),
        Some(at) => {
            let expected = "a page that does not read as zero";
            Err(BytesError::value(&object.type_name(), at, 0, expected).into())
        }
    }
}

/// Returns the name of an event's PMU. The clocks are variables of the kernel.
fn pmu(kernel: &Kernel, event: &Object<'_>) -> Result<String, Error> {
    let pmu = event.pointer("pmu")?;
    let is_own = |clock: &&&str| kernel.symbol(&format!("perf_{clock}")).ok() == Some(pmu.place());
    if let Some(clock) = CLOCKS.iter().find(is_own) {
        return Ok((*clock).to_owned());
    }
    match pmu.text("name")? {
        name if name.is_empty() => {
            Err(BytesError::value("pmu", pmu.place(), 0, "the name of a PMU").into())
        }
        name => Ok(name),
    }
}

/// Replaces bytes at an offset.
pub(crate) fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    let place = bytes.get_mut(at..at.saturating_add(with.len()));
    place.into_iter().for_each(|place| place.copy_from_slice(with));
}

/// Removes the zeros at the end that a shorter published form leaves out. They mean the same, and
/// an older perf refuses what it does not know. The size in the structure is set by the writer.
fn shortest(mut attr: Vec<u8>) -> Vec<u8> {
    let used = attr.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    let size = ATTR_SIZES.into_iter().find(|size| *size >= used).unwrap_or(attr.len());
    attr.truncate(size);
    attr
}

/// Returns the name of an event, as perf prints it if there is such a name.
fn name(kernel: &Kernel, tracing: &Tracing, pmu: &str, kind: u32, config: u64) -> String {
    let format = u16::try_from(config).ok().and_then(|id| tracing.formats.get(&id));
    let known = match kind {
        TRACEPOINT => format.map(|format| format!("{}:{}", format.system, format.name)),
        HARDWARE => word(kernel, "perf_hw_id", "PERF_COUNT_HW_", config),
        SOFTWARE => word(kernel, "perf_sw_ids", "PERF_COUNT_SW_", config),
        _ => None,
    };
    known.unwrap_or_else(|| match pmu {
        "" => format!("type-{kind}/config={config:#x}/"),
        pmu => format!("{pmu}/config={config:#x}/"),
    })
}

/// Returns the word of a value of an enumeration: `cpu-clock` of `PERF_COUNT_SW_CPU_CLOCK`.
fn word(kernel: &Kernel, enumeration: &str, prefix: &str, value: u64) -> Option<String> {
    let rows = kernel.types.enumeration(enumeration);
    let (name, _) = rows.into_iter().find(|(_, number)| u64::try_from(*number) == Ok(value))?;
    Some(name.strip_prefix(prefix)?.to_lowercase().replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_shortest_published_form() {
        let of = |used: usize| shortest([vec![1; used], vec![0; 144 - used]].concat()).len();
        assert_eq!([of(10), of(64), of(65), of(97), of(128), of(137)], [64, 64, 72, 104, 128, 144]);
    }
}
