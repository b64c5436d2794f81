//! Takes those values of an event that decide its place on a timeline.

use lastwords_ctf::program::Code;
use lastwords_trace::visit::{NodeId, Visitor};

/// A number that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// The thread that recorded the event.
    Tid,
    /// Its process.
    Pid,
    /// The thread in its own namespace, which counts where there is no other id.
    VirtualTid,
    /// The process in its own namespace.
    VirtualPid,
    /// The thread that a CPU leaves.
    PrevTid,
    /// The state of that thread: a number of the kernel.
    PrevState,
    /// The priority of that thread.
    PrevPriority,
    /// The thread that a CPU goes on with.
    NextTid,
    /// The priority of that thread.
    NextPriority,
    /// An interrupt.
    Irq,
    /// The vector of a soft interrupt.
    Vector,
    /// The id of a span.
    Span,
    /// The id of a span's parent; 0 if it has none.
    Parent,
    /// The number of a system call.
    SystemCall,
    /// The severity of a line of the kernel's log.
    Level,
    /// The address of a function.
    Function,
    /// The number of functions that called it.
    Depth,
    /// What a system call returned.
    Returned,
}

/// A text that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// The name of the thread that recorded the event.
    ThreadName,
    /// The name of the thread that a CPU leaves.
    PrevName,
    /// The name of the thread that a CPU goes on with.
    NextName,
    /// The name of an interrupt.
    Name,
    /// A line of the kernel's log.
    Text,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Number(Number),
    Words(Words),
}

/// The place of each node of a scope among the values that are taken.
#[derive(Debug)]
pub struct Picks(Vec<Option<Target>>);

impl Picks {
    /// Prepares a scope. In a kernel's context, `pid` is the id of the thread, as the kernel's own
    /// text has it.
    #[must_use]
    pub fn new(code: &Code, is_context: bool, is_ftrace: bool) -> Self {
        let of = |name: &str| {
            Some(match (name, is_context) {
                ("tid", true) => Target::Number(Number::Tid),
                ("vtid", true) => Target::Number(Number::VirtualTid),
                ("pid", true) if is_ftrace => Target::Number(Number::Tid),
                ("pid" | "tgid", true) => Target::Number(Number::Pid),
                ("vpid", true) => Target::Number(Number::VirtualPid),
                ("procname" | "comm", true) => Target::Words(Words::ThreadName),
                ("prev_pid" | "prev_tid", false) => Target::Number(Number::PrevTid),
                ("prev_state", false) => Target::Number(Number::PrevState),
                ("prev_prio", false) => Target::Number(Number::PrevPriority),
                ("next_prio", false) => Target::Number(Number::NextPriority),
                ("func", false) => Target::Number(Number::Function),
                ("depth", false) => Target::Number(Number::Depth),
                ("ret", false) => Target::Number(Number::Returned),
                ("next_pid" | "next_tid", false) => Target::Number(Number::NextTid),
                ("prev_comm", false) => Target::Words(Words::PrevName),
                ("next_comm", false) => Target::Words(Words::NextName),
                ("irq", false) => Target::Number(Number::Irq),
                ("vec", false) => Target::Number(Number::Vector),
                ("span_id", false) => Target::Number(Number::Span),
                ("parent_id", false) => Target::Number(Number::Parent),
                ("id" | "nr" | "__syscall_nr", false) => Target::Number(Number::SystemCall),
                ("level", false) => Target::Number(Number::Level),
                ("name", false) => Target::Words(Words::Name),
                ("text", false) => Target::Words(Words::Text),
                _ => return None,
            })
        };
        Self(code.nodes().iter().map(|node| of(&node.name).filter(|_| node.depth == 1)).collect())
    }

    /// Returns true if no value of the scope is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// The values of one event.
#[derive(Debug, Default)]
pub struct Picked {
    numbers: [Option<u64>; 18],
    words: [Option<Vec<u8>>; 5],
}

impl Picked {
    /// Returns a number.
    #[must_use]
    pub fn number(&self, number: Number) -> Option<u64> {
        self.numbers.get(number as usize).copied().flatten()
    }

    /// Returns the id of a thread or process. Ids of the kernel are signed, and 32 bits wide.
    #[must_use]
    pub fn id(&self, number: Number) -> Option<i64> {
        self.number(number).map(u64::cast_signed)
    }

    /// Returns the id of the thread that recorded the event.
    #[must_use]
    pub fn tid(&self) -> Option<i64> {
        self.id(Number::Tid).or_else(|| self.id(Number::VirtualTid))
    }

    /// Returns the id of the process that recorded the event.
    #[must_use]
    pub fn pid(&self) -> Option<i64> {
        self.id(Number::Pid).or_else(|| self.id(Number::VirtualPid))
    }

    /// Returns a text. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn words(&self, words: Words) -> Option<String> {
        let bytes = self.words.get(words as usize)?.as_ref()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Visits a scope for its picks.
pub struct Picking<'a> {
    /// The values of the scope that are taken.
    pub picks: &'a Picks,
    /// The values of the event.
    pub picked: &'a mut Picked,
}

impl Picking<'_> {
    fn target(&self, node: NodeId) -> Option<Target> {
        self.picks.0.get(node as usize).copied().flatten()
    }
}

impl Visitor for Picking<'_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if let Some(Target::Number(number)) = self.target(node)
            && let Some(place) = self.picked.numbers.get_mut(number as usize)
        {
            *place = Some(value);
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if let Some(Target::Words(words)) = self.target(node)
            && let Some(place) = self.picked.words.get_mut(words as usize)
        {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            *place = bytes.get(..end).map(<[u8]>::to_vec);
        }
    }
}
