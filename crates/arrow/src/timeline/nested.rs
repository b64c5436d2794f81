//! Makes slices of what nests on a thread or CPU: system calls, functions of the kernel, interrupts.

use super::{End, Out, Place, Slice, extract};
use lastwords_render::missing::StreamKey;
use lastwords_render::picks::{Number, Picked};
use lastwords_trace::syscalls;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

/// The states of a thread that runs no more, `EXIT_DEAD` and `EXIT_ZOMBIE` (`include/linux/sched.h`
/// of Linux 4.14 to 7.2).
const DEAD: u64 = 0x30;
/// Most functions that a thread is in.
const MAX_DEPTH: usize = 1 << 10;

/// A thread of a trace. The idle threads of all CPUs have the id 0, so that the CPU counts then.
type ThreadKey = (usize, i64, Option<u32>);

/// A system call: its name, and its number if events have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    name: Rc<str>,
    number: Option<u64>,
}

impl Call {
    /// Makes the call of an event. `name` is empty if all calls share their events.
    pub(super) fn new(name: &Rc<str>, picked: &Picked, machine: &str) -> Self {
        if !name.is_empty() {
            return Self { name: Rc::clone(name), number: None };
        }
        let number = picked.number(Number::SystemCall);
        let name = match number {
            Some(number) => syscalls::name(machine, number)
                .map_or_else(|| format!("syscall {number}").into(), Into::into),
            None => Rc::clone(name),
        };
        Self { name, number }
    }

    /// Returns true if an exit may be that of this call. The kernel sets the number -1 while a call
    /// runs that restores the registers, such as `rt_sigreturn`.
    fn may_end_with(&self, exit: &Self) -> bool {
        match (self.number, exit.number) {
            (Some(own), Some(exit)) => own == exit || exit == u64::MAX,
            (None, None) => self.name == exit.name,
            _ => true,
        }
    }
}

/// Something that has begun, and whether no event around its begin is missing.
#[derive(Debug, Clone)]
struct Open {
    stream: StreamKey,
    slice: Slice,
    /// The address of a function, the number of an interrupt.
    id: u64,
    is_sure: bool,
}

impl Open {
    fn put(&self, out: &mut Out<'_>, end: End, returned: Option<i64>) {
        let slice = Slice { returned, ..self.slice.clone() };
        out.slice(&slice, if self.is_sure { end } else { End::Unknown });
    }
}

/// All that threads and CPUs are in.
#[derive(Default)]
pub(super) struct Nested {
    calls: BTreeMap<ThreadKey, (Call, Open)>,
    functions: BTreeMap<ThreadKey, Vec<Open>>,
    interrupts: BTreeMap<(usize, u32), Vec<Open>>,
    /// The categories whose ends are among the events of a trace. Without any, nobody knows whether
    /// what has begun was open at the end.
    ends: HashSet<(usize, &'static str)>,
    /// The names of functions, by trace and address.
    names: BTreeMap<(usize, u64), Rc<str>>,
}

fn slice(place: &Place, category: &'static str, name: Rc<str>) -> Slice {
    Slice {
        trace: place.stream.0,
        begin: place.time,
        category,
        name,
        cpu: place.cpu,
        tid: place.tid,
        pid: place.pid,
        depth: None,
        id: None,
        parent: None,
        returned: None,
    }
}

fn thread(place: &Place) -> Option<ThreadKey> {
    let tid = place.tid?;
    Some((place.stream.0, tid, place.cpu.filter(|_| tid == 0)))
}

impl Nested {
    /// A thread enters a system call. If it was in one, the exit of that is missing.
    pub(super) fn call(&mut self, out: &mut Out<'_>, place: &Place, call: Call) {
        let Some(key) = thread(place) else { return };
        let slice = slice(place, "syscall", Rc::clone(&call.name));
        let open = Open { stream: place.stream, slice, id: 0, is_sure: !place.is_lossy.1 };
        if let Some((_, last)) = self.calls.insert(key, (call, open)) {
            last.put(out, End::Unknown, None);
        }
    }

    /// A thread leaves a system call. If it is another one than it entered, events are missing.
    pub(super) fn call_end(
        &mut self,
        out: &mut Out<'_>,
        place: &Place,
        call: &Call,
        returned: Option<i64>,
    ) {
        self.ends.insert((place.stream.0, "syscall"));
        let Some((entry, open)) = thread(place).and_then(|key| self.calls.remove(&key)) else {
            return;
        };
        match entry.may_end_with(call) && !place.is_lossy.1 {
            true => open.put(out, End::At(place.time), returned),
            false => open.put(out, End::Unknown, None),
        }
    }

    /// A thread ends, and what it was in ends with it.
    pub(super) fn thread_end(&mut self, out: &mut Out<'_>, place: &Place) {
        let Some(key) = thread(place) else { return };
        self.end_thread(out, key, place.time);
    }

    /// A CPU leaves a thread, which may have ended.
    pub(super) fn switched(&mut self, out: &mut Out<'_>, place: &Place, picked: &Picked) {
        let is_dead = picked.number(Number::PrevState).is_some_and(|state| state & DEAD != 0);
        if let Some(tid) = picked.id(Number::PrevTid).filter(|tid| is_dead && *tid != 0) {
            self.end_thread(out, (place.stream.0, tid, None), place.time);
        }
    }

    fn end_thread(&mut self, out: &mut Out<'_>, key: ThreadKey, time: i64) {
        if let Some((_, call)) = self.calls.remove(&key) {
            call.put(out, End::At(time), None);
        }
        for function in self.functions.remove(&key).unwrap_or_default().into_iter().rev() {
            function.put(out, End::At(time), None);
        }
    }

    /// A thread enters a function. What is not above it has ended, and the end is missing.
    pub(super) fn function(&mut self, out: &mut Out<'_>, place: &Place, picked: &Picked) {
        let (Some(key), Some(id)) = (thread(place), picked.number(Number::Function)) else {
            return;
        };
        let depth = picked.id(Number::Depth);
        let name = self.names.entry((key.0, id)).or_insert_with(|| out.function(key.0, id));
        let slice = Slice { depth, ..slice(place, "function", Rc::clone(name)) };
        let stack = self.functions.entry(key).or_default();
        let from = stack.iter().position(|open| open.slice.depth >= depth).unwrap_or(stack.len());
        stack.drain(from..).rev().for_each(|open| open.put(out, End::Unknown, None));
        if stack.len() < MAX_DEPTH {
            stack.push(Open { stream: place.stream, slice, id, is_sure: !place.is_lossy.1 });
        }
    }

    /// A thread returns from a function. What it called has ended, and the end is missing.
    pub(super) fn function_end(&mut self, out: &mut Out<'_>, place: &Place, picked: &Picked) {
        self.ends.insert((place.stream.0, "function"));
        let (Some(key), Some(id)) = (thread(place), picked.number(Number::Function)) else {
            return;
        };
        let depth = picked.id(Number::Depth);
        let Some(stack) = self.functions.get_mut(&key) else { return };
        let is_own = |open: &Open| open.id == id && open.slice.depth == depth;
        let Some(at) = stack.iter().rposition(is_own) else { return };
        let is_sure = !place.is_lossy.1;
        for (number, open) in stack.drain(at..).enumerate() {
            let end = if number == 0 && is_sure { End::At(place.time) } else { End::Unknown };
            open.put(out, end, None);
        }
    }

    /// A CPU begins to serve an interrupt. A handler does not interrupt itself: the end of one
    /// before is missing.
    pub(super) fn interrupt(
        &mut self,
        out: &mut Out<'_>,
        place: &Place,
        category: &'static str,
        id: u64,
        name: &str,
    ) {
        let Some(cpu) = place.cpu else { return };
        let stack = self.interrupts.entry((place.stream.0, cpu)).or_default();
        let is_own = |open: &Open| (open.slice.category, open.id) == (category, id);
        if let Some(at) = stack.iter().position(is_own) {
            stack.drain(at..).for_each(|open| open.put(out, End::Unknown, None));
        }
        let name = if name.is_empty() { format!("{category} {id}") } else { name.to_owned() };
        let depth = i64::try_from(stack.len()).ok();
        let slice =
            Slice { depth, id: i64::try_from(id).ok(), ..slice(place, category, name.into()) };
        stack.push(Open { stream: place.stream, slice, id, is_sure: !place.is_lossy.0 });
    }

    /// An interrupt handler ends. Those that began in it have ended, and their ends are missing.
    pub(super) fn interrupt_end(
        &mut self,
        out: &mut Out<'_>,
        place: &Place,
        category: &'static str,
        id: u64,
    ) {
        self.ends.insert((place.stream.0, category));
        let Some(cpu) = place.cpu else { return };
        let Some(stack) = self.interrupts.get_mut(&(place.stream.0, cpu)) else { return };
        let is_own = |open: &Open| (open.slice.category, open.id) == (category, id);
        let Some(at) = stack.iter().rposition(is_own) else { return };
        for (number, open) in stack.drain(at..).enumerate() {
            let is_sure = number == 0 && !place.is_lossy.0;
            open.put(out, if is_sure { End::At(place.time) } else { End::Unknown }, None);
        }
    }

    /// Events of a trace are missing: it is not known what its threads are in.
    pub(super) fn lost_threads(&mut self, out: &mut Out<'_>, trace: usize) {
        for (_, open) in extract(&mut self.calls, |key, _| key.0 == trace) {
            open.put(out, End::Unknown, None);
        }
        for stack in extract(&mut self.functions, |key, _| key.0 == trace) {
            stack.iter().for_each(|open| open.put(out, End::Unknown, None));
        }
    }

    /// Events of a stream are missing: it is not known which interrupts its CPU serves.
    pub(super) fn lost_cpu(&mut self, out: &mut Out<'_>, stream: StreamKey) {
        for stack in self.interrupts.values_mut() {
            for open in stack.extract_if(.., |open| open.stream == stream) {
                open.put(out, End::Unknown, None);
            }
        }
    }

    /// The recording has ended. The functions say of a stream, and of a trace, that no event is
    /// missing at its end.
    pub(super) fn finish(
        &mut self,
        out: &mut Out<'_>,
        is_whole_stream: impl Fn(StreamKey) -> bool,
        is_whole_trace: impl Fn(usize) -> bool,
    ) {
        let calls = std::mem::take(&mut self.calls).into_values().map(|(_, open)| open);
        let functions = std::mem::take(&mut self.functions).into_values().flatten();
        let of_threads = calls.chain(functions).map(|open| {
            let is_whole = is_whole_trace(open.stream.0);
            (open, is_whole)
        });
        let interrupts = std::mem::take(&mut self.interrupts).into_values().flatten();
        let of_cpus = interrupts.map(|open| {
            let is_whole = is_whole_stream(open.stream);
            (open, is_whole)
        });
        for (open, is_whole) in of_threads.chain(of_cpus) {
            let has_ends = self.ends.contains(&(open.stream.0, open.slice.category));
            open.put(out, if is_whole && has_ends { End::Open } else { End::Unknown }, None);
        }
    }
}

impl Out<'_> {
    /// Returns the name of the kernel's function at an address.
    fn function(&self, trace: usize, address: u64) -> Rc<str> {
        let symbols = self.beside.get(trace).and_then(|beside| beside.symbols.as_ref());
        let symbol = symbols.and_then(|symbols| symbols.at(address));
        symbol.map_or_else(|| format!("{address:#x}").into(), |symbol| symbol.name.into())
    }
}
