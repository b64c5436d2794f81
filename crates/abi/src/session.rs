//! The session region: identity, control, clock, channels, processes, reservations in flight.
//!
//! Order in the region: [`RegionHeader`](crate::region::RegionHeader) at 0, [`SessionInfo`] at 128
//! (fixed), then, each at the offset that `SessionInfo` gives: [`Control`], [`ClockArea`],
//! [`Channel`]s, [`Process`]es, [`Thread`]s.

use crate::sync::{AtomicU32, AtomicU64};

/// [`SessionInfo::reservation`]: restartable sequences publish each event by one store.
pub const RESERVATION_RSEQ: u32 = 1;
/// [`SessionInfo::reservation`]: compare-and-swap reservation, commit counters.
pub const RESERVATION_LOCKLESS: u32 = 2;
/// [`SessionInfo::reservation`]: signals blocked and a lock.
pub const RESERVATION_LOCKED: u32 = 3;

/// [`SessionInfo::backend`]: pages on the heap.
pub const BACKEND_HEAP: u32 = 1;
/// [`SessionInfo::backend`]: shared-memory files.
pub const BACKEND_SHM: u32 = 2;
/// [`SessionInfo::backend`]: a memfd.
pub const BACKEND_MEMFD: u32 = 3;
/// [`SessionInfo::backend`]: huge pages.
pub const BACKEND_HUGE: u32 = 4;
/// [`SessionInfo::backend`]: a DAX file or device.
pub const BACKEND_DAX: u32 = 5;
/// [`SessionInfo::backend`]: a fixed physical range through a device file.
pub const BACKEND_PHYSICAL: u32 = 6;

/// [`Control::persist`]: nothing is written back while the session records.
pub const PERSIST_NONE: u32 = 0;
/// [`Control::persist`]: a sub-buffer is written back when it is closed.
pub const PERSIST_SUB_BUFFER: u32 = 1;
/// [`Control::persist`]: each event is written back when it is committed.
pub const PERSIST_EVENT: u32 = 2;

/// One word for each `PERSIST_`, by its number.
pub const PERSIST_WORDS: [&str; 3] = ["none", "sub-buffer", "event"];
/// One word for each `RESERVATION_`, by its number.
pub const RESERVATION_WORDS: [&str; 4] = [UNKNOWN, "rseq", "lockless", "locked"];
/// One word for each `BACKEND_`, by its number.
pub const BACKEND_WORDS: [&str; 7] = [UNKNOWN, "heap", "shm", "memfd", "huge", "dax", "physical"];
const UNKNOWN: &str = "unknown";

/// The word of a number in one of these tables.
#[must_use]
pub fn word_of(words: &[&'static str], number: u32) -> &'static str {
    words.get(number as usize).copied().unwrap_or(UNKNOWN)
}

/// [`SessionInfo::scope`]: the buffers of one process and its forked children.
pub const SCOPE_PROCESS: u32 = 1;
/// [`SessionInfo::scope`]: shared by all processes of a user that join.
pub const SCOPE_USER: u32 = 2;

/// [`ClockArea::kind`]: the x86 time stamp counter.
pub const CLOCK_TSC: u32 = 1;
/// [`ClockArea::kind`]: CLOCK_MONOTONIC, nanoseconds.
pub const CLOCK_MONOTONIC: u32 = 2;
/// [`ClockArea::kind`]: CLOCK_MONOTONIC_RAW, nanoseconds.
pub const CLOCK_MONOTONIC_RAW: u32 = 3;
/// [`ClockArea::kind`]: CLOCK_BOOTTIME, nanoseconds.
pub const CLOCK_BOOTTIME: u32 = 4;
/// [`ClockArea::kind`]: CLOCK_REALTIME, nanoseconds.
pub const CLOCK_REALTIME: u32 = 5;
/// [`ClockArea::kind`]: the aarch64 virtual counter.
pub const CLOCK_CNTVCT: u32 = 6;

/// [`Control::ending`]: no process has said anything.
pub const ENDING_NONE: u32 = 0;
/// [`Control::ending`]: the last handle was dropped; the number is the exit status of its process, where it is known.
pub const ENDING_CLOSED: u32 = 1;
/// [`Control::ending`]: the application said that it ends with an error.
pub const ENDING_ERROR: u32 = 2;
/// [`Control::ending`]: the last handle was dropped while its thread unwound from a panic.
pub const ENDING_PANIC: u32 = 3;
/// [`Control::ending`]: a fatal signal, whose number follows, was handled.
pub const ENDING_SIGNAL: u32 = 4;
/// [`Control::ending`]: the process exited while the session was open; the number is its exit status, where it is known.
pub const ENDING_EXIT: u32 = 5;
/// [`Control::ending`]: nobody saw the end of the session in this copy, which was sent over a network
/// or is a saved snapshot. Only copies have this, with `finished`.
pub const ENDING_UNSEEN: u32 = 6;
/// Set in [`Control::ending`] where its bits 8 to 15 hold a number.
pub const ENDING_NUMBER: u32 = 1 << 16;

/// Most channels of a session.
pub const MAX_CHANNELS: usize = 32;
/// Most processes that can be joined at a time.
pub const MAX_PROCESSES: usize = 256;
/// Most threads that reserve without rseq at a time.
pub const MAX_THREADS: usize = 510;
/// Nesting levels of one thread (a record inside a signal handler inside a record).
pub const MAX_LEVELS: usize = if cfg!(loom) { 2 } else { 4 };
/// Most rules of enabling and disabling.
pub const MAX_RULES: usize = 64;

/// Identity and geometry; fixed, covered by the region's checksum.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SessionInfo {
    /// CLOCK_REALTIME at creation, ns.
    pub created_realtime: u64,
    /// CLOCK_MONOTONIC at creation, ns.
    pub created_monotonic: u64,
    /// Start time of the creator, clock ticks since boot (field 22 of /proc/PID/stat).
    pub creator_start: u64,
    /// Inode of the creator's pid namespace.
    pub creator_pidns: u64,
    /// Process id of the creator in its own namespace.
    pub creator_pid: u32,
    /// User id of the creator.
    pub uid: u32,
    /// One of `RESERVATION_`.
    pub reservation: u32,
    /// One of `BACKEND_`.
    pub backend: u32,
    /// One of `SCOPE_`.
    pub scope: u32,
    /// CPUs that have a stream of their own in each channel.
    pub cpus: u32,
    /// Offset of [`Control`] in this region, bytes.
    pub control_off: u32,
    /// Offset of [`ClockArea`].
    pub clock_off: u32,
    /// Offset of the [`Channel`] table ([`MAX_CHANNELS`] entries).
    pub channels_off: u32,
    /// Offset of the [`Process`] table ([`MAX_PROCESSES`] entries).
    pub processes_off: u32,
    /// Offset of the [`Thread`] table.
    pub threads_off: u32,
    /// Entries of the [`Thread`] table.
    pub threads: u32,
    /// Boot id of the machine, 16 bytes of the UUID.
    pub boot_id: [u8; 16],
    /// Name of the session, NUL-padded UTF-8.
    pub name: [u8; 64],
    /// Host name, NUL-padded.
    pub hostname: [u8; 64],
    /// Path of the creator's program, NUL-padded, cut at the front when too long.
    pub program: [u8; 256],
}
const _: () = assert!(size_of::<SessionInfo>() == 480);

/// A lock that names its owner, so that others see when the owner is dead. 0 = free, else `tid <<
/// 32 | start_low`, where `start_low` is the low 32 bits of the owner's start time.
pub type OwnerLock = AtomicU64;

/// The words that change at run time, and that every recorder reads. Each group has cache lines of
/// its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// Which half of each stream is live, xor'd with [`crate::stream::StreamControl::flip`]; only
    /// bit 0. Written by the taker of a snapshot, read by recorders inside their critical section.
    pub flip: AtomicU32,
    /// 1 while the session records.
    pub recording: AtomicU32,
    /// Counts changes of rules, channels and `recording`; a futex that listeners wait on.
    pub generation: AtomicU32,
    /// 1 when the session was ended by its owner in good order.
    pub finished: AtomicU32,
    /// 1 when a process of another pid namespace than the creator's may have held one of the
    /// session's locks: ids of their owners then say nothing. Never 0 again.
    pub namespaces: AtomicU32,
    /// How the session ended, as the last process that said so has it: one of `ENDING_` in bits 0
    /// to 7; bits 8 to 15 a signal's number or an exit status, where bit 16 is set. Written by a
    /// process that records in the session, with Release, after `ended` and `ended_by`: a reader
    /// that loads it with Acquire finds these two as new or newer. When a signal has killed the
    /// process, the core helper writes the three words for it, in the same order, by system calls.
    /// 0 in a session whose processes are gone: they were killed.
    pub ending: AtomicU32,
    /// Process id of the process whose end `ending` tells, in its own pid namespace.
    pub ended_by: AtomicU32,
    /// Panics that the panic hook of a process of the session saw, survived ones included. Only
    /// ever grows.
    pub panics: AtomicU32,
    /// CLOCK_REALTIME when `ending` was written, ns.
    pub ended: AtomicU64,
    /// CLOCK_REALTIME of the last of `panics`, ns. Written by the panic hook before `panics` grows
    /// (Release).
    pub panicked: AtomicU64,
    /// Ended sessions that retention removed when this one began. Written by the creator before
    /// the session is published.
    pub removed: AtomicU32,
    /// One of `PERSIST_`: when recorders write events back from the caches into persistent memory.
    /// Written by the creator before the session is published; processes that join read it.
    pub persist: AtomicU32,
    /// Held while a channel is created in a session that records. The holder alone writes free
    /// entries of the table of channels, and files of streams.
    pub channels_lock: OwnerLock,

    /// One of `SNAPSHOT_`.
    pub snapshot: AtomicU32,
    /// Counts snapshots taken.
    pub snapshots: AtomicU32,
    /// Held while `snapshot` changes and rings are swapped.
    pub snapshot_lock: OwnerLock,
    /// Process id of the reader that holds the snapshot while it is read.
    pub snapshot_reader: AtomicU64,
    /// Clock when the snapshot was taken.
    pub snapshot_clock: AtomicU64,
    /// The stream that was swapped alone, plus one; [`SNAPSHOT_CPU`] and a CPU: the streams of
    /// that CPU; 0 = all.
    pub snapshot_stream: AtomicU32,
    /// Offset of [`Guards`] in the session region; 0 in sessions of versions before 1.3, which
    /// have none. Written by the creator before the session is published.
    pub guards_off: AtomicU32,
    /// CLOCK_REALTIME, ns: end of the last session of this name that died soon after this one, as
    /// part of the same burst of deaths; 0 if none is known. Written by retention (Relaxed, it
    /// only grows) when it removes sessions of the burst.
    pub burst: AtomicU64,
    /// Entries for counters in the counters region. With `histograms` 0, or in a version before
    /// 1.4: there is no such region. Written by the creator before the session is published.
    pub counters: AtomicU32,
    /// Entries for histograms in the counters region. Written likewise.
    pub histograms: AtomicU32,
    pad1: [u32; 2],

    /// The rules that say which events each channel takes.
    pub rules: Rules,
}
const _: () = assert!(size_of::<Control>() == 192 + 2 * MAX_RULES * 128 || cfg!(loom));

/// The rules of a session, twice: readers use one table while a writer prepares the other.
///
/// A writer holds `lock`, fills the table that readers do not use, and adds 1 to `turn`, which
/// makes that table the current one. A reader loads `turn` (acquire), reads the table of its lowest
/// bit, and reads again if `turn` is another one after an acquire fence. A writer that dies in
/// between leaves the current table as it was.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Rules {
    /// Held while the rules change.
    pub lock: OwnerLock,
    /// Counts changes; bit 0 is the index of the current table. Written by the holder of `lock`,
    /// released after the table.
    pub turn: AtomicU32,
    /// Rules in use, of each table.
    pub len: [AtomicU32; 2],
    /// Offset of [`Filters`] in the session region. Written by the creator before the session is
    /// published.
    pub filters_off: AtomicU32,
    /// Of each table: the `turn` in which its filters hold, which is that of the table. Written by
    /// the holder of `lock` before `turn`, for readers of version 1.2.
    pub filters_turn: [AtomicU32; 2],
    /// Offset of [`Triggers`](crate::triggers::Triggers) in the session region. Written likewise.
    pub triggers_off: AtomicU32,
    /// Offset of [`Conditions`](crate::triggers::Conditions) in the session region. Written
    /// likewise.
    pub conditions_off: AtomicU32,
    pad: [u32; 6],
    /// The rules in order; the last that matches decides.
    pub tables: [[Rule; MAX_RULES]; 2],
}
const _: () = assert!(size_of::<Rules>() == 64 + 2 * MAX_RULES * 128 || cfg!(loom));

/// Set in [`Control::snapshot_stream`]: the rest is a CPU.
pub const SNAPSHOT_CPU: u32 = 1 << 31;

/// A snapshot that was taken so (`word` is [`Control::snapshot_stream`]) has the stream of that
/// index and CPU.
#[must_use]
pub const fn snapshot_has(word: u32, stream: u32, cpu: u32) -> bool {
    match word {
        0 => true,
        word if word & SNAPSHOT_CPU != 0 => word & !SNAPSHOT_CPU == cpu,
        word => word - 1 == stream,
    }
}

/// No spare buffers.
pub const SNAPSHOT_OFF: u32 = 0;
/// The spare is allocated and empty.
pub const SNAPSHOT_READY: u32 = 1;
/// Live and spare are being swapped.
pub const SNAPSHOT_SWAPPING: u32 = 2;
/// The spare holds a snapshot.
pub const SNAPSHOT_TAKEN: u32 = 3;
/// The snapshot is being read; a second is refused as busy.
pub const SNAPSHOT_READING: u32 = 4;

/// One line of `lastwords enable` or `disable`. Written by the holder of [`Rules::lock`], in the
/// table that is not current.
#[repr(C)]
#[derive(Debug)]
pub struct Rule {
    /// 1 enable, 0 disable.
    pub enable: AtomicU32,
    /// Channel id plus one, or 0 for all channels.
    pub channel: AtomicU32,
    /// Least severe level that matches plus one ([`crate::registry`] levels), or 0 for any.
    pub level: AtomicU32,
    /// 0: no filter. Else the offset in the table's [`Filters`], plus one, of the expression that
    /// an event of an enabling rule must fulfil: a word of [`filter_head`], the text, and the code
    /// (crate `filter`, module `code`), padded to 8 bytes.
    pub filter: AtomicU32,
    /// Glob over `provider:name`, NUL-padded: 112 bytes.
    pub pattern: [AtomicU64; 14],
}

/// Bytes of the filters of each table of rules.
pub const FILTERS_LEN: usize = 16384;

/// The filters of the rules, twice, like the rules: see [`Rule::filter`]. A table is written and
/// read as [`Rules`] are.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Filters {
    /// The filters of each table of rules, in words.
    pub tables: [[AtomicU64; FILTERS_LEN / 8]; 2],
}
const _: () = assert!(size_of::<Filters>() == 2 * FILTERS_LEN || cfg!(loom));

/// The first word of a filter: the bytes of its text in the low 32 bits, those of its code in the
/// high ones.
#[must_use]
pub const fn filter_head(text: u32, code: u32) -> u64 {
    text as u64 | (code as u64) << 32
}

/// The bytes of text and code by the first word of a filter.
#[must_use]
pub const fn filter_lens(head: u64) -> (usize, usize) {
    (head as u32 as usize, (head >> 32) as usize)
}

/// Time: how the session's clock relates to CLOCK_MONOTONIC and to wall time.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ClockArea {
    /// One of `CLOCK_`.
    pub kind: AtomicU32,
    /// Which of `samples` is newest: 1 or 2; `samples[0]` is the first ever taken and stays.
    pub newest: AtomicU32,
    /// Ticks a second as first measured or as the machine says; samples refine it. 1e9 for the
    /// nanosecond clocks.
    pub frequency: AtomicU64,
    /// The refresher holds this (0 or 1, try-lock; whoever fails leaves it).
    pub busy: AtomicU64,
    pad0: [u64; 5],
    /// Readings of the three clocks at one moment.
    pub samples: [ClockSample; 3],
}

/// One reading of the session's clock, CLOCK_MONOTONIC and CLOCK_REALTIME at one moment.
#[repr(C)]
#[derive(Debug)]
pub struct ClockSample {
    /// The session's clock, ticks. 0 = no sample.
    pub clock: AtomicU64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: AtomicU64,
    /// CLOCK_REALTIME, ns.
    pub realtime: AtomicU64,
    /// Uncertainty: width of the interval in which the readings were taken, ns.
    pub width: AtomicU64,
}

/// [`Channel::mode`]: the newest events overwrite the oldest.
pub const MODE_OVERWRITE: u32 = 1;
/// [`Channel::mode`]: events that do not fit are discarded and counted.
pub const MODE_DISCARD: u32 = 2;
/// [`Channel::flags`]: every header carries the payload size.
pub const CHANNEL_PAYLOAD_SIZE: u32 = 1;
/// [`Channel::flags`]: the channel was created while the session recorded.
pub const CHANNEL_ADDED: u32 = 2;
/// [`Channel::flags`]: every header carries the id and the whole clock.
pub const CHANNEL_FULL_HEADERS: u32 = 4;

/// A channel. Published by `state`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Channel {
    /// 0 free, 1 in use, 2 destroyed.
    pub state: AtomicU32,
    /// 1 while the channel records.
    pub recording: AtomicU32,
    /// Next event id to give; ids are given from 0 up, under the registry's lock.
    pub next_id: AtomicU32,
    /// One of `MODE_`.
    pub mode: u32,
    /// `CHANNEL_` flags.
    pub flags: u32,
    /// Bits of [`context`](crate::context).
    pub contexts: u32,
    /// Index of the channel's first stream; its streams follow each other: one a CPU and, in rseq
    /// sessions, one more that is lockless, for threads without rseq ([`crate::stream::ANY_CPU`]).
    pub first_stream: u32,
    /// Streams of the channel.
    pub streams: u32,
    /// Sub-buffer size in bytes, a power of two.
    pub sub_buffer_size: u64,
    /// Sub-buffers of each half of a stream, a power of two, at least 2.
    pub sub_buffers: u32,
    /// [`Control::snapshots`] when the channel was created: later snapshots have it, earlier ones
    /// do not. 0 if the session began with the channel.
    pub snapshots: u32,
    /// Events that the rules sent to the channel in processes that had not mapped its rings. They
    /// are lost. Written by these processes (Relaxed, a counter); it only grows. 0 in channels
    /// that the session began with.
    pub unattached: AtomicU64,
    /// NUL-padded UTF-8.
    pub name: [u8; 64],
    /// Value of `unattached` at the last consuming read. The next consuming read reports the
    /// difference. Written by readers that consume (Relaxed); it only grows.
    pub told: AtomicU64,
}
const _: () = assert!(size_of::<Channel>() == 128 || cfg!(loom));

/// A process that joined the session.
#[repr(C)]
#[derive(Debug)]
pub struct Process {
    /// Process id in its own namespace; 0 = free. Claimed by compare-and-swap.
    pub pid: AtomicU32,
    /// 0.
    pub reserved: u32,
    /// Start time, ticks since boot.
    pub start: AtomicU64,
    /// Inode of its pid namespace.
    pub pidns: AtomicU64,
    /// [`features_word`] of the process. Written by the process before `pid` (Release). A process
    /// of version 1.1 leaves what an earlier process wrote, so the word counts only if it has the
    /// id and the start time of this process.
    pub features: AtomicU64,
}

/// The guards of all processes of a session: one for each entry of the table of [`Process`]es, by
/// the same index.
///
/// A guard is a robust futex. Its owner, the thread of the process that waits for changes, stores
/// its thread id in `word` and registers the guard in its robust list. When that thread ends,
/// because the process dies or executes another program, the kernel sets [`GUARD_DIED`] in `word`.
/// A reader needs neither /proc nor a process id of its own namespace.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Guards {
    /// Device of the file that contains the session region; 0 if it is in no file. Written by the
    /// creator before the session is published, like `inode`. In a copy of the file, a guard that
    /// is held says nothing: no kernel writes the copy.
    pub device: AtomicU64,
    /// Inode of that file.
    pub inode: AtomicU64,
    pad0: [u64; 6],
    /// One for each entry of the table of processes.
    pub entries: [Guard; MAX_PROCESSES],
}
const _: () = assert!(size_of::<Guards>() == 64 + 24 * MAX_PROCESSES || cfg!(loom));

/// The guard of a process. Written by the process that has the entry of the table of processes, and
/// by the kernel.
#[repr(C)]
#[derive(Debug)]
pub struct Guard {
    /// Address, in the owner's memory, of the next entry of its robust list. Means nothing to
    /// others.
    pub next: AtomicU64,
    /// [`features_word`] of the process, without features: the guard counts only if it has the id
    /// and the start time of the process in the table. Written after `word` was emptied (Release)
    /// and before `pid` of the entry.
    pub key: AtomicU64,
    /// 0: the process has no guard, or none yet. Else the id of the owner's thread in its own pid
    /// namespace ([`GUARD_THREAD`]): the process lives. With [`GUARD_DIED`], written by the
    /// kernel: it does not.
    pub word: AtomicU32,
    /// 0.
    pub reserved: u32,
}

/// The bits of [`Guard::word`] with a thread's id: FUTEX_TID_MASK.
pub const GUARD_THREAD: u32 = 0x3fff_ffff;
/// Set in [`Guard::word`] by the kernel when the thread has ended: FUTEX_OWNER_DIED.
pub const GUARD_DIED: u32 = 0x4000_0000;

/// A feature of a process: it maps the rings of channels that are created while it records.
pub const FEATURE_CHANNELS: u64 = 1;

/// Returns the value of [`Process::features`]: bits 0 to 7 the features, 8 to 39 the process id, 40
/// to 63 the low bits of the start time.
#[must_use]
pub const fn features_word(features: u64, pid: u32, start: u64) -> u64 {
    (features & 0xff) | (pid as u64) << 8 | start << 40
}

/// A thread that reserves without rseq: what it is writing, for whoever finds it dead.
///
/// An entry is free for another thread when `owner` is 0, or when its owner is dead and all levels
/// are idle or announce what was not reserved or is overwritten. Only its owner writes an entry,
/// but for `confirmed`.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Thread {
    /// `tid << 32 | pid`; 0 = free. Claimed by compare-and-swap; while `start` and `pidns` are not
    /// yet those of the new owner, `pid` is 0.
    pub owner: AtomicU64,
    /// Start time of the thread, ticks since boot (0 until it is known).
    pub start: AtomicU64,
    /// Inode of its pid namespace.
    pub pidns: AtomicU64,
    pad0: [u64; 5],
    /// One for each nesting level.
    pub levels: [InFlight; MAX_LEVELS],
}
const _: () = assert!(size_of::<Thread>() == 64 + 64 * MAX_LEVELS || cfg!(loom));

/// A reservation in flight: announced before the compare-and-swap, withdrawn after the commit.
///
/// It is a hole (bytes reserved, never to be committed) if `state` is not [`IN_FLIGHT_COPIED`] and
/// the reservation succeeded: `confirmed` carries this target's tag and a position not below `end`,
/// or the position and owner in the half's reserve word are `end` and this one.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct InFlight {
    /// 0 idle, else `(stream index << 1 | half) + 1`. Written last when announced, first when
    /// withdrawn.
    pub target: AtomicU64,
    /// Position where the reservation begins.
    pub begin: AtomicU64,
    /// Position where it ends.
    pub end: AtomicU64,
    /// Written by a later reserver that found this owner in the reserve word, before it replaces
    /// the word: low [`crate::stream::POSITION_BITS`] bits the position in that word, above them
    /// the low 12 bits of `target`.
    pub confirmed: AtomicU64,
    /// [`IN_FLIGHT_RESERVING`] or [`IN_FLIGHT_COPIED`].
    pub state: AtomicU64,
    pad0: [u64; 3],
}

/// The bytes are not all there.
pub const IN_FLIGHT_RESERVING: u64 = 1;
/// The bytes are all there, the commit counter may not be.
pub const IN_FLIGHT_COPIED: u64 = 2;
/// The bytes are a sub-buffer's padding and the next one's header: no event is in them.
pub const IN_FLIGHT_SWITCH: u64 = 3;
