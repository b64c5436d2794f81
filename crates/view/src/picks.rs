//! Takes those values of an event that decide where the event is drawn.

use lastwords_ctf::program::Code;
use lastwords_trace::visit::{NodeId, Visitor};

/// A number that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    Tid,
    Pid,
    /// The ids in the thread's own namespace, which count where there are no others.
    VirtualTid,
    VirtualPid,
    PrevTid,
    PrevState,
    NextTid,
    Irq,
    Vector,
    Span,
    Parent,
    SystemCall,
    Level,
}

/// A text that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    ThreadName,
    PrevName,
    NextName,
    Name,
    Text,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Number(Number),
    Words(Words),
}

/// The place of each node of a scope among the values that are taken.
#[derive(Debug)]
pub(crate) struct Picks(Vec<Option<Target>>);

impl Picks {
    /// Prepares a scope. In a kernel's context, `pid` is the id of the thread, as the kernel's own
    /// text has it.
    pub(crate) fn new(code: &Code, is_context: bool, is_ftrace: bool) -> Self {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// The values of one event.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    numbers: [Option<u64>; 13],
    words: [Option<Vec<u8>>; 5],
}

impl Picked {
    pub(crate) fn number(&self, number: Number) -> Option<u64> {
        self.numbers.get(number as usize).copied().flatten()
    }

    /// Returns the id of a thread or process. Ids of the kernel are signed, and 32 bits wide.
    pub(crate) fn id(&self, number: Number) -> Option<i64> {
        self.number(number).map(u64::cast_signed)
    }

    /// Returns the id of the thread that recorded the event.
    pub(crate) fn tid(&self) -> Option<i64> {
        self.id(Number::Tid).or_else(|| self.id(Number::VirtualTid))
    }

    /// Returns the id of the process that recorded the event.
    pub(crate) fn pid(&self) -> Option<i64> {
        self.id(Number::Pid).or_else(|| self.id(Number::VirtualPid))
    }

    /// Returns a text. Bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn words(&self, words: Words) -> Option<String> {
        let bytes = self.words.get(words as usize)?.as_ref()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Visits a scope for its picks.
pub(crate) struct Picking<'a> {
    pub(crate) picks: &'a Picks,
    pub(crate) picked: &'a mut Picked,
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
