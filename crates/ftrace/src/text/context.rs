//! The beginning of an event's line: task, CPU, flags, time (`trace_print_context`,
//! `trace_print_lat_context`).

use super::is_real_time;
use super::slot::Slot;
use crate::print::{AddressHasher, Spec, number, padded};
use crate::{FlagColumns, Format, Tracing, is_since};
use lastwords_bytes::{ByteOrder, low_u8, low_u32};
use lastwords_trace::text::number::{digit, six, unsigned};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// Most beginnings of lines that are cached.
const MOST: usize = 1 << 16;
/// Most names of tasks that are learned: the number of pids that a kernel can have
/// (`PID_MAX_LIMIT`).
const MOST_LEARNED: usize = 1 << 22;

/// Names of tasks.
pub(crate) struct Tasks<'a> {
    comms: &'a BTreeMap<u32, String>,
    /// Names that were learned from events of the scheduler; `None` unless
    /// [`Tracing::learns_comms`] is set.
    learned: Option<HashMap<u32, String, BuildHasherDefault<AddressHasher>>>,
    tgids: Option<&'a BTreeMap<u32, u32>>,
    /// Cached texts by pid: `%16s-%-7d ` and the thread group.
    known: HashMap<u32, (u32, u32), BuildHasherDefault<AddressHasher>>,
    room: Vec<u8>,
    shown: ShownFlags,
}

/// The flags that the kernel shows.
#[derive(Clone, Copy)]
struct ShownFlags {
    /// The flag for lazy rescheduling.
    lazy: bool,
    columns: FlagColumns,
}

/// The position of an event: everything that its text needs besides the payload.
#[derive(Clone, Copy)]
pub(crate) struct EventInfo {
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) lane: usize,
    pub(crate) common: Common,
}

/// The first eight bytes of every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) id: u16,
    pub(crate) flags: u8,
    pub(crate) preempt: u8,
    pub(crate) pid: u32,
}

impl Common {
    /// Reads the fields. If the payload is too short, all of them are 0.
    #[inline]
    pub(crate) fn read(payload: &[u8], order: ByteOrder) -> Self {
        let Some(raw) = payload.first_chunk::<8>() else {
            return Self { id: 0, flags: 0, preempt: 0, pid: 0 };
        };
        let [a, b, flags, preempt, c, d, e, f] = *raw;
        let id = u16::from_le_bytes(order.little([a, b]));
        let pid = u32::from_le_bytes(order.little([c, d, e, f]));
        Self { id, flags, preempt, pid }
    }

    /// Returns all fields in one word: the id in the lowest bits, then flags, depth of preemption,
    /// pid.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.pid) << 32
            | u64::from(self.preempt) << 24
            | u64::from(self.flags) << 16
            | u64::from(self.id)
    }

    /// Returns the same word for a payload, or `None` if the payload is too short.
    #[inline]
    pub(crate) fn read_word(payload: &[u8], order: ByteOrder) -> Option<u64> {
        match order {
            ByteOrder::Little => payload.first_chunk().map(|raw| u64::from_le_bytes(*raw)),
            ByteOrder::Big => payload.first_chunk::<8>().map(|raw| Self::read(raw, order).word()),
        }
    }
}

/// The fields of a scheduler event that have the pid and the name of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskFields {
    pid: Slot,
    name: Slot,
}

impl TaskFields {
    /// Returns the fields from which trace-cmd learns names after it has printed the event
    /// (libtraceevent's `plugin_sched_switch.c`).
    fn from_format(format: &Format) -> Vec<Self> {
        let pairs: &[(&str, &str)] = match (format.system.as_str(), format.name.as_str()) {
            ("sched", "sched_switch") => &[("prev_pid", "prev_comm"), ("next_pid", "next_comm")],
            ("sched", "sched_wakeup" | "sched_wakeup_new") => &[("pid", "comm")],
            _ => &[],
        };
        let is_array = |name: &&str| {
            format.fields.iter().any(|f| f.name == *name && f.declaration.starts_with("char "))
        };
        let there = pairs.iter().filter(|(_, name)| is_array(name));
        there
            .map(|(pid, name)| Self {
                pid: Slot::find(format, pid),
                name: Slot::find(format, name),
            })
            .collect()
    }

    #[inline]
    fn pid(self, payload: &[u8], order: ByteOrder) -> u32 {
        low_u32(self.pid.unsigned(payload, order))
    }
}

impl<'a> Tasks<'a> {
    pub(crate) fn new(tracing: &'a Tracing, with_tgid: bool) -> Self {
        let tgids = with_tgid.then_some(&tracing.tgids);
        let learned = tracing.learns_comms.then(HashMap::default);
        let (known, room) = (HashMap::default(), Vec::new());
        Self {
            comms: &tracing.comms,
            learned,
            tgids,
            known,
            room,
            shown: ShownFlags::from_tracing(tracing),
        }
    }

    /// Appends the flags of an event as the kernel shows them: see [`irq_flags`].
    #[inline]
    pub(crate) fn irq_flags(&self, out: &mut Vec<u8>, common: Common) {
        irq_flags(out, common, self.shown);
    }

    /// Returns the name of a task.
    pub(crate) fn comm(&self, pid: u32) -> &str {
        match pid {
            0 => "<idle>",
            0x8000_0000.. => "<XXX>",
            _ => self
                .comms
                .get(&pid)
                .or_else(|| self.learned.as_ref()?.get(&pid))
                .map_or("<...>", String::as_str),
        }
    }

    /// Returns the fields of this format from which names of tasks are learned. The list is empty
    /// if there are none.
    pub(crate) fn named_by(&self, format: &Format) -> Vec<TaskFields> {
        if self.learned.is_some() { TaskFields::from_format(format) } else { Vec::new() }
    }

    /// Returns true if a task in `payload` has no name yet.
    #[inline]
    pub(crate) fn lacks(&self, named: &[TaskFields], payload: &[u8], order: ByteOrder) -> bool {
        let lacks = |pid: u32| {
            let learned = self.learned.as_ref().filter(|learned| learned.len() < MOST_LEARNED);
            pid != 0
                && learned.is_some_and(|learned| !learned.contains_key(&pid))
                && !self.comms.contains_key(&pid)
        };
        named.iter().any(|named| lacks(named.pid(payload, order)))
    }

    /// Learns the names of the tasks in `payload`. The first name of a task is kept.
    #[cold]
    pub(crate) fn learn(&mut self, named: &[TaskFields], payload: &[u8], order: ByteOrder) {
        for named in named {
            let pid = named.pid(payload, order);
            if let Some(learned) = &mut self.learned
                && !self.comms.contains_key(&pid)
            {
                let name = || String::from_utf8_lossy(named.name.text(payload)).into_owned();
                learned.entry(pid).or_insert_with(name);
                self.known.remove(&pid);
            }
        }
    }

    /// Appends `            init-1       `, and the thread group if it is shown.
    #[inline]
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>, pid: u32) {
        let (begin, end) = match self.known.get(&pid) {
            Some(place) => *place,
            None => self.make(pid),
        };
        out.extend_from_slice(self.room.get(begin as usize..end as usize).unwrap_or_default());
    }

    #[cold]
    fn make(&mut self, pid: u32) -> (u32, u32) {
        if self.known.len() >= MOST {
            self.known.clear();
            self.room.clear();
        }
        let begin = self.room.len();
        let mut room = std::mem::take(&mut self.room);
        let signed = pid.cast_signed();
        padded(&mut room, Spec { width: 16, ..Spec::default() }, self.comm(pid).as_bytes());
        room.push(b'-');
        let left = |width| Spec { width, left: true, ..Spec::default() };
        number(&mut room, left(7), u64::from(signed.unsigned_abs()), signed < 0, 10, false);
        room.push(b' ');
        if let Some(tgids) = self.tgids {
            match tgids.get(&pid).filter(|tgid| **tgid != 0) {
                None => room.extend_from_slice(b"(-------) "),
                Some(tgid) => {
                    room.push(b'(');
                    let right = Spec { width: 7, ..Spec::default() };
                    number(&mut room, right, u64::from(*tgid), false, 10, false);
                    room.extend_from_slice(b") ");
                }
            }
        }
        let place = (low_u32(begin as u64), low_u32(room.len() as u64));
        self.room = room;
        self.known.insert(pid, place);
        place
    }
}

/// Appends `[001] `.
#[inline]
pub(crate) fn cpu(out: &mut Vec<u8>, cpu: u32) {
    if cpu < 1000 {
        let [hundreds, tens, ones] = [cpu / 100, cpu / 10 % 10, cpu % 10]
            .map(|digit| b'0'.wrapping_add(low_u8(u64::from(digit))));
        return out.extend_from_slice(&[b'[', hundreds, tens, ones, b']', b' ']);
    }
    out.push(b'[');
    unsigned(out, u64::from(cpu));
    out.extend_from_slice(b"] ");
}

impl ShownFlags {
    /// Lazy rescheduling came with Linux 6.13; before, kernels with PREEMPT_RT had it by a patch.
    fn from_tracing(tracing: &Tracing) -> Self {
        let lazy = is_since(&tracing.release, (6, 13))
            || tracing.release.is_empty()
            || is_real_time(tracing);
        Self { lazy, columns: tracing.flag_columns }
    }
}

/// Appends `d..1.`: interrupts, rescheduling, context, depth of preemption and of migration.
#[inline]
fn irq_flags(out: &mut Vec<u8>, common: Common, shown: ShownFlags) {
    // Kernels without lazy rescheduling do not show its bit, which uprobes set there with all
    // others; nor that of bottom halves.
    let hidden =
        if shown.lazy { 0 } else { 0x02 } | if shown.columns.bottom_halves { 0 } else { 0x80 };
    let flags = common.flags & !hidden;
    let irqs = match (flags & 0x01 != 0, flags & 0x80 != 0) {
        (true, true) => b'D',
        (true, false) => b'd',
        (false, true) => b'b',
        (false, false) => b'.',
    };
    let resched = match (flags & 0x04 != 0, flags & 0x20 != 0, flags & 0x02 != 0) {
        (true, true, true) => b'B',
        (true, true, false) => b'N',
        (false, true, true) => b'L',
        (true, false, true) => b'b',
        (true, false, false) => b'n',
        (false, false, true) => b'l',
        (false, true, false) => b'p',
        (false, false, false) => b'.',
    };
    let (hard, soft, nmi) = (flags & 0x08 != 0, flags & 0x10 != 0, flags & 0x40 != 0);
    let context = match (nmi, hard, soft) {
        (true, true, _) => b'Z',
        (true, false, _) => b'z',
        (false, true, true) => b'H',
        (false, true, false) => b'h',
        (false, false, true) => b's',
        (false, false, false) => b'.',
    };
    let depth = |value: u8| if value == 0 { b'.' } else { digit(value) };
    if shown.columns.migration {
        out.extend_from_slice(&[
            irqs,
            resched,
            context,
            depth(common.preempt & 15),
            depth(common.preempt >> 4),
        ]);
        return;
    }
    out.extend_from_slice(&[irqs, resched, context]);
    if common.preempt > 15 {
        out.push(digit(common.preempt >> 4));
        out.push(digit(common.preempt & 15));
    } else {
        out.push(depth(common.preempt));
    }
}

/// Appends ` %5lu.%06lu` in seconds, rounded to microseconds. For a clock that does not count
/// nanoseconds it appends the plain number.
#[inline]
pub(crate) fn time(out: &mut Vec<u8>, time: u64, in_ns: bool) {
    out.push(b' ');
    if !in_ns {
        number(out, Spec { width: 12, ..Spec::default() }, time, false, 10, false);
        return;
    }
    let micros = time.wrapping_add(500) / 1000;
    let (seconds, rest) = (micros / 1_000_000, (micros % 1_000_000) as u32);
    let digits = if seconds < 10 { 1 } else { (seconds.ilog10() as usize).wrapping_add(1) };
    out.extend(std::iter::repeat_n(b' ', 5usize.saturating_sub(digits)));
    unsigned(out, seconds);
    out.push(b'.');
    out.extend_from_slice(&six(rest));
}

/// Returns the mark of a delay: `$` over a second … `+` over 10 microseconds.
pub(crate) fn mark(nanoseconds: u64) -> u8 {
    match nanoseconds {
        1_000_000_001.. => b'$',
        100_000_001.. => b'@',
        10_000_001.. => b'*',
        1_000_001.. => b'#',
        100_001.. => b'!',
        10_001.. => b'+',
        _ => b' ',
    }
}

/// Appends the time of the latency format: the time since `start`, with a mark for the time to the
/// next event.
pub(crate) fn latency_time(
    out: &mut Vec<u8>,
    time: u64,
    start: u64,
    next: u64,
    in_ns: bool,
    verbose: bool,
) {
    let (mut since, mut rest) = (time.wrapping_sub(start), next.wrapping_sub(time));
    let micros = |ns: u64| ns.wrapping_add(500) / 1000;
    if in_ns {
        (since, rest) = (micros(since), micros(rest));
    }
    let text = match (verbose, in_ns) {
        (true, true) => format!(
            "[{:08x}] {}.{:03}ms (+{}.{:03}ms): ",
            micros(time),
            since / 1000,
            since % 1000,
            rest / 1000,
            rest % 1000
        ),
        (true, false) => {
            format!("[{time:016x}] {} (+{}): ", since.cast_signed(), rest.cast_signed())
        }
        (false, true) => {
            format!(" {:4}us{}: ", since.cast_signed(), char::from(mark(rest.saturating_mul(1000))))
        }
        (false, false) => format!(" {:4}: ", since.cast_signed()),
    };
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn lost_line(out: &mut Vec<u8>, cpu: u32, lost: Option<u64>) {
    out.extend_from_slice(b"CPU:");
    unsigned(out, u64::from(cpu));
    match lost {
        None => out.extend_from_slice(b" [LOST EVENTS]\n"),
        Some(count) => {
            out.extend_from_slice(b" [LOST ");
            unsigned(out, count);
            out.extend_from_slice(b" EVENTS]\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::silent;

    /// Uprobes of these kernels set all bits: the texts are those of the kernels' own `trace`.
    #[test]
    fn lazy_rescheduling_is_shown_by_kernels_that_have_it() {
        let mut machine = silent();
        let mut shown = |release: &str, uname: &str, flags: u8| {
            (machine.release, machine.uname) = (release.to_owned(), uname.to_owned());
            let mut out = Vec::new();
            Tasks::new(&machine, false)
                .irq_flags(&mut out, Common { id: 1, flags, preempt: 0xff, pid: 1 });
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            shown("6.12.117+deb13-cloud-amd64", "Linux x 6.12 SMP PREEMPT_DYNAMIC", 0xff),
            "DNZff"
        );
        assert_eq!(shown("6.1.0-50-cloud-amd64", "Linux x 6.1 SMP PREEMPT_DYNAMIC", 0x02), "...ff");
        assert_eq!(shown("6.18.15", "Linux x 6.18 SMP PREEMPT_DYNAMIC", 0xff), "DBZff");
        assert_eq!(shown("6.12.117+deb13-rt-amd64", "Linux x 6.12 SMP PREEMPT_RT", 0x02), ".l.ff");
        assert_eq!(shown("", "", 0x02), ".l.ff");
    }

    /// Linux 5.10 has one number for the depth of preemption, 5.15 two of a digit each, and 5.18
    /// shows disabled bottom halves.
    #[test]
    fn flags_are_those_that_the_kernel_shows() {
        let mut machine = silent();
        let mut shown = |release: &str, flags: u8, preempt: u8| {
            (machine.release, machine.flag_columns) =
                (release.to_owned(), FlagColumns::of_release(release));
            let mut out = Vec::new();
            Tasks::new(&machine, false)
                .irq_flags(&mut out, Common { id: 1, flags, preempt, pid: 1 });
            String::from_utf8(out).unwrap()
        };
        for (release, texts) in [
            ("5.10.0-46-cloud-amd64", ["dNZff", "...2", "d.h1", "...."]),
            ("5.15.0-204-generic", ["dNZff", "...2.", "d.h1.", "....."]),
            ("5.19.0-50-generic", ["DNZff", "b..2.", "d.h1.", "b...."]),
        ] {
            let of = |(flags, preempt)| shown(release, flags, preempt);
            assert_eq!([(0xff, 0xff), (0x80, 2), (0x09, 1), (0x80, 0)].map(of), texts, "{release}");
        }
    }
}
