//! The scenarios that are stepped: their table, and the events that each writer records.

use lastwords_abi::session::{
    CHANNEL_PAYLOAD_SIZE, MODE_DISCARD, MODE_OVERWRITE, RESERVATION_LOCKED, RESERVATION_LOCKLESS,
    RESERVATION_RSEQ,
};

use lastwords_testkit::random::mix;

/// The plot of a scenario, besides one thread that records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plot {
    /// Nothing.
    Alone,
    /// Signals come at random steps; their handlers record, nested up to three levels.
    Signals,
    /// Two threads on one CPU, stepped in turns of random length.
    TwoThreads,
    /// A second thread takes snapshots all the time.
    Swaps,
    /// A second thread is stopped at a random step and never goes on.
    Stalled,
    /// A process is killed at a random step and the next one goes on, several times.
    Dead,
}

/// The form of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ids up to 28, 1 to 9 words, of any number of bytes: the fast path of rseq.
    Words,
    /// All header forms: any id, any size, pauses that overflow the 27 bits of clock.
    Headers,
    /// 8 to 28 bytes and behind them a text or bytes, of any length: the fast path of rseq for
    /// tails.
    Tails,
    /// Up to 8 bytes and behind them 16 or more, of any number: the fast path of rseq for tails
    /// whose lengths vary.
    Varying,
    /// Many parts.
    Parts,
    /// Hundreds of bytes, over the borders of pages.
    Long,
    /// No events: counters and histograms ([`super::counting`]).
    Counters,
}

/// One scenario.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) reservation: u32,
    pub(crate) plot: Plot,
    pub(crate) form: Form,
    pub(crate) mode: u32,
    pub(crate) flags: u32,
    pub(crate) paged: bool,
    /// rseq: stop inside the sections by breakpoints; else step into them, which aborts each.
    pub(crate) planned: bool,
    /// Bytes of a sub-buffer.
    pub(crate) sub_buffer_size: u64,
    /// Sub-buffers of a half.
    pub(crate) sub_buffers: u32,
}

const BASE: Scenario = Scenario {
    name: "",
    reservation: RESERVATION_RSEQ,
    plot: Plot::Alone,
    form: Form::Words,
    mode: MODE_OVERWRITE,
    flags: 0,
    paged: false,
    planned: true,
    sub_buffer_size: 256,
    sub_buffers: 4,
};

/// A row: name, what happens, what the events are.
const fn row(name: &'static str, reservation: u32, plot: Plot, form: Form) -> Scenario {
    Scenario { name, reservation, plot, form, ..BASE }
}

const fn discard(of: Scenario) -> Scenario {
    Scenario { mode: MODE_DISCARD, ..of }
}

const fn paged(of: Scenario) -> Scenario {
    Scenario { paged: true, sub_buffer_size: 8192, sub_buffers: 2, ..of }
}

const fn sized(of: Scenario) -> Scenario {
    Scenario { flags: CHANNEL_PAYLOAD_SIZE, ..of }
}

const fn storm(of: Scenario) -> Scenario {
    Scenario { planned: false, ..of }
}

use RESERVATION_LOCKED as LOCKED;
use RESERVATION_LOCKLESS as LOCKLESS;
use RESERVATION_RSEQ as RSEQ;

/// All scenarios, in the order in which they run.
pub(crate) const SCENARIOS: &[Scenario] = &[
    row("rseq", RSEQ, Plot::Alone, Form::Words),
    row("lockless", LOCKLESS, Plot::Alone, Form::Words),
    row("locked", LOCKED, Plot::Alone, Form::Words),
    row("rseq-tails", RSEQ, Plot::Alone, Form::Tails),
    row("lockless-tails", LOCKLESS, Plot::Alone, Form::Tails),
    storm(row("rseq-tails-aborted", RSEQ, Plot::Alone, Form::Tails)),
    row("rseq-varying", RSEQ, Plot::Alone, Form::Varying),
    row("rseq-headers", RSEQ, Plot::Alone, Form::Headers),
    row("lockless-headers", LOCKLESS, Plot::Alone, Form::Headers),
    row("locked-headers", LOCKED, Plot::Alone, Form::Headers),
    sized(row("rseq-sizes", RSEQ, Plot::Alone, Form::Headers)),
    sized(row("lockless-sizes", LOCKLESS, Plot::Alone, Form::Headers)),
    row("rseq-parts", RSEQ, Plot::Alone, Form::Parts),
    row("lockless-parts", LOCKLESS, Plot::Alone, Form::Parts),
    storm(row("rseq-aborted", RSEQ, Plot::Alone, Form::Words)),
    row("rseq-signals", RSEQ, Plot::Signals, Form::Words),
    row("lockless-signals", LOCKLESS, Plot::Signals, Form::Words),
    row("locked-signals", LOCKED, Plot::Signals, Form::Words),
    row("rseq-two-threads", RSEQ, Plot::TwoThreads, Form::Words),
    row("lockless-two-threads", LOCKLESS, Plot::TwoThreads, Form::Words),
    row("locked-two-threads", LOCKED, Plot::TwoThreads, Form::Words),
    discard(row("rseq-discard", RSEQ, Plot::Alone, Form::Words)),
    discard(row("lockless-discard", LOCKLESS, Plot::Signals, Form::Words)),
    discard(row("locked-discard", LOCKED, Plot::Alone, Form::Words)),
    paged(row("rseq-paged", RSEQ, Plot::Alone, Form::Long)),
    paged(row("lockless-paged", LOCKLESS, Plot::Alone, Form::Long)),
    paged(row("locked-paged", LOCKED, Plot::Alone, Form::Long)),
    row("rseq-snapshots", RSEQ, Plot::Swaps, Form::Words),
    row("lockless-snapshots", LOCKLESS, Plot::Swaps, Form::Words),
    row("locked-snapshots", LOCKED, Plot::Swaps, Form::Words),
    row("lockless-stalled", LOCKLESS, Plot::Stalled, Form::Words),
    row("rseq-dead", RSEQ, Plot::Dead, Form::Words),
    row("lockless-dead", LOCKLESS, Plot::Dead, Form::Words),
    row("locked-dead", LOCKED, Plot::Dead, Form::Words),
    row("counters", LOCKLESS, Plot::Alone, Form::Counters),
    row("counters-signals", LOCKLESS, Plot::Signals, Form::Counters),
    row("counters-two-threads", LOCKLESS, Plot::TwoThreads, Form::Counters),
    row("counters-dead", LOCKLESS, Plot::Dead, Form::Counters),
    discard(row("counters-full", LOCKLESS, Plot::Alone, Form::Counters)),
];

/// Most events of one writer.
pub(crate) const MAX_EVENTS: usize = 256;
/// Writers of one thread: the thread itself and two signal handlers.
pub(crate) const LEVELS: usize = 3;
/// Most threads, of one process or one in each of several.
pub(crate) const MAX_THREADS: usize = 6;
/// Most writers.
pub(crate) const MAX_WRITERS: usize = LEVELS * MAX_THREADS;

/// The scenario of that name.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|s| s.name == name)
}

/// One event of the plan.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: u16,
    /// The payload: a u32 count, then that many bytes: key u32 (`writer << 16 | sequence`),
    /// filler.
    pub(crate) payload: Vec<u8>,
    /// Parts in which it is given; 0: as words.
    pub(crate) parts: usize,
    /// A pause before it, ms.
    pub(crate) pause: u32,
    /// Offset of the tail, which is a text where the payload ends with a NUL; 0 without a tail.
    pub(crate) tail: usize,
}

impl Scenario {
    /// Threads that record or swap, in all processes.
    pub(crate) fn threads(&self) -> usize {
        match self.plot {
            Plot::Alone | Plot::Signals => 1,
            Plot::TwoThreads | Plot::Swaps | Plot::Stalled => 2,
            Plot::Dead => 5,
        }
    }

    /// Threads of one process.
    pub(crate) fn threads_of_process(&self) -> usize {
        if self.plot == Plot::Dead { 1 } else { self.threads() }
    }

    /// Events of each writer.
    pub(crate) fn events(&self) -> usize {
        match (self.plot, self.form) {
            (_, Form::Long) => 80,
            (Plot::Dead, _) => 48,
            _ => 96,
        }
    }

    /// Events that `thread` records before it is stepped, so that the steps fall on any state of
    /// the ring.
    pub(crate) fn skipped(&self, seed: u64, thread: usize) -> usize {
        let most = match (self.mode, self.plot) {
            (MODE_DISCARD, _) => 40,
            (_, Plot::Dead) => self.events() / 2,
            _ => self.events() - 12,
        };
        let dice = mix(seed ^ mix(thread as u64 + 77)) as usize;
        // From the very first event in one round of eight (of counters, of two): its claims and
        // registrations are steps too.
        let each = if self.form == Form::Counters { 2 } else { 8 };
        if dice.is_multiple_of(each) { 0 } else { (dice >> 8) % most }
    }

    /// How many times the usual stops a round has: an event whose sections are all aborted takes
    /// thousands.
    pub(crate) fn patience(&self) -> u64 {
        match self.plot {
            _ if !self.planned => 5,
            // The first addition to a metric takes thousands too.
            _ if self.form == Form::Counters => 8,
            Plot::Stalled => 3,
            Plot::Dead | Plot::Swaps => 2,
            _ => 1,
        }
    }

    /// Fewest kill points in which what the scenario is for happens.
    pub(crate) fn least(&self) -> u64 {
        match self.plot {
            _ if !self.planned => 120_000,
            Plot::Stalled => 100_000,
            Plot::Swaps | Plot::Dead => 50_000,
            _ => 0,
        }
    }

    /// Largest event, header included.
    pub(crate) fn largest(&self) -> u64 {
        18 + if self.form == Form::Long { 1600 } else { 72 }
    }

    /// Event `sequence` of `writer` in the round that was begun with `seed`.
    pub(crate) fn event(&self, seed: u64, writer: usize, sequence: usize) -> Event {
        let key = (writer as u32) << 16 | sequence as u32;
        let dice = mix(seed ^ mix(u64::from(key) + 1));
        let (die, size) = (dice >> 40, (dice & 0xffff) as usize);
        let (id, len, parts) = match self.form {
            Form::Words | Form::Counters => ((die % 29) as u16, 8 + size % 65, 0),
            Form::Tails => ((die % 29) as u16, 30 + size % 43, 0),
            Form::Varying => ((die % 29) as u16, 24 + size % 49, 0),
            Form::Headers => ((die % 41) as u16, 8 + size % 60, (die >> 8) as usize % 3),
            Form::Parts => ((die % 41) as u16, 8 + size % 64, 2 + (die >> 8) as usize % 7),
            Form::Long => ((die % 41) as u16, 8 + size % 1592, (die >> 8) as usize % 4),
        };
        let pause =
            if self.form == Form::Headers && (dice >> 20).is_multiple_of(24) { 60 } else { 0 };
        let mut payload = payload(key, len);
        let tail = match self.form {
            Form::Tails => tail(&mut payload, (die >> 8) as usize),
            Form::Varying => 1 + (die >> 8) as usize % 8,
            _ => 0,
        };
        Event { id, payload, parts, pause, tail }
    }
}

/// The payload of `len` bytes, 8 at least, of the event `key`.
fn payload(key: u32, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    bytes.extend((len as u32 - 4).to_ne_bytes());
    bytes.extend(key.to_ne_bytes());
    let mut state = mix(u64::from(key));
    while bytes.len() < len {
        state = mix(state + 1);
        bytes.extend(state.to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Chooses the first 8 to 28 bytes of `payload` as the head, and makes the rest a text with a NUL
/// in every second case. Returns the length of the head.
fn tail(payload: &mut [u8], die: usize) -> usize {
    let head = 8 + die % 21;
    if let Some((nul, text)) =
        payload[head..].split_last_mut().filter(|_| (die / 21).is_multiple_of(2))
    {
        text.iter_mut().for_each(|byte| *byte = (*byte).max(1));
        *nul = 0;
    }
    head
}
