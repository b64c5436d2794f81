//! Triggers: their limits and windows, and the conditions on events that fire them. Both areas are
//! in the session region, at the offsets that [`Rules`] has.

use crate::session::{Filters, MAX_RULES, OwnerLock, Rules};
use crate::sync::{AtomicU32, AtomicU64};

/// Requests for triggers of the session, their limits, and counters of the work that they led to.
/// The counters only grow, except `waiting`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Triggers {
    /// Held by a process that asks for a trigger of another process.
    pub lock: OwnerLock,
    /// Requests so far. Written by the holder of `lock` (Release) after `name`.
    pub asked: AtomicU32,
    /// Requests that a process of the session has carried out or is carrying out.
    pub answered: AtomicU32,
    /// Name of the newest request, NUL-padded.
    pub name: [AtomicU64; 8],
    /// At most `most` snapshots in any `period`. Written by the creator before the session is
    /// published.
    pub most: AtomicU32,
    /// 1 if snapshots of triggers are saved as sessions of their own. Written by the creator
    /// likewise.
    pub saves: AtomicU32,
    /// Nanoseconds.
    pub period: AtomicU64,
    /// CLOCK_MONOTONIC, ns, up to which snapshots are spoken for: each adds `period / most`, and
    /// one is refused that would lead further than `period` ahead.
    pub due: AtomicU64,
    /// Triggers that fired.
    pub fired: AtomicU32,
    /// Of these, the ones without a snapshot of their own because of the limit.
    pub limited: AtomicU32,
    /// The part of `limited` that an event of a trigger has reported.
    pub told: AtomicU32,
    /// Triggers whose snapshot is not taken yet, because the snapshot before is not saved.
    pub waiting: AtomicU32,
    /// Number of the snapshot that is to be saved; 0: none.
    pub unsaved: AtomicU32,
    /// Snapshots that were saved.
    pub saved: AtomicU32,
    /// Attempts to save a snapshot that failed.
    pub failed: AtomicU32,
    /// 1 in a saved snapshot of which readers show only the window of `window_begin` to
    /// `window_end`. Written by the process that saves it, before the copy is published.
    pub is_cut: AtomicU32,
    /// Nanoseconds that are kept ahead of a trigger; 0: all that the rings have. Written by the
    /// creator before the session is published.
    pub before: AtomicU64,
    /// Nanoseconds from a trigger until its snapshot is taken. Written by the creator likewise.
    pub after: AtomicU64,
    /// First and last clock, in ticks, of the window of the snapshot that was taken last; 0 for a
    /// begin or an end that is not limited. Written by the holder of the snapshot lock, before
    /// [`Control::snapshot`](crate::session::Control::snapshot) is
    /// [`SNAPSHOT_TAKEN`](crate::session::SNAPSHOT_TAKEN) (Release).
    pub window_begin: AtomicU64,
    /// See `window_begin`.
    pub window_end: AtomicU64,
    /// Clock when the snapshot before that one was taken, which has what was recorded earlier; 0:
    /// there is none. Written likewise.
    pub window_from: AtomicU64,
    /// Starts of latencies that were replaced before their end came, because the table of starts
    /// was full.
    pub replaced: AtomicU32,
    /// 1 while a place of the limit is taken for a snapshot that the session's thread is to take:
    /// further triggers share this snapshot and take no place. A trigger sets it (Release) before
    /// it waits; the thread that takes the snapshot clears it (AcqRel) before it takes out the
    /// triggers that wait.
    pub booked: AtomicU32,
    /// Outcome of the newest request that was carried out: the low 24 bits of its number in the
    /// high bits, and below 1 if the limit left it without a snapshot, else 0. Written by the
    /// process that carried it out (Release).
    pub outcome: AtomicU32,
    pad: u32,
    /// Places where the snapshot that was taken last is saved, each once: as [`Pending::target`],
    /// or [`TARGET_BESIDE`]; 0: no further place. If all are 0, it is saved beside the session.
    /// Written likewise.
    pub targets: [AtomicU64; MAX_PENDING],
    /// Triggers whose snapshot the session's thread takes when their windows end.
    pub pending: [Pending; MAX_PENDING],
}
const _: () = assert!(size_of::<Triggers>() == 512 || cfg!(loom));

/// One of [`Triggers::targets`]: beside the session.
pub const TARGET_BESIDE: u64 = u64::MAX;
/// Largest number of triggers that wait for the ends of their windows at a time.
pub const MAX_PENDING: usize = 8;
/// [`Pending::due`] while a thread fills the entry.
pub const PENDING_CLAIMED: u64 = 1;

/// A trigger whose snapshot the session's thread takes at the end of a window.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Pending {
    /// 0 free, [`PENDING_CLAIMED`], else the clock, in ticks, at which the window ends. The thread
    /// of the trigger claims the entry by compare-and-swap, writes the rest, and publishes the
    /// entry by this word (Release). The thread that takes the snapshot loads it (Acquire) and
    /// stores 0.
    pub due: AtomicU64,
    /// Clock, in ticks, at which the window begins; 0: all that the rings have.
    pub begin: AtomicU64,
    /// Clock, in ticks, at which the window ends; 0: with the snapshot.
    pub last: AtomicU64,
    /// Place where the snapshot is saved: 0 beside the session; else the turn of the conditions in
    /// the high 32 bits and the place of the condition plus one in the low ones, whose
    /// [`Extra::folder`] it is.
    pub target: AtomicU64,
}

/// The conditions on events that fire triggers. They are kept as rules are, with their filters:
/// [`Rule::enable`](crate::session::Rule::enable) is one of
/// `TRIGGER_`, [`Rule::channel`](crate::session::Rule::channel) the number of events to which one
/// trigger is due (0 stands for 1).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Conditions {
    /// The conditions.
    pub rules: Rules,
    /// Their filters.
    pub filters: Filters,
    /// Events that fulfilled the condition of each place, since the conditions changed.
    pub hits: [AtomicU64; MAX_CONDITIONS],
    /// Counters of conditions that fire a limited number of times, or that leave their action to
    /// the session's thread: see [`Extra::counter`]. The tag of the counter's condition in the
    /// high 16 bits; below, how often the condition still fires, or [`FIRES_UNLIMITED`]. The
    /// holder of the lock writes a new tag when it gives the counter to a condition. A thread that
    /// fires takes one firing by compare-and-swap, which fails if the tag is not that of its
    /// condition.
    pub firings: [AtomicU64; MAX_CONDITIONS],
    /// The orders to the session's thread, one for each of `firings`: the tag in the high 16 bits;
    /// below, 0 none, [`ORDER_ASKED`], or `turn << 8 | ORDER_DONE`: carried out, and nothing is to
    /// be done again while the session's [`Rules::turn`](crate::session::Rules::turn) is this. A
    /// recording thread stores the order (AcqRel) and wakes the session's thread, which carries it
    /// out under the lock.
    pub orders: [AtomicU64; MAX_CONDITIONS],
    spare: [AtomicU64; MAX_RULES - 3 * MAX_CONDITIONS],
    /// The members of conditions that rules do not have, in two tables like the rules. The holder
    /// of the lock writes the table that is not current, before `turn`.
    pub extras: [[Extra; MAX_CONDITIONS]; 2],
    /// CLOCK_MONOTONIC, ns, up to which the limit of each condition is used, as [`Triggers::due`].
    pub dues: [AtomicU64; MAX_CONDITIONS],
    /// The starts of latencies of each condition, which wait for their ends. Emptied when the
    /// conditions change.
    pub starts: [[Start; MAX_STARTS]; MAX_CONDITIONS],
}

/// Largest number of conditions of a session.
pub const MAX_CONDITIONS: usize = 16;
/// Starts of latencies of a condition that wait for their ends at a time.
pub const MAX_STARTS: usize = 128;
/// Words of the texts in an [`Extra`].
pub const EXTRA_WORDS: usize = 32;
/// [`Start::key`] while a thread writes or removes the entry.
pub const START_CLAIMED: u64 = 1;

/// The members of a condition that a rule does not have.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Extra {
    /// Nanoseconds, as [`Triggers::before`]; `u64::MAX`: those of the session.
    pub before: AtomicU64,
    /// Nanoseconds, as [`Triggers::after`]; `u64::MAX`: those of the session.
    pub after: AtomicU64,
    /// Nanoseconds in which at most `most` triggers of the condition lead to anything; 0: only the
    /// session's limit counts.
    pub period: AtomicU64,
    /// See `period`.
    pub most: AtomicU32,
    /// Bits of `CONDITION_`; in bits 8 to 15 the action if it is not one of those of
    /// [`Rule::enable`](crate::session::Rule::enable): [`TRIGGER_START`], [`TRIGGER_ENABLE`] or
    /// [`TRIGGER_DISABLE`].
    pub flags: AtomicU32,
    /// Nanoseconds: the condition is fulfilled by an end that comes later than this behind its
    /// start.
    pub above: AtomicU64,
    /// Glob over `provider:name` of the events that end what the condition's events start,
    /// NUL-padded: 112 bytes.
    pub then: [AtomicU64; 14],
    /// The expression that start and end must have in common, in the form of a filter (see
    /// [`Rule::filter`](crate::session::Rule::filter)); first word 0: they are
    /// of the same thread.
    pub on: [AtomicU64; EXTRA_WORDS],
    /// Folder in which the snapshot is saved, NUL-padded; empty: beside the session. Of a
    /// condition that enables or disables events: the glob over their names.
    pub folder: [AtomicU64; EXTRA_WORDS],
    /// The place of the condition's counter in [`Conditions::firings`] plus one, and its tag from
    /// bit 16 on; 0: it has none, and fires without limit.
    pub counter: AtomicU64,
}
const _: () = assert!(size_of::<Extra>() == 704 || cfg!(loom));

/// [`Extra::flags`]: the condition is a latency.
pub const CONDITION_LATENCY: u32 = 1;
/// [`Extra::flags`]: the condition also looks at events that no channel of the session takes.
pub const CONDITION_ALWAYS: u32 = 2;
/// The low bits of [`Conditions::firings`] of a condition that fires without limit.
pub const FIRES_UNLIMITED: u64 = (1 << 48) - 1;
/// [`Conditions::orders`]: the session's thread is to carry out the action.
pub const ORDER_ASKED: u64 = 1;
/// [`Conditions::orders`]: it has done so.
pub const ORDER_DONE: u64 = 2;

/// An event that starts a latency.
#[repr(C)]
#[derive(Debug)]
pub struct Start {
    /// 0 free, [`START_CLAIMED`], else what start and end have in common. Recording threads claim
    /// an entry by compare-and-swap and publish it by this word (Release), after `at`.
    pub key: AtomicU64,
    /// The session's clock at the start, ticks.
    pub at: AtomicU64,
}

/// [`Rule::enable`](crate::session::Rule::enable) of a condition: recording stops behind the event.
pub const TRIGGER_STOP: u32 = 0;
/// [`Rule::enable`](crate::session::Rule::enable) of a condition: a snapshot.
pub const TRIGGER_SNAPSHOT: u32 = 1;
/// In [`Extra::flags`]: recording starts.
pub const TRIGGER_START: u32 = 2;
/// In [`Extra::flags`]: events are enabled.
pub const TRIGGER_ENABLE: u32 = 3;
/// In [`Extra::flags`]: events are disabled.
pub const TRIGGER_DISABLE: u32 = 4;
