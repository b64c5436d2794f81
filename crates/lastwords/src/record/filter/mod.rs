//! Filters of rules, as callsites evaluate them: before an event is reserved, on its own values.
//!
//! The process that adds a rule parses its filter and writes the code into the session. A callsite
//! that is judged copies the code once a process ([`Program`]) and binds its names to the fields of
//! the event and to contexts ([`Bound`]). Both are in memory that is never freed and never taken
//! from the heap, because a callsite may be judged in a signal handler. An event encodes its values
//! on the stack and evaluates the code on them: no allocation, no lock, no system call. A callsite
//! with a filter records through `Callsite::each_slot`, so that the fast path knows nothing of
//! filters.

mod bind;
mod payload;

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use lastwords_abi::context as bits;
use lastwords_abi::sync::AtomicU64;
use lastwords_filter::{Code, Instruction, Value};

use self::bind::Source;
use self::payload::{Payload, Unclear};
use crate::process::identity::{self, Identity};
use crate::process::kept_memory;
use crate::record::context;
use crate::record::encode::writer::{Bytes, Image, ON_STACK};
use crate::record::encode::{Pieces, Values, memory};
use crate::record::slot::{MAX_SLOTS, RecorderSlot};
use crate::session::condition::{self, Match};
use crate::session::desc::EventDesc;
use crate::session::extra::Fired;
use crate::session::latency::{self, Part};
use crate::session::user_context::MAX_LEN;
use crate::session::{calls, rules};

/// The code of a filter, once in a process.
#[derive(Debug)]
pub(crate) struct Program {
    words: &'static [u64],
    /// The code and its operations; none if this version cannot evaluate them.
    code: Option<(Code<'static>, &'static [Instruction<'static>])>,
    next: Option<&'static Program>,
}

/// The programs of this process, newest first. It is written under the callsites' lock.
static PROGRAMS: AtomicPtr<Program> = AtomicPtr::new(std::ptr::null_mut());

/// The filter of a rule, as it was found in the session's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found {
    Known(&'static Program),
    /// A copy of its words.
    New(&'static [u64]),
    /// There is no memory for a copy.
    NoMemory,
}

/// Looks for the program with these words, which other processes may change meanwhile, and copies
/// them if there is none.
pub(crate) fn find(words: &[AtomicU64]) -> Found {
    use std::sync::atomic::Ordering::Relaxed;
    let is_same = |program: &&Program| {
        program.words.len() == words.len()
            && program.words.iter().zip(words).all(|(a, b)| *a == b.load(Relaxed))
    };
    if let Some(known) = programs().find(is_same) {
        return Found::Known(known);
    }
    kept_memory::keep_all(words.iter().map(|word| Some(word.load(Relaxed))))
        .map_or(Found::NoMemory, Found::New)
}

fn programs() -> impl Iterator<Item = &'static Program> {
    // SAFETY: only pointers to kept values are stored.
    let newest = unsafe { PROGRAMS.load(Acquire).as_ref::<'static>() };
    std::iter::successors(newest, |program| program.next)
}

impl Found {
    /// Returns the program, and lists it if it is new; none if there is no memory. The caller holds
    /// the callsites' lock.
    fn program(self) -> Option<&'static Program> {
        let words = match self {
            Self::Known(program) => return Some(program),
            Self::New(words) => words,
            Self::NoMemory => return None,
        };
        let program =
            kept_memory::keep(Program { words, code: load(words)?, next: programs().next() })?;
        PROGRAMS.store(std::ptr::from_ref(program).cast_mut(), Release);
        Some(program)
    }
}

type Loaded = (Code<'static>, &'static [Instruction<'static>]);

/// Returns the code in the words of a filter: none if there is no memory, none inside if it cannot
/// be evaluated.
fn load(words: &'static [u64]) -> Option<Option<Loaded>> {
    let Some((head, rest)) = words.split_first() else { return Some(None) };
    let bytes = memory(rest);
    let Some(code) = rules::parts(*head, bytes).and_then(|(_, code)| Code::new(code)) else {
        return Some(None);
    };
    Some(Some((code, kept_memory::keep_all(code.instructions())?)))
}

/// A filter whose names are bound to the fields of one event and to the contexts of one channel.
#[derive(Debug)]
pub(crate) struct Bound {
    program: &'static Program,
    slot: *const RecorderSlot,
    /// The source of each name. If the program cannot be evaluated there are none.
    sources: &'static [Source],
    fields: &'static [crate::session::desc::FieldDesc],
    reads_payload: bool,
    reads_user: bool,
    /// Filters that the callsite had before.
    next: Option<&'static Bound>,
}

// SAFETY: the pointer is compared, never followed.
unsafe impl Sync for Bound {}

/// The filters of a callsite, one for each slot.
#[derive(Debug)]
pub(crate) struct SiteFilters {
    /// The newest filter of each slot, with those before.
    newest: [AtomicPtr<Bound>; MAX_SLOTS],
    /// The filter that the events of the slot must fulfil; null if the slot takes all.
    current: [AtomicPtr<Bound>; MAX_SLOTS],
    /// The conditions of the slot's session, at the first slot of the session that takes the
    /// event.
    conditions: [AtomicPtr<BoundCondition>; MAX_SLOTS],
    /// The conditions that look at the event while no slot of the session takes it, at the
    /// session's first slot. A list stays while it is not in use, so that it needs no new memory
    /// when it is used again: `watched` has a bit for each slot whose list is in use.
    watching: [AtomicPtr<BoundCondition>; MAX_SLOTS],
    /// See `watching`. Written under the callsites' lock, after the list (Release).
    watched: AtomicU64,
}

/// A condition on the events of a callsite, and those behind it.
#[derive(Debug)]
pub(crate) struct BoundCondition {
    place: usize,
    each: u32,
    fired: Fired,
    filter: Option<&'static Bound>,
    /// The part of the event in a latency, and the expression that start and end have in common.
    part: Option<Part>,
    on: Option<&'static Bound>,
    slot: *const RecorderSlot,
    /// The name of the event.
    event: &'static [u8],
    next: Option<&'static BoundCondition>,
}

// SAFETY: the pointer is compared, never followed.
unsafe impl Sync for BoundCondition {}

impl BoundCondition {
    fn is_same(&self, other: &Self) -> bool {
        let same = |a: Option<&'static Bound>, b: Option<&'static Bound>| match (a, b) {
            (Some(a), Some(b)) => std::ptr::eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let of = |it: &Self| (it.place, it.each, it.fired, it.part, it.slot, it.next.is_some());
        of(self) == of(other)
            && same(self.filter, other.filter)
            && same(self.on, other.on)
            && self.next.zip(other.next).is_none_or(|(a, b)| a.is_same(b))
    }

    /// Counts an event, and fires the triggers that are due. `ask` returns the answer of a filter
    /// or expression.
    pub(crate) fn check(&self, slot: &'static RecorderSlot, ask: Ask<'_>) {
        // Another session took the slot meanwhile.
        if !std::ptr::eq(self.slot, slot) {
            return;
        }
        let view = slot.session.view();
        for one in std::iter::successors(Some(self), |one| one.next) {
            if one.is_fulfilled(slot, ask) && condition::hit(view, one.place, one.each) {
                (calls::calls().fulfilled)(slot.session, one.event, one.fired);
            }
        }
    }

    fn is_fulfilled(&self, slot: &'static RecorderSlot, ask: Ask<'_>) -> bool {
        let passes = self.filter.is_none_or(|filter| ask(Question::Filter(filter), slot).passes());
        let Some(part) = self.part else { return passes };
        let is_start = part.starts && passes;
        if !is_start && !part.ends {
            return false;
        }
        let key = match self.on {
            None => Some(identity::identity().word()),
            Some(on) => ask(Question::Key(on), slot).key(),
        };
        key.is_some_and(|key| latency::note(slot.session.view(), self.place, part, is_start, key))
    }
}

/// Returns the answer to a question for the event that is recorded.
pub(crate) type Ask<'a> = &'a mut dyn FnMut(Question<'_>, &RecorderSlot) -> Answer;

/// A question about an event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question<'a> {
    /// Whether it passes a filter.
    Filter(&'a Bound),
    /// The key of the value of an expression that is a name.
    Key(&'a Bound),
}

impl Question<'_> {
    /// Returns the answer for an event with these values. A filter that this version cannot
    /// evaluate, or whose values it cannot read in one piece, takes the event.
    #[inline(never)]
    pub(crate) fn answer<V: Values>(self, slot: &RecorderSlot, values: &V) -> Answer {
        let (Self::Filter(bound) | Self::Key(bound)) = self;
        // Another session took the slot meanwhile.
        if !std::ptr::eq(bound.slot, slot) {
            return self.unclear();
        }
        if !bound.reads_payload {
            return self.decide(slot, &[]);
        }
        let mut buffer = [MaybeUninit::uninit(); ON_STACK];
        let mut image = Image::new(&mut buffer);
        values.write(&mut image);
        match image.finish() {
            Some(image) => self.decide(slot, &[image.payload()]),
            None => self.answer_buffered(slot, values),
        }
    }

    /// Returns the answer if the values cannot be read.
    fn unclear(self) -> Answer {
        match self {
            Self::Filter(_) => Answer::Passes(true),
            Self::Key(_) => Answer::Key(None),
        }
    }

    /// Returns the answer for values that are large, or of which a text contains a NUL.
    #[inline(never)]
    fn answer_buffered<V: Values>(self, slot: &RecorderSlot, values: &V) -> Answer {
        let mut buffer = [0; 2048];
        let mut bytes = Bytes::new(&mut buffer);
        values.write(&mut bytes);
        match bytes.finish() {
            Some(payload) => self.decide(slot, &[payload]),
            None => self.answer_pieces(slot, values),
        }
    }

    #[inline(never)]
    fn answer_pieces<V: Values>(self, slot: &RecorderSlot, values: &V) -> Answer {
        let mut buffer = [0; 1024];
        let mut pieces = Pieces::new(&mut buffer);
        values.pieces(&mut pieces);
        // An event of too many pieces is counted as lost where it is recorded.
        pieces.finish().map_or(self.unclear(), |parts| self.decide(slot, parts))
    }

    /// Evaluates the code on the pieces of a payload.
    fn decide(self, slot: &RecorderSlot, pieces: &[&[u8]]) -> Answer {
        let (Self::Filter(bound) | Self::Key(bound)) = self;
        if bound.reads_user {
            self.decide_with_contexts(slot, pieces)
        } else {
            self.decide_with(pieces, &[])
        }
    }

    #[inline(never)]
    fn decide_with_contexts(self, slot: &RecorderSlot, pieces: &[&[u8]]) -> Answer {
        let mut user = [0; MAX_LEN];
        context::write(bits::USER, &slot.user_contexts, &mut Bytes::new(&mut user));
        self.decide_with(pieces, &[&user])
    }

    #[inline(never)]
    fn decide_with(self, pieces: &[&[u8]], user: &[&[u8]]) -> Answer {
        match self {
            Self::Filter(bound) => Answer::Passes(bound.is_true(pieces, user)),
            Self::Key(bound) => Answer::Key(bound.key(pieces, user)),
        }
    }
}

/// The result of an expression for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The event passes a filter, or does not.
    Passes(bool),
    /// The key of the expression's value; none if the event has no such value.
    Key(Option<u64>),
}

impl Answer {
    pub(crate) fn passes(self) -> bool {
        self == Self::Passes(true)
    }

    fn key(self) -> Option<u64> {
        if let Self::Key(key) = self { key } else { None }
    }
}

impl SiteFilters {
    /// Makes the entry of a callsite, without filters.
    pub(crate) fn keep() -> Option<&'static Self> {
        let none = || [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLOTS];
        let no_conditions = || [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLOTS];
        let (conditions, watching) = (no_conditions(), no_conditions());
        kept_memory::keep(Self {
            newest: none(),
            current: none(),
            conditions,
            watching,
            watched: AtomicU64::new(0),
        })
    }

    /// Returns the filter of a slot.
    pub(crate) fn at(&self, index: usize) -> Option<&'static Bound> {
        // SAFETY: only pointers to kept values are stored.
        unsafe { self.current[index].load(Acquire).as_ref() }
    }

    /// Removes the filter of a slot. The caller holds the callsites' lock.
    pub(crate) fn clear(&self, index: usize) {
        self.current[index].store(std::ptr::null_mut(), Release);
    }

    /// Sets the filter of a slot. Returns none if there is no memory. The caller holds the
    /// callsites' lock.
    pub(crate) fn set(
        &self,
        index: usize,
        slot: &'static RecorderSlot,
        desc: &EventDesc,
        found: Found,
    ) -> Option<()> {
        let bound = self.bound(index, slot, desc, found)?;
        self.current[index].store(std::ptr::from_ref(bound).cast_mut(), Release);
        Some(())
    }

    /// Returns the conditions of a slot that takes the event, or of one that does not.
    pub(crate) fn conditions(
        &self,
        index: usize,
        is_taken: bool,
    ) -> Option<&'static BoundCondition> {
        if !is_taken && self.watched.load(Acquire) >> index & 1 == 0 {
            return None;
        }
        let lists = if is_taken { &self.conditions } else { &self.watching };
        // SAFETY: only pointers to kept values are stored.
        unsafe { lists[index].load(Acquire).as_ref() }
    }

    /// Sets the conditions of a slot that takes the event, or of one that does not: those at the
    /// places whose bits are set. Returns none if there is no memory. The caller holds the
    /// callsites' lock.
    pub(crate) fn set_conditions(
        &self,
        index: usize,
        slot: &'static RecorderSlot,
        desc: &EventDesc,
        places: u64,
        is_taken: bool,
    ) -> Option<()> {
        if !is_taken && places == 0 {
            self.watched.fetch_and(!(1 << index), Release);
            return Some(());
        }
        let lists = if is_taken { &self.conditions } else { &self.watching };
        let mut list: Option<&'static BoundCondition> = None;
        // SAFETY: only pointers to kept values are stored.
        let mut old = unsafe { lists[index].load(Acquire).as_ref::<'static>() };
        for place in (0..u64::BITS as usize).rev().filter(|place| places >> place & 1 != 0) {
            // A condition that is gone meanwhile is not set: its change makes callsites look again.
            let matching = condition::at(slot.session.view(), desc, place, find);
            let Some(Match { each, fired, filter, part, on }) = matching else { continue };
            let bound = |found: Option<Found>| match found {
                Some(found) => self.bound(index, slot, desc, found).map(Some),
                None => Some(None),
            };
            let (filter, on) = (bound(filter)?, bound(on)?);
            let event = old.map_or_else(|| bind::event_name(desc), |old| Some(old.event))?;
            let new =
                BoundCondition { place, each, fired, filter, part, on, slot, event, next: list };
            // The same conditions again take no memory.
            let same = std::iter::successors(old, |old| old.next).find(|old| old.is_same(&new));
            list = Some(match same {
                Some(same) => same,
                None => kept_memory::keep(new)?,
            });
            old = old.or(list);
        }
        let list = list.map_or(std::ptr::null_mut(), |list| std::ptr::from_ref(list).cast_mut());
        lists[index].store(list, Release);
        if !is_taken {
            self.watched.fetch_or(1 << index, Release);
        }
        Some(())
    }

    /// Returns the filter bound to the event and the slot; none if there is no memory.
    fn bound(
        &self,
        index: usize,
        slot: &'static RecorderSlot,
        desc: &EventDesc,
        found: Found,
    ) -> Option<&'static Bound> {
        let program = found.program()?;
        // SAFETY: only pointers to kept values are stored.
        let newest = unsafe { self.newest[index].load(Acquire).as_ref::<'static>() };
        let is_same =
            |bound: &&Bound| std::ptr::eq(bound.program, program) && std::ptr::eq(bound.slot, slot);
        let known = std::iter::successors(newest, |bound| bound.next).find(is_same);
        if known.is_some() {
            return known;
        }
        let new = Bound::keep(program, slot, desc, newest)?;
        self.newest[index].store(std::ptr::from_ref(new).cast_mut(), Release);
        Some(new)
    }
}

impl Bound {
    fn keep(
        program: &'static Program,
        slot: &'static RecorderSlot,
        desc: &EventDesc,
        next: Option<&'static Self>,
    ) -> Option<&'static Self> {
        let sources = match &program.code {
            Some((code, _)) => {
                kept_memory::keep_all(code.names().map(|name| bind::source(&name?, slot, desc)))?
            }
            None => &[],
        };
        let reads_payload = sources.iter().any(|source| matches!(source, Source::Field(_)));
        let reads_user = sources.iter().any(|source| matches!(source, Source::User(..)));
        kept_memory::keep(Self {
            program,
            slot,
            sources,
            fields: desc.fields,
            reads_payload,
            reads_user,
            next,
        })
    }

    /// Evaluates the code on the pieces of a payload.
    fn is_true(&self, pieces: &[&[u8]], user: &[&[u8]]) -> bool {
        let Some((_, instructions)) = self.program.code else { return true };
        let me = identity::identity();
        let mut unclear = false;
        let result = lastwords_filter::eval(instructions, &mut |name| {
            let value = self.value(self.sources.get(name)?, pieces, &me, user);
            value.unwrap_or_else(|Unclear| {
                unclear = true;
                None
            })
        });
        unclear || result == Some(true)
    }

    /// Returns a key of the value of the expression, which is a name. Equal values have equal keys.
    fn key(&self, pieces: &[&[u8]], user: &[&[u8]]) -> Option<u64> {
        let me = identity::identity();
        let value = self.value(self.sources.first()?, pieces, &me, user).ok().flatten()?;
        // FNV-1a of 64 bits.
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Some(match value {
            Value::Signed(number) => number.cast_unsigned(),
            Value::Unsigned(number) => number,
            Value::Float(number) => number.to_bits(),
            Value::Bool(truth) => truth.into(),
            Value::Enum { number, .. } => number as u64,
            Value::Text(text) => text.iter().fold(0xcbf2_9ce4_8422_2325, hash),
        })
    }

    fn value<'a>(
        &self,
        source: &Source,
        pieces: &'a [&'a [u8]],
        me: &'a Identity,
        user: &'a [&'a [u8]],
    ) -> Result<Option<Value<'a>>, Unclear> {
        Ok(match source {
            Source::Unknown => None,
            Source::Field(place) => return Payload(pieces).value(self.fields, place),
            Source::User(at, ty) => return Payload(user).scalar_or_text(*at, ty),
            Source::Text(text) => Some(Value::Text(text)),
            Source::Level(number, word) => {
                Some(Value::Enum { number: *number, label: Some(word.as_bytes()) })
            }
            Source::Context(bit) => context::value(*bit, me),
        })
    }
}
