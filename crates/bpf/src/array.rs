//! Reads the elements of array maps (`struct bpf_array`).

use crate::content::{Content, Entry, Sink};
use crate::value::Value;
use lastwords_image::Hole;
use lastwords_kernel::{Error, Mask};
use std::io;

/// Elements one after the other that are alike.
enum Run {
    None,
    /// All bytes are zero.
    Zeros(u32, u32),
    /// The image lacks them, from the address of the first hole.
    Missing(u32, u32, Hole),
}

/// Where the values of an array are.
struct Array {
    values: u64,
    /// Distance of two values, bytes.
    step: u64,
    /// The CPUs that have values of their own; empty if all share them.
    cpus: Vec<u32>,
}

/// Reads the elements of the sink's map.
///
/// # Errors
/// The sink fails.
pub(crate) fn read(sink: &mut Sink<'_>, is_per_cpu: bool) -> io::Result<()> {
    let array = match find(sink, is_per_cpu) {
        Ok(array) => array,
        Err(error) => {
            sink.unreadable(&error);
            return Ok(());
        }
    };
    let mut run = Run::None;
    for index in 0..sink.map.max_entries {
        match array.element(sink, index) {
            Ok(Some(values)) if values.iter().all(|(_, bytes)| bytes.iter().all(|b| *b == 0)) => {
                run = match run {
                    Run::Zeros(first, _) => Run::Zeros(first, index),
                    other => {
                        finish(sink, other)?;
                        Run::Zeros(index, index)
                    }
                };
            }
            Ok(Some(values)) => {
                finish(sink, std::mem::replace(&mut run, Run::None))?;
                for (cpu, bytes) in values {
                    put(sink, index, cpu, &bytes)?;
                }
            }
            Ok(None) => {
                finish(sink, run)?;
                return Ok(());
            }
            Err(hole) => {
                run = match run {
                    Run::Missing(first, _, hole) => Run::Missing(first, index, hole),
                    other => {
                        finish(sink, other)?;
                        Run::Missing(index, index, hole)
                    }
                };
            }
        }
    }
    finish(sink, run)
}

fn find(sink: &Sink<'_>, is_per_cpu: bool) -> Result<Array, Error> {
    let array = sink.kernel.object("bpf_array", sink.map.address)?;
    if is_per_cpu {
        let cpus = sink.kernel.cpus(Mask::Possible);
        let step = sink.kernel.memory.word_size().into();
        return Ok(Array { values: array.at("pptrs")?.place(), step, cpus });
    }
    let step = array.u64("elem_size")?;
    if step < sink.map.value_size.into() {
        let expected = "the size of an element";
        let error = lastwords_bytes::Error::value("bpf_array", array.place(), step, expected);
        return Err(error.into());
    }
    Ok(Array { values: array.at("value")?.place(), step, cpus: Vec::new() })
}

impl Array {
    /// Returns the values of an element, with their CPUs; none if the budget is spent, which is
    /// reported.
    ///
    /// # Errors
    /// The image lacks one of them.
    fn element(&self, sink: &mut Sink<'_>, index: u32) -> Result<Option<Values>, Hole> {
        let (kernel, size) = (sink.kernel, u64::from(sink.map.value_size));
        let cost = size.saturating_mul((self.cpus.len() as u64).max(1));
        let budget = kernel.budget();
        let paid = budget.steps("BPF map", 1).and_then(|()| budget.bytes("BPF map", cost));
        if let Err(error) = paid {
            sink.unreadable(&error.into());
            return Ok(None);
        }
        let place = self.values.wrapping_add(self.step.wrapping_mul(index.into()));
        let read = |place: u64| sink.read(place, sink.map.value_size);
        if self.cpus.is_empty() {
            return Ok(Some(vec![(None, read(place)?)]));
        }
        let base = kernel.memory.pointer(place)?;
        let of_cpu = |cpu: &u32| Ok((Some(*cpu), read(per_cpu(sink, base, *cpu)?)?));
        self.cpus.iter().map(of_cpu).collect::<Result<_, _>>().map(Some)
    }
}

type Values = Vec<(Option<u32>, Vec<u8>)>;

/// Returns the address of a CPU's copy.
///
/// # Errors
/// The image lacks the CPU's offset.
pub(crate) fn per_cpu(sink: &Sink<'_>, base: u64, cpu: u32) -> Result<u64, Hole> {
    sink.kernel.per_cpu(base, cpu).map_err(|error| match error {
        Error::Hole { hole, .. } => hole,
        _ => Hole { address: base, cause: lastwords_image::HoleCause::Unmapped },
    })
}

/// Writes what a run is, once it has ended.
fn finish(sink: &mut Sink<'_>, run: Run) -> io::Result<()> {
    match run {
        Run::None => Ok(()),
        Run::Zeros(first, last) if first == last => {
            let zeros = vec![0; usize::try_from(sink.map.value_size).unwrap_or_default()];
            put(sink, first, None, &zeros)
        }
        Run::Zeros(first, last) => sink.put(Content::Zeros(first, last)),
        Run::Missing(first, last, hole) => {
            let count = u64::from(last.saturating_sub(first)).saturating_add(1);
            let bytes = count.saturating_mul(sink.map.value_size.into());
            sink.missing(&format!("elements {first} to {last}"), hole, bytes);
            Ok(())
        }
    }
}

fn put(sink: &mut Sink<'_>, index: u32, cpu: Option<u32>, bytes: &[u8]) -> io::Result<()> {
    let value = Value::new(sink.map.value.as_ref(), bytes, sink.kernel.budget());
    sink.put(Content::Entry(Entry { key: Value::Unsigned(index.into()), cpu, value }))
}
