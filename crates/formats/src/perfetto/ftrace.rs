//! A kernel's trace: bundles of events for each CPU, with what names tasks and clocks.
//!
//! Events that Perfetto knows are written as its own messages, so that it draws slices of the scheduler, interrupts, system
//! calls and the function graph; others as `GenericFtraceEvent`, their fields by name. Times are those of the trace's
//! clock, which Perfetto takes for the time since the boot.

mod class;

use std::collections::HashMap;
use std::io::Write;

use lastwords_trace::ftrace::{Array, Ring, Tracing};

use super::proto::{Message, put_message};
use super::{BOOTTIME, NEEDS_STATE, REALTIME, STATE_CLEARED, packet, put_packet};
use crate::ftrace::Choice;
use crate::ftrace::beside::Beside;
use crate::ftrace::choice::{Chosen, Part};
use crate::ftrace::log::{Log, LogLine};
use crate::ftrace::print::{Names, Show};
use crate::ftrace::text::{At, Common, Options, Printer, Summary};
use class::{Class, classes};
use lastwords_ctf::{Error, Result};

/// Bytes of events after which a bundle is written.
const BUNDLE: usize = 64 << 10;
/// Bytes gathered before they are written.
const CHUNK: usize = 128 << 10;
/// Faults that a summary keeps.
const MOST_NOTES: usize = 100;
/// Symbols that are told to the reader; addresses of more stay numbers.
const MOST_SYMBOLS: usize = 1 << 20;
/// Id of the track of the kernel's log.
const LOG_TRACK: u64 = 1;
/// `TYPE_INSTANT` of `TrackEvent.Type`.
const INSTANT: u64 = 3;

/// Writes the chosen events of one trace array, and the log's records as marks on a track of their own.
///
/// # Errors
/// There is no such array, or `out` cannot be written.
pub fn write(
    out: &mut dyn Write,
    tracing: &Tracing,
    array: usize,
    choice: &Choice,
    beside: &Beside,
    mut log: Log<'_>,
) -> Result<Summary> {
    let mut chosen = Chosen::new(tracing, &[array], choice)?;
    let options = Options { snapshot: choice.snapshot, ..Options::default() };
    let (Some(of), Some(ring)) = (tracing.arrays.get(array), choice.ring(tracing, array)?) else {
        return Ok(Summary::default());
    };
    let mut writer = Writer::new(tracing, of, ring, &options);
    writer.head(tracing, ring, beside);
    if !log.is_empty() {
        writer.log_track();
    }
    log.skip_to(choice.since.unwrap_or(0));
    if choice.last.is_some() {
        log.skip_to(chosen.head().and_then(|part| part.merge.head()).unwrap_or(0));
    }
    let mut summary = Summary::default();
    while let Some(part) = chosen.head() {
        let Some(time) = part.merge.head() else { break };
        while let Some((clock, line)) = log.before(Some(time)) {
            writer.log_line(clock, line);
        }
        writer.event(part, time);
        part.merge.advance();
        summary.events += 1;
        if writer.out.len() >= CHUNK {
            writer.flush(out, &mut summary)?;
        }
    }
    while let Some((clock, line)) = log.before(choice.until) {
        writer.log_line(clock, line);
    }
    (0..writer.bundles.len()).for_each(|lane| writer.close(lane));
    writer.flush(out, &mut summary)?;
    out.flush().map_err(Error::Output)?;
    (summary.faults, summary.notes) = chosen.faults();
    summary.notes.extend(of_clock(of));
    summary.notes.truncate(MOST_NOTES);
    Ok(summary)
}

/// What is to be said of the clock, if anything.
fn of_clock(array: &Array) -> Option<String> {
    let clock = &array.clock;
    (!array.clock_in_ns).then(|| {
        format!(
            "the trace's clock is {clock}, which does not count nanoseconds: Perfetto shows its readings as nanoseconds"
        )
    })
}

/// The events of one CPU that are not written yet.
#[derive(Default)]
struct Bundle {
    cpu: u32,
    events: Vec<u8>,
    /// Events are missing before the first.
    lost: bool,
}

struct Writer<'a> {
    tracing: &'a Tracing,
    /// By id.
    classes: Vec<Option<Class<'a>>>,
    printer: Printer<'a>,
    names: Names,
    /// Addresses that were told to the reader, by number.
    symbols: HashMap<u64, Option<u64>>,
    /// `InternedData` that no packet has yet.
    interned: Message,
    /// By lane of the merge.
    bundles: Vec<Bundle>,
    out: Vec<u8>,
    packet: Message,
    event: Message,
    inner: Message,
    scratch: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(tracing: &'a Tracing, array: &'a Array, ring: &dyn Ring, options: &'a Options) -> Self {
        Self {
            tracing,
            classes: classes(tracing),
            printer: Printer::new(tracing, array, ring, options),
            names: Names::new(tracing, false),
            symbols: HashMap::new(),
            interned: Message::default(),
            bundles: Vec::new(),
            out: Vec::with_capacity(2 * CHUNK),
            packet: Message::default(),
            event: Message::default(),
            inner: Message::default(),
            scratch: Vec::new(),
        }
    }

    /// Machine, clocks, tasks, counters.
    fn head(&mut self, tracing: &Tracing, ring: &dyn Ring, beside: &Beside) {
        // uname's words: system, host, release, version (several words), machine.
        let version = tracing.uname.split_once(&tracing.release).map_or("", |(_, rest)| rest.trim());
        let version = version.strip_suffix(&tracing.machine).unwrap_or(version).trim();
        self.packet.nested(packet::SYSTEM_INFO, |info| {
            info.nested(1, |uname| {
                uname.text(1, b"Linux");
                uname.text(2, version.as_bytes());
                uname.text(3, tracing.release.as_bytes());
                uname.text(4, tracing.machine.as_bytes());
            });
            info.number(6, u64::from(tracing.page_size));
            info.number(8, u64::from(tracing.cpus));
        });
        self.packet.number(packet::SEQUENCE_FLAGS, STATE_CLEARED);
        put_packet(&mut self.out, &mut self.packet);
        if let Some((boot, wall)) = beside.moment {
            self.packet.nested(packet::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, reading) in [(BOOTTIME, boot), (REALTIME, wall)] {
                    snapshot.nested(1, |one| {
                        one.number(1, clock);
                        one.number(2, reading);
                    });
                }
                snapshot.number(2, BOOTTIME);
            });
            put_packet(&mut self.out, &mut self.packet);
        }
        self.tasks(tracing, beside);
        self.packet.nested(packet::FTRACE_STATS, |stats| {
            stats.number(1, 2);
            for cpu in ring.cpus() {
                stats.nested(2, |of| {
                    let numbers = [u64::from(cpu.cpu), cpu.stats.entries, cpu.stats.overrun, cpu.stats.commit_overrun];
                    (1u32..).zip(numbers).for_each(|(field, number)| of.number(field, number));
                    of.number(5, cpu.stats.bytes);
                    of.number(8, cpu.stats.dropped);
                    of.number(9, cpu.stats.read);
                });
            }
        });
        put_packet(&mut self.out, &mut self.packet);
    }

    /// `ProcessTree`: the tasks of the kernel's memory, and those whose thread group ftrace kept.
    fn tasks(&mut self, tracing: &Tracing, beside: &Beside) {
        let mut groups: HashMap<u32, (u32, &str)> = HashMap::new();
        for (pid, tgid) in &tracing.tgids {
            groups.insert(*pid, (*tgid, tracing.comms.get(pid).map_or("", String::as_str)));
        }
        groups.extend(beside.tasks.iter().map(|task| (task.pid, (task.tgid, task.comm.as_str()))));
        let mut sorted: Vec<(u32, (u32, &str))> = groups.into_iter().filter(|(pid, _)| *pid != 0).collect();
        sorted.sort_unstable();
        if sorted.is_empty() {
            return;
        }
        let (leaders, threads): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|(pid, (tgid, _))| pid == tgid);
        self.packet.nested(packet::PROCESS_TREE, |tree| {
            for (pid, (_, comm)) in &leaders {
                tree.nested(1, |process| {
                    process.number(1, u64::from(*pid));
                    process.text(3, comm.as_bytes());
                    process.number(9, 1);
                });
            }
            for (pid, (tgid, comm)) in threads.iter().chain(&leaders) {
                tree.nested(2, |thread| {
                    thread.number(1, u64::from(*pid));
                    thread.text(2, comm.as_bytes());
                    thread.number(3, u64::from(*tgid));
                });
            }
        });
        put_packet(&mut self.out, &mut self.packet);
    }

    /// Puts the next event into its CPU's bundle.
    fn event(&mut self, part: &mut Part<'_>, time: u64) {
        let (lane, cpu) = (part.merge.lane(), part.merge.cpu());
        if part.merge.take_lost().is_some() {
            self.close(lane);
            if let Some(bundle) = self.bundles.get_mut(lane) {
                bundle.lost = true;
            }
        }
        let payload = part.merge.payload();
        let common = Common::read(payload, self.tracing.byte_order);
        self.event.clear();
        self.event.number(1, time);
        self.event.number(2, u64::from(common.pid));
        self.inner.clear();
        let number = self.fill(payload, At { time, cpu, lane, common });
        self.event.message(number, &self.inner);
        if self.bundles.len() <= lane {
            self.bundles.resize_with(lane + 1, Bundle::default);
        }
        let Some(bundle) = self.bundles.get_mut(lane) else { return };
        bundle.cpu = cpu;
        put_message(&mut bundle.events, 2, self.event.bytes());
        if bundle.events.len() >= BUNDLE {
            self.close(lane);
        }
    }

    /// Writes what a lane has gathered, and the symbols it speaks of.
    fn close(&mut self, lane: usize) {
        let Some(bundle) = self.bundles.get_mut(lane).filter(|bundle| !bundle.events.is_empty()) else { return };
        let mut head = Message::default();
        head.number(1, u64::from(bundle.cpu));
        if bundle.lost {
            head.number(3, 1);
        }
        let mut body = head.bytes().to_vec();
        body.append(&mut bundle.events);
        bundle.lost = false;
        self.packet.octets(packet::FTRACE_EVENTS, &body);
        if !self.interned.is_empty() {
            self.packet.message(packet::INTERNED_DATA, &self.interned);
            self.interned.clear();
        }
        self.packet.number(packet::SEQUENCE_FLAGS, NEEDS_STATE);
        put_packet(&mut self.out, &mut self.packet);
    }

    /// The number that stands for the name of a function; none where the address has no symbol.
    fn symbol(&mut self, address: u64) -> Option<u64> {
        if let Some(known) = self.symbols.get(&address) {
            return *known;
        }
        if self.symbols.len() >= MOST_SYMBOLS {
            return None;
        }
        let number = self.names.has(address).then_some(self.symbols.len() as u64 + 1);
        self.symbols.insert(address, number);
        let number = number?;
        self.scratch.clear();
        self.names.show(&mut self.scratch, address, Show::Bare);
        let mut symbol = Message::default();
        symbol.number(1, number);
        symbol.text(2, &self.scratch);
        // `InternedData.kernel_symbols`.
        self.interned.message(26, &symbol);
        Some(number)
    }

    fn log_track(&mut self) {
        self.packet.nested(packet::TRACK_DESCRIPTOR, |track| {
            track.number(1, LOG_TRACK);
            track.text(2, b"kernel log");
        });
        put_packet(&mut self.out, &mut self.packet);
    }

    fn log_line(&mut self, clock: u64, line: &LogLine) {
        // A log that stands behind the events has no time on their clock.
        let clock = if clock == u64::MAX { line.time } else { clock };
        self.packet.number(packet::TIMESTAMP, clock);
        self.packet.nested(packet::TRACK_EVENT, |event| {
            event.number(9, INSTANT);
            event.number(11, LOG_TRACK);
            event.text(22, b"dmesg");
            event.text(23, line.text.as_bytes());
            event.nested(4, |level| {
                level.text(10, b"level");
                level.number(3, u64::from(line.level));
            });
        });
        put_packet(&mut self.out, &mut self.packet);
    }

    fn flush(&mut self, out: &mut dyn Write, summary: &mut Summary) -> Result<()> {
        out.write_all(&self.out).map_err(Error::Output)?;
        summary.bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
