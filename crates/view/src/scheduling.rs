//! Makes slices of a kernel's events: what runs on each CPU, its interrupts, and the system calls
//! of threads.

use crate::names::NONE;
use crate::slices::{Begun, NO_END, Of, Slices, Track, UNSURE};
use lastwords_render::missing::StreamKey;
use std::collections::HashMap;

/// Deepest nesting of interrupts and of what a thread is in.
const MAX_DEPTH: usize = 64;

/// Something that has begun on a CPU or in a thread.
struct Open {
    /// The id by which its end finds it.
    id: u64,
    depth: usize,
    begun: Begun,
}

/// All that has begun on a CPU or in a thread and has not ended, the innermost last.
type Stack = Vec<Open>;

/// A trace and the number of a CPU.
type CpuKey = (usize, u32);

/// The identity of a system call, which its entry and its exit have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallId {
    /// The number of the text of its name.
    Name(u32),
    /// The number of the system call, in events that all calls share.
    Number(u64),
}

impl CallId {
    /// Returns true if an exit with this id may be that of an entry. A number and a name cannot be
    /// compared. The kernel sets the number -1 while a call runs that restores the registers, such
    /// as `rt_sigreturn`.
    fn may_end(self, entry: Self) -> bool {
        match (self, entry) {
            (Self::Number(exit), Self::Number(entry)) => exit == entry || exit == u64::MAX,
            (Self::Name(exit), Self::Name(entry)) => exit == entry,
            _ => true,
        }
    }
}

/// The open slices of CPUs and threads.
#[derive(Default)]
pub(crate) struct Scheduling {
    /// The thread that runs on each CPU, by trace: several traces may have the events of one CPU.
    running: HashMap<CpuKey, Begun>,
    interrupts: HashMap<CpuKey, Stack>,
    /// The trace that had the last switch of each CPU.
    switched: HashMap<u32, usize>,
    threads: HashMap<u32, Stack>,
    calls: HashMap<u32, (CallId, Begun)>,
    /// Ends of interrupts and of system calls are among the events. Without any, nobody knows how
    /// long those took.
    has_interrupt_ends: bool,
    has_call_ends: bool,
    /// Number of slices that are nested too deep.
    pub(crate) not_drawn: u64,
    /// Number of system calls that another trace has as well.
    pub(crate) repeated: u64,
}

/// Returns the track of something nested.
fn nested(of: Of, owner: u32, depth: usize) -> Track {
    Track { of, owner, depth: u32::try_from(depth).unwrap_or(u32::MAX) }
}

impl Scheduling {
    /// Returns the thread that runs on a CPU, as far as the last switch says: that of the trace, or
    /// else of another one.
    pub(crate) fn thread_on(&self, trace: usize, cpu: u32) -> Option<u32> {
        let of = |trace: usize| self.running.get(&(trace, cpu));
        let running = of(trace).or_else(|| of(*self.switched.get(&cpu)?));
        // Where switches are missing, another thread may run.
        let known = running.filter(|running| running.flags & UNSURE == 0);
        known.map(|running| running.thread).filter(|thread| *thread != NONE)
    }

    /// The CPU goes on with another thread. `before` is the thread that ran until now, if the event
    /// names it, with the earliest time from which it may have run.
    pub(crate) fn switch(
        &mut self,
        slices: &mut Slices,
        cpu: u32,
        before: Option<Begun>,
        next: Begun,
    ) {
        let track = nested(Of::Running, cpu, 0);
        self.switched.insert(cpu, next.trace);
        match (self.running.insert((next.trace, cpu), next), before) {
            (Some(last), Some(before)) if last.thread != before.thread => {
                // Switches between the two are not among the events: only that each thread ran is
                // known.
                slices.add(track, last, last.begin, NO_END);
                slices.add(track, Begun { begin: next.begin, ..before }, next.begin, 0);
            }
            (Some(last), _) | (None, Some(last)) => slices.add(track, last, next.begin, 0),
            (None, None) => {}
        }
    }

    /// Events of a trace are missing from this time on: what threads are in, as far as this trace
    /// told, is not known any more.
    pub(crate) fn lost_threads(&mut self, slices: &mut Slices, trace: usize, time: i64) {
        self.calls.retain(|_, (_, begun)| begun.trace != trace);
        for (thread, stack) in &mut self.threads {
            for Open { depth, begun, .. } in stack.extract_if(.., |open| open.begun.trace == trace)
            {
                slices.add(nested(Of::Thread, *thread, depth), begun, time, NO_END);
            }
        }
        self.threads.retain(|_, stack| !stack.is_empty());
    }

    /// Events of a stream are missing from this time on: what it said of its CPU is not known any
    /// more.
    pub(crate) fn lost(&mut self, slices: &mut Slices, stream: StreamKey, time: i64) {
        let is_of = |begun: &Begun| (begun.trace, begun.stream) == stream;
        self.running.retain(|(_, cpu), begun| {
            if is_of(begun) {
                slices.add(nested(Of::Running, *cpu, 0), *begun, time, NO_END);
            }
            !is_of(begun)
        });
        for ((_, cpu), stack) in &mut self.interrupts {
            for Open { depth, begun, .. } in stack.extract_if(.., |open| is_of(&open.begun)) {
                slices.add(nested(Of::Interrupts, *cpu, depth), begun, time, NO_END);
            }
        }
    }

    /// An interrupt handler begins.
    pub(crate) fn interrupt(&mut self, slices: &mut Slices, cpu: u32, id: u64, begun: Begun) {
        let stack = self.interrupts.entry((begun.trace, cpu)).or_default();
        // A handler does not interrupt itself: the end of the one before is not among the events.
        if let Some(at) = stack.iter().position(|open| open.id == id) {
            for Open { depth, begun, .. } in stack.drain(at..) {
                slices.add(nested(Of::Interrupts, cpu, depth), begun, begun.begin, NO_END);
            }
        }
        self.not_drawn = self.not_drawn.saturating_add(push(stack, id, begun));
    }

    /// The interrupt handler with this id ends, and with it those that began in it and have no end.
    pub(crate) fn interrupt_end(
        &mut self,
        slices: &mut Slices,
        (trace, cpu): CpuKey,
        id: u64,
        time: i64,
    ) {
        self.has_interrupt_ends = true;
        let Some(stack) = self.interrupts.get_mut(&(trace, cpu)) else { return };
        let Some(at) = stack.iter().rposition(|open| open.id == id) else { return };
        for open in stack.drain(at..) {
            let flags = if open.id == id { 0 } else { NO_END };
            slices.add(nested(Of::Interrupts, cpu, open.depth), open.begun, time, flags);
        }
    }

    /// A thread enters a system call.
    pub(crate) fn call(&mut self, slices: &mut Slices, thread: u32, id: CallId, begun: Begun) {
        if self.calls.get(&thread).is_some_and(|(_, open)| open.trace != begun.trace) {
            // The kernel tells all traces of the entry before any of the exit.
            self.repeated = self.repeated.saturating_add(1);
            return;
        }
        // The end of the call before is not among the events: how long it took is not known.
        if let Some((_, last)) = self.calls.insert(thread, (id, begun)) {
            self.exit(slices, thread, CALL, last.begin, NO_END);
        }
        self.enter(thread, CALL, begun);
    }

    /// A thread leaves a system call. If it is another one than it entered, the end of that is not
    /// among the events.
    pub(crate) fn call_end(
        &mut self,
        slices: &mut Slices,
        (trace, thread): (usize, u32),
        id: CallId,
        time: i64,
    ) {
        self.has_call_ends = true;
        if let Some((entry, begun)) =
            self.calls.get(&thread).copied().filter(|(_, begun)| begun.trace == trace)
        {
            self.calls.remove(&thread);
            let (end, flags) = if id.may_end(entry) { (time, 0) } else { (begun.begin, NO_END) };
            self.exit(slices, thread, CALL, end, flags);
        }
    }

    /// A thread enters something.
    pub(crate) fn enter(&mut self, thread: u32, id: u64, begun: Begun) {
        let stack = self.threads.entry(thread).or_default();
        self.not_drawn = self.not_drawn.saturating_add(push(stack, id, begun));
    }

    /// A thread leaves what has this id. What it entered after that may end later: guards of spans
    /// are dropped in any order.
    pub(crate) fn exit(&mut self, slices: &mut Slices, thread: u32, id: u64, time: i64, flags: u8) {
        let Some(stack) = self.threads.get_mut(&thread) else { return };
        if let Some(at) = stack.iter().rposition(|open| open.id == id) {
            let open = stack.remove(at);
            slices.add(nested(Of::Thread, thread, open.depth), open.begun, time, flags);
        }
    }

    /// A thread ends, and with it what it was in.
    pub(crate) fn thread_end(&mut self, slices: &mut Slices, thread: u32, time: i64) {
        self.calls.remove(&thread);
        for Open { depth, begun, .. } in self.threads.remove(&thread).unwrap_or_default() {
            slices.add(nested(Of::Thread, thread, depth), begun, time, 0);
        }
    }

    /// Ends all that is open at the end of its trace. `has_exits` tells of a span whether its exits
    /// are among the events.
    pub(crate) fn finish(
        self,
        slices: &mut Slices,
        end_of: impl Fn(&Begun) -> i64,
        has_exits: impl Fn(&Begun) -> bool,
    ) {
        for ((_, cpu), begun) in self.running {
            slices.add_open(nested(Of::Running, cpu, 0), begun, Some(end_of(&begun)));
        }
        let interrupts =
            self.interrupts.into_iter().map(|((_, cpu), stack)| (Of::Interrupts, cpu, stack));
        let threads = self.threads.into_iter().map(|(thread, stack)| (Of::Thread, thread, stack));
        for (of, owner, stack) in interrupts.chain(threads) {
            for Open { id, depth, begun } in stack {
                let has_end = match of {
                    Of::Interrupts => self.has_interrupt_ends,
                    _ if id == CALL => self.has_call_ends,
                    _ => has_exits(&begun),
                };
                let end = has_end.then(|| end_of(&begun));
                slices.add_open(nested(of, owner, depth), begun, end);
            }
        }
    }
}

/// The id of a system call in a thread's stack. Ids of spans are other numbers.
pub(crate) const CALL: u64 = u64::MAX;

/// Adds what has begun, below all that is open. Returns 1 if it is nested too deep, else 0.
fn push(stack: &mut Stack, id: u64, begun: Begun) -> u64 {
    let depth = stack.last().map_or(0, |open| open.depth.saturating_add(1));
    if depth >= MAX_DEPTH {
        return 1;
    }
    stack.push(Open { id, depth, begun });
    0
}
