//! Finds the buffers of perf through the open files of processes: the operations of an event's file
//! are `perf_fops`, and its private data is the `struct perf_event`.

use crate::buffer::{Buffer, Owner};
use crate::event::Event;
use crate::lost;
use lastwords_bytes::Error as BytesError;
use lastwords_ftrace::Tracing;
use lastwords_kernel::tasks::Task;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::{Cause, Gap};
use std::collections::{BTreeMap, HashSet};

/// Most files that a process has (`sysctl_nr_open_max` is more; nobody has set it so).
const FILES_MAX: u64 = 1 << 26;

/// An open event and its process.
struct Opened<'k> {
    owner: Owner,
    event: Object<'k>,
}

/// Returns all buffers. Those that cannot be read become gaps.
pub(crate) fn all(kernel: &Kernel, tracing: &Tracing, gaps: &mut Vec<Gap>) -> Vec<Buffer> {
    let mut opened = Vec::new();
    if let Err(error) = open_events(kernel, &mut opened, gaps) {
        gaps.push(lost("the list of perf events", &error));
    }
    // Buffers in the order in which their first event was found.
    let (mut order, mut rings) = (Vec::new(), BTreeMap::new());
    for Opened { owner, event } in opened {
        let what =
            || format!("perf event at {:#x} of {} ({})", event.place(), owner.comm, owner.pid);
        let read = Event::read(kernel, tracing, &event, gaps)
            .and_then(|read| Ok(event.pointer_or_null("rb")?.map(|ring| (ring, read))));
        match read {
            // Events without a buffer count only.
            Ok(None) => {}
            Ok(Some((ring, event))) => {
                let row = rings.entry(ring.place()).or_insert_with(|| {
                    order.push(ring.place());
                    (owner, ring, Vec::new())
                });
                row.2.push(event);
            }
            Err(error) => gaps.push(lost(&what(), &error)),
        }
    }
    let lacks_events = gaps.iter().any(|gap| gap.cause != Cause::Unknown);
    let mut buffers = Vec::new();
    for (owner, ring, events) in order.iter().filter_map(|place| rings.remove(place)) {
        match Buffer::read(kernel, &ring, &owner, events, gaps) {
            Ok(found) => {
                buffers.extend(found.map(|found| Buffer { lacks_events, ..found }));
            }
            Err(error) => {
                let Owner { pid, comm } = owner;
                let what = format!("perf buffer at {:#x} of {comm} ({pid})", ring.place());
                gaps.push(lost(&what, &error));
            }
        }
    }
    buffers
}

/// Finds the events that processes have open.
///
/// # Errors
/// The kernel has no perf, or no list of tasks.
fn open_events<'k>(
    kernel: &'k Kernel,
    opened: &mut Vec<Opened<'k>>,
    gaps: &mut Vec<Gap>,
) -> Result<(), Error> {
    let operations = kernel.symbol("perf_fops")?;
    let tasks = kernel.tasks();
    gaps.extend(tasks.missing.iter().map(|error| lost("the list of tasks", error)));
    let (mut tables, mut events) = (HashSet::new(), HashSet::new());
    // The leader of a group comes before its other threads, which share its files.
    for task in &tasks.rows {
        let files = kernel.object("task_struct", task.place).and_then(|object| {
            let files = object.pointer_or_null("files")?;
            let place = object.at("files")?.place();
            match files {
                None if kernel.is_zero_page(place) => {
                    Err(BytesError::value("task_struct", place, 0, "a table of files").into())
                }
                files => Ok(files),
            }
        });
        let found = match files {
            Ok(Some(files)) if tables.insert(files.place()) => {
                of_files(kernel, &files, operations, task, gaps)
            }
            // A process that is ending has none.
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => {
                let new = found.into_iter().filter(|event| events.insert(event.place()));
                opened.extend(new.map(|event| Opened { owner: owner(task), event }));
            }
            Err(error) => {
                let what = format!("open files of {} ({})", task.comm, task.tgid);
                gaps.push(lost(&what, &error).with_events(None));
            }
        }
    }
    Ok(())
}

fn owner(task: &Task) -> Owner {
    Owner { pid: task.tgid, comm: task.comm.clone() }
}

/// Returns the events in the table of files of a process.
fn of_files<'k>(
    kernel: &'k Kernel,
    files: &Object<'k>,
    operations: u64,
    task: &Task,
    gaps: &mut Vec<Gap>,
) -> Result<Vec<Object<'k>>, Error> {
    let table = files.pointer("fdt")?;
    let count = table.u64("max_fds")?;
    // Each table has room. Zero is of a page that reads as zero.
    if !(1..=FILES_MAX).contains(&count) {
        let expected = "the size of a table of files";
        return Err(BytesError::value("fdtable", table.place(), count, expected).into());
    }
    kernel.budget().steps("fdtable", count)?;
    let (slots, used) = (table.address("fd")?, table.address("open_fds")?);
    let word = u64::from(kernel.memory.word_size());
    let mut events = Vec::new();
    let mut unread: Option<(u64, Error)> = None;
    for at in 0..count {
        let slot = slots.wrapping_add(at.wrapping_mul(word));
        let found = kernel.memory.pointer(slot).map_err(Error::hole("fdtable")).and_then(|file| {
            if file == 0 {
                return is_free(kernel, used, at).map(|()| None);
            }
            event_of(kernel, file, operations)
        });
        match found {
            Ok(found) => events.extend(found),
            Err(error) => {
                let count = unread.map_or(0, |(count, _)| count);
                unread = Some((count.saturating_add(1), error));
            }
        }
    }
    if let Some((count, error)) = unread {
        let cause =
            if matches!(error, Error::Hole { .. }) { Cause::Missing } else { Cause::Damaged };
        let what = format!("{count} open files of {} ({}): {error}", task.comm, task.tgid);
        gaps.push(Gap::new(None, cause, what));
    }
    Ok(events)
}

/// Checks that a number of a file is not in use. An empty slot whose number is in use is of a page
/// that reads as zero, or of a file that is just being opened.
fn is_free(kernel: &Kernel, used: u64, at: u64) -> Result<(), Error> {
    let place = used.wrapping_add(at >> 3);
    let bits = kernel.memory.number(place, 1).map_err(Error::hole("fdtable"))?;
    match bits.wrapping_shr(u32::try_from(at & 7).unwrap_or_default()) & 1 {
        0 => Ok(()),
        _ => Err(BytesError::value("fdtable", place, at, "the address of an open file").into()),
    }
}

/// Returns the event of a file, if it is that of an event.
fn event_of(kernel: &Kernel, file: u64, operations: u64) -> Result<Option<Object<'_>>, Error> {
    let file = kernel.object("file", file)?;
    let unset = |what: &str| BytesError::value("file", file.place(), 0, what).into();
    match file.address("f_op")? {
        0 => Err(unset("the operations of a file")),
        found if found == operations => match file.address("private_data")? {
            0 => Err(unset("the event of a file")),
            event => kernel.object("perf_event", event).map(Some),
        },
        _ => Ok(None),
    }
}
